"""Operands of the products of a split pipeline: stages, tiles that stay in shared memory, and registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.expand.errors import ExpansionError
from tilewright.expand.rings import Ring
from tilewright.ir import nodes as ir
from tilewright.ir.dataflow import read_by
from tilewright.ir.expr import Expr, Int
from tilewright.ir.tagging import holders
from tilewright.source import Span

Resident = Mapping[str, ir.BufRef]
"""Operands that lie in shared memory while a loop runs."""


def wgmma(stmt: ir.Stmt, ring: Ring, resident: Resident, ahead: int = 0) -> ir.Stmt:
    """The instruction for a product, with the stages of the iteration `ahead`."""
    assert isinstance(stmt, ir.Mma)
    stages = {r.dst: r.stage(ring.stage(ahead)) for r in ring.reads} | dict(resident)
    if stmt.b not in stages:
        what = "the one here is computed" if stmt.b.startswith("%") else f"'{stmt.b}' is not"
        raise ExpansionError(
            "TW005",
            f"operand b of a product in a split pipeline is a tile loaded by TMA, since wgmma reads it from shared "
            f'memory; {what}. Compute on it with roles="single", or before it is stored; operand a may be computed',
            stmt.span,
        )
    a = stages.get(stmt.a, ir.TileRef(stmt.a))
    return ir.Wgmma(stmt.dst, a, stages[stmt.b], stmt.acc, span=stmt.span)


def reads_of(ring: Ring, stmt: ir.Stmt, read: set[str], ahead: int = 0) -> Iterator[ir.Stmt]:
    """Loads into registers of staged tiles that a statement is the first to use there."""
    used = read_by(stmt)
    for r in ring.reads:
        if r.dst in used and r.dst not in read:
            read.add(r.dst)
            yield r.load(ring.stage(ahead))


def tiles_of(stmt: ir.Stmt) -> frozenset[str]:
    """Register tiles, or loaded ones, that are spoken of."""
    assert isinstance(stmt, ir.Tag | ir.ExpectTags)
    return frozenset(h for h in holders(stmt) if isinstance(h, str))


def decided(cond: Expr, then: ir.Block, span: Span) -> ir.Block:
    """A branch, taken or left now if that is possible."""
    if isinstance(cond, Int):
        return then if cond.value else ()
    return (ir.If(cond, then, span=span),)
