"""Instructions of statements about tags."""

from __future__ import annotations

from collections.abc import Callable

from tilewright import tag_space
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.tagging import Holder, holders
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import expectations, said
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.scalars import Scalars


def about_tags(scalars: Scalars, stmt: ir.Tag | ir.ExpectTags, place: Callable[[ir.BufRef], c.Place]) -> c.Instr:
    """The instruction; `place` gives that of a stage. What the engine cannot follow is left open, never refused."""

    def held(of: Holder) -> str | c.Place:
        return of if isinstance(of, str) else place(of)

    places = tuple(held(u.of) for u in stmt.uses)
    shapes = tuple(tag_space.held_shape(u.of, scalars.t.kernel.types) for u in stmt.uses)
    names = tuple(h for h in holders(stmt) if isinstance(h, str))
    grid = scalars.in_grid
    if isinstance(stmt, ir.Tag):
        tags: list[tuple[str, ex.Expr | None, ex.Expr]] = []
        for name, value in stmt.tags:
            try:
                tags.append((name, expectations.canonical(scalars, value, stmt), value))
            except Unsupported:
                tags.append((name, None, value))
        loops, used = _names(scalars, [e for _, e, _ in tags if e is not None])
        return said.TagTile(
            stmt=stmt, about=stmt, places=places, shapes=shapes, loops=loops, grid=grid, of=held(stmt.of),
            tags=tuple(tags), uses=used, reads=names, writes=stmt.of if isinstance(stmt.of, str) else None,
        )  # fmt: skip
    conditions: list[tuple[ex.Expr | str, ex.Expr]] = []
    for written in tag_space.conjuncts(stmt.cond):
        try:
            conditions.append((expectations.condition(scalars, written, stmt), written))
        except Unsupported as error:
            conditions.append((error.missing, written))
    loops, used = _names(scalars, [e for e, _ in conditions if not isinstance(e, str)])
    return said.Expectation(
        stmt=stmt, about=stmt, places=places, shapes=shapes, loops=loops, grid=grid,
        conditions=tuple(conditions), uses=used, reads=names,
    )  # fmt: skip


def _names(scalars: Scalars, exprs: list[ex.Expr]) -> tuple[dict[str, c.Loop], frozenset[int]]:
    """The loops and the slots that expressions name."""
    names = frozenset(n for e in exprs for n in ex.names(e) if n.startswith(("#", "$")))
    loops = {n: scalars.loop_of_slot[n] for n in names if n in scalars.loop_of_slot}
    return loops, frozenset(scalars.slot(n) for n in names)
