"""TW009: an instruction that the target does not have.

TMA, matrix instructions and roles are refused with their own limits (TW502, TW503, TW603). What is left: cp.async (PTX
ISA, sm_80 and up), mbarriers (sm_80 and up) and tensor memory (sm_100a). AMD GPUs have none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright.targets import TARGETS, Feature

from ...context import KernelContext
from ...report import Obligation
from ..outcome import refuted

CODE = "TW009"
_NEEDS: tuple[tuple[tuple[type[ir.Stmt], ...], Feature, str, str], ...] = (
    (
        (ir.CpAsync, ir.CpGather, ir.CpCommit, ir.CpWait),
        "cp_async",
        "cp.async",
        "Load with tw.load, then tw.store_shared.",
    ),
    (
        (ir.AllocBarrier, ir.BarrierWait, ir.BarrierArrive, ir.BarrierExpect),
        "mbarrier",
        "mbarriers",
        "Order accesses with tw.sync.",
    ),
    ((ir.AllocTensor, ir.TensorLoad, ir.Tcgen05Commit), "tcgen05", "tensor memory", "Accumulate in registers."),
)


def check(context: KernelContext) -> Iterator[Obligation]:
    """One refuted obligation for each kind of instruction that is missing, at its first use; none otherwise."""
    target = TARGETS.get(context.kernel.target)
    if target is None:
        return
    statements = list(ir.walk(context.kernel.body))
    for kinds, feature, name, instead in _NEEDS:
        first = next((s for s in statements if isinstance(s, kinds)), None)
        if first is None or target.has(feature):
            continue
        having = ", ".join(t.name for t in TARGETS.values() if t.has(feature))
        text = f"{target.name} has no {name}; targets that do: {having}. {instead}"
        yield refuted(context, CODE, "resources", f"{target.name} has {name}", first.span, text)
