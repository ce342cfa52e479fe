"""TW201 and TW202: an index that fixes a leading dimension of a tensor does not exist.

`A[b].tile(…)` takes the tile from element b of the first dimension. Tiles may reach over the edge of a tensor along
their own dimensions, where loads fill and stores drop; an index has no such use, so one that can be outside is a
mistake in every access, bulk copies and accesses with `other=` included. (The generated code masks it all the same.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext, Site, view_span
from ...report import Obligation
from ..contracts import offered
from ..outcome import fixes_of, settle

READS, WRITES = "TW201", "TW202"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each access and dimension that an index fixes."""
    for site, view in context.views():
        for dim in range(view.lead):
            yield _inside(context, site, view, dim)


def _inside(context: KernelContext, site: Site, view: ir.View, dim: int) -> Obligation:
    index, extent = view.origin[dim], context.kernel.param(view.tensor).type.shape[dim]
    value, text = site.value(index), ex.show(index)
    claim = ex.Bin("and", ex.Bin("<=", ex.Int(0), index), ex.Bin("<", index, extent))

    def message(m: Mapping[str, int]) -> str:
        at, count = ex.evaluate(value, m), ex.evaluate(extent, m)
        here = "" if text == str(at) else f"{text} is {at} here, but "
        return (
            f"{here}dimension {dim} of {view.tensor} has {count} element{'s' if count != 1 else ''} "
            f"({ex.show(extent)}): index {at} does not exist."
        )

    offer = offered(context, site, value, extent)
    stores = isinstance(site.stmt, ir.Store | ir.TmaStore | ir.Atomic)
    return settle(
        context, site, WRITES if stores else READS, "memory",
        f"index {text} of dimension {dim} of {view.tensor} exists",
        context.decide(site, claim), message, span=view_span(site.stmt, view),
        hint=offer.sentence if offer else "", fixes=fixes_of(offer.fix if offer else None),
    )  # fmt: skip
