"""TW201: a load reaches outside its tensor.

A load without `other=` needs every element of its tile inside the tensor, for all sizes, programs and iterations: a
tile at the edge of a size that is no multiple of the tile extent sticks out. `other=` gives the elements past the
upper edge a value; no load, not even one with `other=`, may start before element 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Edit, Fix
from tilewright.source import NO_SPAN, Span

from ...context import KernelContext, Site, view_span
from ...integers import sign_claim
from ...report import Obligation
from ..contracts import offered
from ..outcome import assume_fix, fixes_of, settle

CODE = "TW201"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each load and dimension."""
    for site, view in context.views():
        stmt = site.stmt
        if not isinstance(stmt, ir.Load | ir.CpAsync):
            continue  # bulk copies fill what lies outside, on both sides
        extents = context.kernel.param(view.tensor).type.shape
        masked = isinstance(stmt, ir.CpAsync) or stmt.other is not None
        for dim, extent in list(enumerate(extents))[view.lead :]:  # the fixed ones: leading_index
            yield _start(context, site, view, dim)
            if not masked:
                yield _end(context, site, view, dim, extent)


def _start(context: KernelContext, site: Site, view: ir.View, dim: int) -> Obligation:
    origin = site.value(view.origin[dim])
    decision = context.decide(site, sign_claim(view.origin[dim]))

    def message(m: Mapping[str, int]) -> str:
        at = ex.evaluate(origin, m)
        return f"The load of {view.tensor} starts at element {at} of dimension {dim}, before the tensor begins."

    what = f"the load of {view.tensor} starts at or after element 0 in dimension {dim}"
    offer = offered(context, site, origin, None)
    return settle(
        context, site, CODE, "memory", what, decision, message, span=view_span(site.stmt, view),
        hint=offer.sentence if offer else "", fixes=fixes_of(offer.fix if offer else None),
    )  # fmt: skip


def _end(context: KernelContext, site: Site, view: ir.View, dim: int, extent: ex.Expr) -> Obligation:
    origin, length = site.value(view.origin[dim]), view.shape[dim]
    end = ex.add(origin, ex.Int(length))
    decision = context.decide(site, ex.Bin("<=", ex.add(view.origin[dim], ex.Int(length)), extent))

    def message(m: Mapping[str, int]) -> str:
        first, last = ex.evaluate(origin, m), ex.evaluate(end, m) - 1
        limit = ex.evaluate(extent, m)
        return (
            f"The load of {view.tensor} reads elements {first} to {last} of dimension {dim}, which has {limit} "
            f"({ex.show(extent)}). Give the elements past the edge a value with other=, or assume sizes that fit."
        )

    def element(m: Mapping[str, int]) -> tuple[int, ...]:
        at = [ex.evaluate(site.value(o), m) if _known(site.value(o), m) else 0 for o in view.origin]
        at[dim] = max(ex.evaluate(origin, m), ex.evaluate(extent, m))
        return tuple(at)

    divides = ex.Bin("==", ex.Bin("%", extent, ex.Int(length)), ex.Int(0))
    sizes_only = isinstance(extent, ex.Size) and length > 1
    return settle(
        context, site, CODE, "memory",
        f"the load of {view.tensor} stays inside dimension {dim}",
        decision, message,
        span=view_span(site.stmt, view),
        element=element,
        fixes=fixes_of(_other_fix(context, site.stmt), assume_fix(context, divides) if sizes_only else None),
    )  # fmt: skip


def _known(expr: ex.Expr, m: Mapping[str, int]) -> bool:
    return ex.names(expr) <= m.keys()


def _other_fix(context: KernelContext, stmt: ir.Stmt) -> Fix | None:
    """Insert `other=0.0` before the closing bracket of the load call."""
    if context.source is None or stmt.span == NO_SPAN:
        return None
    text = context.source.encode("utf-8", "surrogatepass")[: stmt.span.end]
    at = text.rfind(b")")
    if at < stmt.span.start:
        return None
    comma = "" if text[:at].rstrip().endswith(b",") else ", "
    return Fix("Read 0.0 past the edge: other=0.0", (Edit(Span(at, at), f"{comma}other=0.0"),))
