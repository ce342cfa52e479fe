"""Instructions of statements about tags: they execute nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c


@dataclass(slots=True, eq=False, kw_only=True)
class OverElements(c.Instr):
    """A statement about tags.

    `about` is the statement, `places` and `shapes` are those of its mentions: tiles by name, or stages. `loops` has the
    loops whose positions its expressions name, `grid` says whether it stands in a persistent grid.
    """

    about: ir.Tag | ir.ExpectTags
    places: tuple[str | c.Place, ...]
    shapes: tuple[tuple[int, ...], ...]
    loops: Mapping[str, c.Loop]
    grid: bool


@dataclass(slots=True, eq=False, kw_only=True)
class TagTile(OverElements):
    """Give tags to a tile or a stage: name, canonical value (None: not followed), and the value as written."""

    of: str | c.Place
    tags: tuple[tuple[str, ex.Expr | None, ex.Expr], ...]


@dataclass(slots=True, eq=False, kw_only=True)
class Expectation(OverElements):
    """State conditions on tags, each canonical (or why it is not followed) and as written."""

    conditions: tuple[tuple[ex.Expr | str, ex.Expr], ...]
