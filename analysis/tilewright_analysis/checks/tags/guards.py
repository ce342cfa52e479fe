"""Guards against minus infinity: `tw.where(m == -tw.inf, 0.0, m)` is never minus infinity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from tilewright.ir import nodes as ir

from .axes import defined
from .lanes import Lanes


@dataclass(frozen=True, slots=True)
class Guard:
    """A truth value that is `equal` (or not) exactly where `tile`, which has not changed since, is minus infinity."""

    tile: str
    equal: bool


Guards = Mapping[str, Guard]
"""Guards by the name of the tile of truth values."""


def within(guards: Guards, stmt: ir.Stmt) -> Guards:
    """The guards that hold at every place inside of a statement, and behind it."""
    changed = defined((stmt,))
    return {name: g for name, g in guards.items() if name not in changed and g.tile not in changed}


def after(guards: Guards, stmt: ir.Stmt) -> Guards:
    """The guards behind a statement."""
    kept = within(guards, stmt)
    match stmt:
        case ir.Compute(dst=dst, op="eq" | "ne" as op, args=(ir.TileRef(name=name), value)) if value == -inf:
            return {**kept, dst: Guard(name, op == "eq")} if name != dst else kept
        case _:
            return kept


def guarded(guards: Guards, stmt: ir.Compute, tiles: list[Lanes]) -> list[Lanes]:
    """The tiles of a `where`; one that it takes only where that is not minus infinity is never minus infinity."""
    refs = [a.name if isinstance(a, ir.TileRef) else "" for a in stmt.args]
    guard = guards.get(refs[0])
    if guard is None:
        return tiles
    chosen = 2 if guard.equal else 1
    if refs[chosen] != guard.tile:
        return tiles
    at = sum(bool(r) for r in refs[:chosen])  # numbers are no tiles
    tile = tiles[at]
    held = {past: number.without_minus_infinity() for past, number in tile.held.items()}
    return [*tiles[:at], replace(tile, held=held), *tiles[at + 1 :]]
