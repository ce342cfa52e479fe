"""What is said of the tags of a tile that is kept in pieces is said of each piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from tilewright.expand.errors import ExpansionError
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.shapes import parts_of
from tilewright.ir.tagging import Tagging, parameter

Shape = tuple[int, ...]
Index = tuple[int, ...]
Piece = Callable[[str, Index], str]
ShapeOf = Callable[[str], Shape]


def tagging_of_pieces(stmt: Tagging, shape_of: ShapeOf, piece: Piece) -> Iterator[Tagging]:
    """The statement for each combination of pieces; `piece` names that of a tile with a number along each axis.

    Raises ExpansionError [TW506] where an element of a tile in pieces is not chosen by parameters themselves.
    """
    extents = _extents(stmt, shape_of)
    for index in product(*(range(len(parts_of(n))) if n else range(1) for n in extents)):
        begins = [sum(parts_of(n)[:i]) if n else 0 for n, i in zip(extents, index, strict=True)]
        moved: dict[str, ex.Expr] = {
            f"~{k}": ex.add(parameter(k), Int(begin)) for k, begin in enumerate(begins) if begin
        }

        def within(use: ir.TagUse, index: Index = index, moved: dict[str, ex.Expr] = moved) -> ir.TagUse:
            shape = _odd(use.of, shape_of)
            if shape is None or not isinstance(use.of, str):
                return replace(use, index=tuple(ex.substitute(e, moved) for e in use.index))
            own: list[int] = []
            at: list[ex.Expr] = []
            for e, n in zip(use.index, shape, strict=True):
                number, inside = _located(e, n, index, moved)
                own.append(number)
                at.append(inside)
            return replace(use, of=piece(use.of, tuple(own)), index=tuple(at))

        uses = tuple(within(u) for u in stmt.uses)
        if isinstance(stmt, ir.ExpectTags):
            yield replace(stmt, cond=ex.substitute(stmt.cond, moved), uses=uses, begins=tuple(begins))
        else:
            of = stmt.of
            if isinstance(of, str) and _odd(of, shape_of) is not None:
                of = piece(of, tuple(i if n & (n - 1) else 0 for i, n in zip(index, shape_of(of), strict=True)))
            yield replace(stmt, of=of, tags=tuple((n, ex.substitute(e, moved)) for n, e in stmt.tags), uses=uses)


def _located(at: ex.Expr, extent: int, index: Index, moved: dict[str, ex.Expr]) -> tuple[int, ex.Expr]:
    """The number of the piece along an axis that an index falls into, and the index there."""
    parts = parts_of(extent)
    if len(parts) == 1:
        return 0, ex.substitute(at, moved)
    if isinstance(at, Int):
        number = max(i for i in range(len(parts)) if sum(parts[:i]) <= at.value)
        return number, Int(at.value - sum(parts[:number]))
    assert isinstance(at, ex.Var)
    return index[int(at.name[1:])], at


def _extents(stmt: Tagging, shape_of: ShapeOf) -> list[int]:
    """For each parameter the extent of an axis in pieces that it numbers; 0 where it numbers none."""
    extents = [0] * len(stmt.names)
    if isinstance(stmt, ir.Tag) and isinstance(stmt.of, str):
        extents = [n if n & (n - 1) else 0 for n in shape_of(stmt.of)]
    for use in stmt.uses:
        shape = _odd(use.of, shape_of)
        if shape is None:
            continue
        if use.thread:
            raise _refused(stmt, use, shape, "which threads hold which of its elements is only known of a piece")
        for at, n in zip(use.index, shape, strict=True):
            if not n & (n - 1) or isinstance(at, Int):
                continue
            number = int(at.name[1:]) if isinstance(at, ex.Var) else -1
            if number < 0 or extents[number] not in (0, n):
                raise _refused(stmt, use, shape, "so its elements are chosen by parameters themselves")
            extents[number] = n
    return extents


def _odd(of: str | ir.BufRef, shape_of: ShapeOf) -> Shape | None:
    """The shape of a tile in pieces; None for others."""
    if not isinstance(of, str):
        return None
    shape = shape_of(of)
    return shape if any(n & (n - 1) for n in shape) else None


def _refused(stmt: Tagging, use: ir.TagUse, shape: Shape, why: str) -> ExpansionError:
    return ExpansionError(
        "TW506", f"the tile '{use.label}' of {list(shape)} is kept in pieces of powers of two, {why}", stmt.span
    )
