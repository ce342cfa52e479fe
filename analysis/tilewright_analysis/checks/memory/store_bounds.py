"""TW202: a store starts before its tensor.

A store drops the elements past the upper edge of its tensor by itself, but a tile that starts before element 0 would
put its first elements in front of the tensor. A tile that lies past the edge altogether is the subject of TW301.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext, Site, view_span
from ...integers import sign_claim
from ...report import Obligation
from ..contracts import offered
from ..outcome import fixes_of, settle

CODE = "TW202"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each store and dimension."""
    for site, view in context.views():
        if isinstance(site.stmt, ir.Store | ir.TmaStore | ir.Atomic):
            for dim in range(view.lead, len(view.origin)):  # the fixed ones: leading_index
                yield _start(context, site, view, dim)


def _start(context: KernelContext, site: Site, view: ir.View, dim: int) -> Obligation:
    origin = site.value(view.origin[dim])
    decision = context.decide(site, sign_claim(view.origin[dim]))

    def message(m: Mapping[str, int]) -> str:
        at = ex.evaluate(origin, m)
        return f"The store to {view.tensor} starts at element {at} of dimension {dim}, before the tensor begins."

    what = f"the store to {view.tensor} starts at or after element 0 in dimension {dim}"
    offer = offered(context, site, origin, None)
    return settle(
        context, site, CODE, "memory", what, decision, message, span=view_span(site.stmt, view),
        hint=offer.sentence if offer else "", fixes=fixes_of(offer.fix if offer else None),
    )  # fmt: skip
