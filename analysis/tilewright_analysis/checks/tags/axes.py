"""Tiles whose axes move: alignment of operands, reshapes, operands of products; and names that blocks define."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.source import NO_SPAN

from .lanes import Lanes, Past, moved, subsets, without
from .numbers import Number


def contracted(tile: Lanes, axis: int) -> Lanes:
    """An operand of a product with its contracted axis numbered -1, and without its other edges."""
    kept = without(tile, tile.edges - tile.along(axis))
    return moved(kept, lambda a: -1, NO_SPAN)


def defined(block: ir.Block) -> set[str]:
    """Names of the tiles that a block assigns."""
    found: set[str] = set()
    for stmt in ir.walk(block):
        name = getattr(stmt, "dst", None)
        if isinstance(name, str) and not isinstance(
            stmt, ir.Assign | ir.AllocShared | ir.AllocBarrier | ir.AllocTensor
        ):
            found.add(name)
    return found


def stale(e: ex.Expr, scope: frozenset[str]) -> ex.Expr:
    """The expression with the symbols that have no meaning outside of a loop marked as those of some iteration."""
    gone = {n.name for n in ex.walk(e) if isinstance(n, ex.Var)} - scope
    return ex.substitute(e, {n: ex.Var(f"{n}°") for n in gone if not n.endswith("°")})


def aligned(tile: Lanes, shape: tuple[int, ...], to: tuple[int, ...]) -> Lanes:
    """An operand broadcast to a shape. Edges along an axis of extent 1 that stretches are gone with it."""
    lead = len(to) - len(shape)
    stretched = frozenset(a for a, n in enumerate(shape) if n == 1 and to[a + lead] > 1)
    gone = frozenset(e for e in tile.edges if e.axis in stretched)
    if gone:
        rest = tile.edges - gone
        held: dict[Past, Number] = {}
        for past in subsets(rest):
            number = tile.at(past)
            for more in subsets(gone):
                number |= tile.at(past | more)
            held[past] = number
        tile = replace(tile, edges=rest, held=held)
    return moved(tile, lambda a: a + lead, NO_SPAN)


def reshaping(old: tuple[int, ...], new: tuple[int, ...]) -> Callable[[int], int | None]:
    """Where axes go when a reshape only adds or drops axes of extent 1; elsewhere they are gone."""
    olds = [a for a, n in enumerate(old) if n > 1]
    news = [a for a, n in enumerate(new) if n > 1]
    if [old[a] for a in olds] != [new[a] for a in news]:
        return lambda a: None
    where = dict(zip(olds, news, strict=True))
    return where.get
