"""TW303 for tensors that the kernel does not touch."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.interpret.execution import outputs
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext
from ...report import Obligation
from ..outcome import refuted

CODE = "TW303"


def unused(context: KernelContext) -> Iterator[Obligation]:
    """A tensor that no statement touches was to be read or stored, unless a size can only be read off it.

    A kernel that stores nothing at all has no other output.
    """
    kernel = context.kernel
    stored = outputs(kernel)
    touched = {
        getattr(value, "tensor", value) for stmt in ir.walk(kernel.body) for value in ir.operands(stmt)
        if isinstance(value, str) or hasattr(value, "tensor")
    }  # fmt: skip
    known = {e.name for p in kernel.params if p.name in touched for e in p.type.shape if isinstance(e, ex.Size)}
    for param in kernel.params:
        sizes = {e.name for e in (*param.type.shape, *param.type.strides) if isinstance(e, ex.Size)}
        if param.name in touched or (sizes - known and stored):
            continue
        what = f"{param.name} is used"
        text = (
            f"Nothing is loaded from {param.name} and nothing stored to it: if it is an output, it keeps what the "
            f"memory held before; if it has no purpose, leave it out."
        )
        yield refuted(context, CODE, "grid", what, param.span, text, how="statements")
