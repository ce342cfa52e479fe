"""TW201 and TW202: an index tile points outside of its tensor.

`A.at((rows, cols))` takes an element for each element of its index tiles. Where the mask is true, or everywhere without
one, every index must be inside its dimension, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lines import points_shape

from ...context import KernelContext, Site
from ...integers import Decision
from ...lane_values import LaneValues, lanes, narrowed, wrapped
from ...mixed_radix import conjuncts, digit_of, product_of
from ...report import Obligation
from ..contracts import offered
from ..outcome import fixes_of, settle, unknown

READS, WRITES = "TW201", "TW202"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each gather or scatter and dimension."""
    for site in context.sites:
        if isinstance(site.stmt, ir.Gather | ir.CpGather | ir.Scatter):
            for dim in range(len(site.stmt.index)):
                yield _inside(context, site, site.stmt, dim)


def _inside(context: KernelContext, site: Site, stmt: ir.Gather | ir.CpGather | ir.Scatter, dim: int) -> Obligation:
    code, verb = (WRITES, "store to") if isinstance(stmt, ir.Scatter) else (READS, "load of")
    verb = "update of" if isinstance(stmt, ir.Scatter) and stmt.op else verb
    operand = stmt.index[dim]
    name = operand.name if isinstance(operand, ir.TileRef | ex.Size | ex.Var) else "%"
    text = name if name in context.written.types or name in context.kernel.sizes else "computed"
    what = f"every index of dimension {dim} in the {verb} {stmt.tensor} exists"
    binders, lane = lanes(points_shape(context.kernel, stmt))
    values = LaneValues(context, site, binders)
    mask = values.value(stmt.mask, lane)
    values.known = (mask,) if mask is not None else ()
    index = values.value(operand, lane)
    if index is None or (stmt.mask is not None and mask is None):
        missing = f"the {'mask' if index is not None else 'index'} is computed in a way that is not followed here"
        return unknown(context, code, "memory", what, stmt.span, missing)
    extent = context.kernel.param(stmt.tensor).type.shape[dim]
    claim = ex.Bin("and", ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent))
    known = (*values.facts, *values.known)
    decision = Decision("proved", "stated")
    if not _stated(index, extent, known):
        decision = narrowed(context, context.decider.decide(values.question(claim)), values.wraps)
    offer = None
    if decision.verdict != "proved" and not values.wraps:
        offer = next((o for i in _items(index, values) if (o := offered(context, site, i, extent)) is not None), None)

    def message(m: Mapping[str, int]) -> str:
        at, count = ex.evaluate(index, m), ex.evaluate(extent, m)
        place = tuple(ex.evaluate(e, m) for e in lane)
        return (
            f"Element {place} of the {verb} {stmt.tensor} has index {at} ({text}) in dimension {dim}, which has "
            f"{count} element{'s' if count != 1 else ''} ({ex.show(extent)}).{wrapped(values.wraps, m)}"
        )

    return settle(
        context, site, code, "memory", what, decision, message, span=stmt.span,
        element=lambda m: tuple(ex.evaluate(e, m) for e in lane),
        hint=offer.sentence if offer else "", fixes=fixes_of(offer.fix if offer else None),
    )  # fmt: skip


def _stated(index: ex.Expr, extent: ex.Expr, known: tuple[ex.Expr, ...]) -> bool:
    """Whether the mask says it in so many words, or the index is a remainder by the extent."""
    digit = digit_of(index)
    if digit.radix is not None and digit.radix == product_of(extent):
        return True
    parts = {p for k in known for p in conjuncts(k)}
    return {ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent)} <= parts


def _items(index: ex.Expr, values: LaneValues) -> Iterator[ex.Item]:
    """The element of a tensor that the index is, or may be; bounds of one that it is computed from would not do."""
    match index:
        case ex.Item():
            yield index
        case ex.Var(name):
            for fact in values.facts:
                match fact:
                    case ex.Bin("or", _, ex.Bin("==", ex.Var(chosen), ex.Item() as item)) if chosen == name:
                        yield item
                    case _:
                        pass
        case _:
            pass
