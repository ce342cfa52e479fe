"""TW201 and TW202: an index tile points outside of its tensor.

`A.at((rows, cols))` takes an element for each element of its index tiles. Where the mask is true, or everywhere without
one, every index must be inside its dimension, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext, Site
from ...integers import Question, conjunction
from ...lane_values import LaneValues, lanes
from ...report import Obligation
from ..contracts import offered
from ..outcome import fixes_of, settle, unknown

READS, WRITES = "TW201", "TW202"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each gather or scatter and dimension."""
    for site in context.sites:
        if isinstance(site.stmt, ir.Gather | ir.Scatter):
            for dim in range(len(site.stmt.index)):
                yield _inside(context, site, site.stmt, dim)


def _inside(context: KernelContext, site: Site, stmt: ir.Gather | ir.Scatter, dim: int) -> Obligation:
    tile = context.tile(stmt.dst if isinstance(stmt, ir.Gather) else stmt.src)
    code, verb = (READS, "load of") if isinstance(stmt, ir.Gather) else (WRITES, "store to")
    verb = "update of" if isinstance(stmt, ir.Scatter) and stmt.op else verb
    operand = stmt.index[dim]
    name = operand.name if isinstance(operand, ir.TileRef | ex.Size | ex.Var) else "%"
    text = "computed" if name.startswith("%") else name
    what = f"every index of dimension {dim} in the {verb} {stmt.tensor} exists"
    binders, lane = lanes(tile.shape if tile is not None else ())
    values = LaneValues(context, site)
    index, mask = values.value(operand, lane), values.value(stmt.mask, lane)
    if index is None or (stmt.mask is not None and mask is None):
        missing = f"the {'mask' if index is not None else 'index'} is computed in a way that is not followed here"
        return unknown(context, code, "memory", what, stmt.span, missing)
    extent = context.kernel.param(stmt.tensor).type.shape[dim]
    known = (*values.facts, *((mask,) if mask is not None else ()))
    claim = ex.Bin("and", ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent))
    own = {b.name for b in (*binders, *values.symbols)}
    base = site.question(conjunction((claim, *known)))
    # The binders of the site, those of the lane, and what choices come to.
    outer = tuple(b for b in base.binders if b.name not in own)
    question = Question(claim, (*base.facts, *known), (*outer, *binders, *values.symbols))
    decision = context.decider.decide(question)
    offer = None
    if decision.verdict != "proved":
        offer = next((o for i in _items(index, values) if (o := offered(context, site, i, extent)) is not None), None)

    def message(m: Mapping[str, int]) -> str:
        at, count = ex.evaluate(index, m), ex.evaluate(extent, m)
        place = tuple(ex.evaluate(e, m) for e in lane)
        return (
            f"Element {place} of the {verb} {stmt.tensor} has index {at} ({text}) in dimension {dim}, which has "
            f"{count} element{'s' if count != 1 else ''} ({ex.show(extent)})."
        )

    return settle(
        context, site, code, "memory", what, decision, message, span=stmt.span,
        element=lambda m: tuple(ex.evaluate(e, m) for e in lane),
        hint=offer.sentence if offer else "", fixes=fixes_of(offer.fix if offer else None),
    )  # fmt: skip


def _items(index: ex.Expr, values: LaneValues) -> Iterator[ex.Item]:
    """Elements of tensors that the index may be."""
    yield from ex.items(index)
    for fact in values.facts:
        yield from ex.items(fact)
