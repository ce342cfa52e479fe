"""TW304: the roles of a kernel walk different grids.

Roles hand tiles to each other in the order of the grid, so each must run over the same number of programs,
distributed in the same way. If one role sees another count, it waits for tiles that nobody sends, or leaves some
behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Related

from ...context import GridSite, KernelContext
from ...report import Obligation
from ..outcome import proved, refuted, settle

CODE = "TW304"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each role after the first, and each of its grids."""
    roles = [r for s in ir.walk(context.kernel.body) if isinstance(s, ir.Roles) for r in s.roles]
    by_role = {r.name: [g for g in context.grids if g.role == r.name] for r in roles}
    if len(roles) < 2:
        return
    leader = roles[0]
    for role in roles[1:]:
        ours, theirs = by_role[leader.name], by_role[role.name]
        what = f"roles {leader.name} and {role.name} walk the same grid"
        if len(ours) != len(theirs):
            text = (
                f"Role {leader.name} has {len(ours)} tw.programs loop{'s' if len(ours) != 1 else ''}, role "
                f"{role.name} has "
                f"{len(theirs)}. Give both the same grid."
            )
            yield refuted(context, CODE, "grid", what, role.span, text)
            continue
        for a, b in zip(ours, theirs, strict=True):
            yield _same(context, what, a, b)


def _same(context: KernelContext, what: str, a: GridSite, b: GridSite) -> Obligation:
    related = (Related(a.stmt.span, f"the grid of role {a.role}"),)
    if a.stmt.persistent != b.stmt.persistent:
        text = f"The grid of role {a.role} is {_kind(a)}, that of role {b.role} is {_kind(b)}."
        return refuted(context, CODE, "grid", what, b.stmt.span, text, related=related)
    if a.count == b.count:
        return proved(CODE, "grid", what, b.stmt.span, "equal expressions")
    site = next(s for s in context.sites_of(ir.Programs) if s.stmt is b.stmt)
    decision = context.decider.decide(site.question(ex.Bin("==", a.count, b.count)))

    def message(m: Mapping[str, int]) -> str:
        return (
            f"Role {b.role} runs over {ex.evaluate(b.count, m)} programs, role {a.role} over "
            f"{ex.evaluate(a.count, m)}: "
            "one of them waits for tiles that never come."
        )

    return settle(context, site, CODE, "grid", what, decision, message, related=related)


def _kind(grid: GridSite) -> str:
    return "persistent" if grid.stmt.persistent else "one program a tile"
