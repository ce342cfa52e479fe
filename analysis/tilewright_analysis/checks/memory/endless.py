"""TW207: a `while` loop that may not end.

Nothing else in a kernel can run on for ever by itself: the turns of `for` are counted when it begins. A loop ends if
some integer falls from turn to turn and is never negative (`inductive`); whether it runs on is not derived but tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, unknown

CODE = "TW207"
_MISSING = (
    "No distance between scalars is known to fall from turn to turn. If data decides, say what bounds it, as "
    "tw.assume(lambda i: NEXT[i] < i) does; or count the turns, and end with the count"
)


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each `while` loop."""
    for site in context.sites_of(ir.While):
        ends = context.learned[id(site.stmt)].ends
        what = "this loop ends"
        if ends:
            yield proved(CODE, "memory", what, site.stmt.span, ends)
        else:
            yield unknown(context, CODE, "memory", what, site.stmt.span, _MISSING)
