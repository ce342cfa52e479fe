"""TW201 and TW202: a stage of shared or tensor memory, or a slot of a barrier array, that does not exist.

A ring of S stages is indexed by 0 … S-1. The usual form `it % S` is always inside; an index without the remainder walks
past the ring after S iterations and reads (TW201) or overwrites (TW202) what happens to lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType
from tilewright.problem import Related

from ...context import KernelContext, Site
from ...integers import Decision
from ...report import Obligation
from ..asynchronous import explored, stays_inside
from ..outcome import settle

READS, WRITES = "TW201", "TW202"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each use of a stage or slot."""
    for site in context.sites:
        for ref in ir.operands(site.stmt):
            if isinstance(ref, ir.BufRef):
                buffer = context.kernel.types.get(ref.buffer)
                if isinstance(buffer, SharedType | TensorMemoryType):
                    written = ref in (getattr(site.stmt, "dst", None), getattr(site.stmt, "acc", None))
                    yield _inside(context, site, ref.buffer, ref.stage, buffer.stages, "stage", written)
            elif isinstance(ref, ir.BarRef):
                barrier = context.kernel.types.get(ref.barrier)
                if isinstance(barrier, BarrierType):
                    yield _inside(context, site, ref.barrier, ref.slot, barrier.slots, "slot", True)


def _inside(
    context: KernelContext, site: Site, name: str, index: ex.Expr, count: int, unit: str, written: bool
) -> Obligation:
    value = site.value(index)
    claim = ex.Bin("and", ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, ex.Int(count)))
    decision = context.decide(site, claim)
    what = f"{name}[{ex.show(index)}] is one of its {count} {unit}s"
    code = WRITES if written else READS
    if decision.verdict == "unknown":
        # Stage and phase kept in variables: their values are only known state by state.
        if stays_inside(context):
            decision = Decision("proved", "exploration of all trip counts")
        elif any(o.verdict == "refuted" for o in explored(context).outcomes):
            how = "not decided because of the fault that the exploration found"
            return Obligation(code, "memory", what, site.stmt.span, "unknown", how=how)

    def message(m: Mapping[str, int]) -> str:
        at = ex.evaluate(value, m)
        return (
            f"{name} has {count} {unit}{'s' if count != 1 else ''} (0 to {count - 1}), but {ex.show(index)} is {at} "
            f"here. "
            f"Write {ex.show(index)} % {count} to go around the ring."
        )

    related = (Related(context.alloc_span(name), f"{name} is allocated here"),)
    return settle(context, site, code, "memory", what, decision, message, related=related)
