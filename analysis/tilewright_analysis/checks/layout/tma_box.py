"""TW502: a tile that a bulk copy (TMA) cannot move as one box.

A tensor map has 1 to 5 dimensions and moves rows of whole 16-byte units (CUDA driver API, cuTensorMapEncodeTiled).
The back end splits a tile into boxes of at most 256 elements a side and of the width of the swizzle, so those limits
are no concern here; Triton allows 2**20 elements in a tile. The stage of shared memory must have exactly the shape
and type of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.ir import nodes as ir
from tilewright.targets import TARGETS

from ...context import KernelContext, view_span
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW502"
_MOST_DIMENSIONS = 5
_MOST_ELEMENTS = 1 << 20
_UNIT_BYTES = 16


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each bulk copy."""
    for site, view in context.views():
        if isinstance(site.stmt, ir.TmaLoad | ir.TmaStore):
            ref = site.stmt.dst if isinstance(site.stmt, ir.TmaLoad) else site.stmt.src
            span = view_span(site.stmt, view)
            what = f"the tile of {view.tensor} is a box that a bulk copy can move"
            problem = _problem(context, view, ref)
            if problem:
                yield refuted(context, CODE, "layout", what, span, problem)
            else:
                yield proved(CODE, "layout", what, span, "limits of tensor maps")


def _problem(context: KernelContext, view: ir.View, ref: ir.BufRef) -> str:
    tensor, buffer = context.kernel.param(view.tensor).type, context.shared(ref.buffer)
    target = TARGETS.get(context.kernel.target)
    if target is not None and not target.has("tma"):
        having = ", ".join(t.name for t in TARGETS.values() if t.has("tma"))
        instead = "Use cp.async here." if target.has("cp_async") else "Load with tw.load, then tw.store_shared."
        return f"{target.name} has no bulk copies (TMA); targets that do: {having}. {instead}"
    if not 1 <= len(view.shape) <= _MOST_DIMENSIONS:
        return f"A bulk copy has 1 to {_MOST_DIMENSIONS} dimensions; {view.tensor} has {len(view.shape)}."
    row = view.shape[-1] * tensor.dtype.bytes
    if row % _UNIT_BYTES:
        return (
            f"A bulk copy moves rows of whole {_UNIT_BYTES}-byte units; a row of this tile is {view.shape[-1]} "
            f"elements of "
            f"{tensor.dtype}, {row} bytes. Make the tile at least {_UNIT_BYTES // tensor.dtype.bytes} elements wide."
        )
    if prod(view.shape) > _MOST_ELEMENTS:
        return f"A tile has at most {_MOST_ELEMENTS} elements; this one has {prod(view.shape)}."
    if buffer is not None and (buffer.shape, buffer.dtype) != (view.tile_shape, tensor.dtype):
        return (
            f"A bulk copy moves a tile as it is, but the tile is {tensor.dtype}{list(view.tile_shape)} and a stage of "
            f"{ref.buffer} is "
            f"{buffer.dtype}{list(buffer.shape)}."
        )
    return ""
