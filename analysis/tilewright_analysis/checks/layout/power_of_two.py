"""TW506: the extent of a tile is no power of two.

Threads own elements of a tile by a linear map over bits, and so does the back end; every extent is therefore a power
of two. Take the next larger one: loads fill what sticks out of the tensor, and stores drop it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.source import Span

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW506"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for all tiles if they are right, else one for each that is not."""
    places: dict[str, Span] = {}
    for stmt in ir.walk(context.kernel.body):
        name = getattr(stmt, "dst", None)
        if isinstance(name, str):
            places.setdefault(name, stmt.span)
    wrong = False
    for name, tile in context.kernel.types.items():
        if isinstance(tile, TileType | SharedType):
            odd = next((e for e in tile.shape if e < 1 or e & (e - 1)), None)
            if odd is not None:
                wrong = True
                text = f"{name} is {tile}, but {odd} is no power of two: use {1 << max(0, odd - 1).bit_length()}."
                what = f"the extents of {name} are powers of two"
                yield refuted(context, CODE, "layout", what, places.get(name, context.kernel.span), text)
    if not wrong:
        what = "the extents of all tiles are powers of two"
        yield proved(CODE, "layout", what, context.kernel.span, "by inspection")
