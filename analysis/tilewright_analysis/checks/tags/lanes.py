"""What the lanes of a tile hold, inside of the tensor that it came from and past its edges.

A tile may reach past the edge of its tensor along several axes, and may have met tiles with other edges. Lanes are
told apart by the set of edges that they lie past: the empty set are the lanes inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations

from tilewright.ir import expr as ex
from tilewright.source import NO_SPAN, Span

from .masks import Index, Mask, Moved, moved_index, moved_mask
from .numbers import FINITE, NOTHING, Number

MOST_EDGES = 4


@dataclass(frozen=True, slots=True)
class Edge:
    """Lane i along `axis` lies past the edge when `origin + i >= extent`. There are `length` lanes.

    `origin` is over sizes and binders, and `written` in the names of the source. `tensor` and `span` say which load.
    """

    axis: int
    origin: ex.Expr
    extent: ex.Expr
    length: int = field(compare=False, default=0)
    written: ex.Expr = field(compare=False, default=ex.Int(0))
    tensor: str = field(compare=False, default="")
    span: Span = field(compare=False, default=NO_SPAN)


Past = frozenset[Edge]
INSIDE: Past = frozenset()


@dataclass(frozen=True)
class Lanes:
    """A tile: its `edges`, and the number that lanes past each set of edges hold.

    `spoiled`: the statement after which lanes past an edge no longer held the constant that they were loaded with.
    `carried`: the variables that have come around a loop and went into it. `lost`: why its edges are not known.
    `shown`: axes whose first lane a mask shows, for every lane of the other axes; what it hides is minus infinity.
    """

    edges: frozenset[Edge] = frozenset()
    held: Mapping[Past, Number] = field(default_factory=lambda: {INSIDE: FINITE})
    index: Index | None = None
    mask: Mask | None = None
    spoiled: Span | None = field(default=None, compare=False)
    carried: frozenset[str] = frozenset()
    lost: str = ""
    shown: frozenset[int] = frozenset()

    def at(self, past: Past) -> Number:
        """What the lanes hold that lie past exactly these edges. Edges that the tile does not have make no odds."""
        return self.held[past & self.edges]

    @property
    def anywhere(self) -> Number:
        """What any lane may hold."""
        result = NOTHING
        for number in self.held.values():
            result |= number
        return result

    def along(self, axis: int) -> frozenset[Edge]:
        """The edges along an axis."""
        return frozenset(e for e in self.edges if e.axis == axis)


def uniform(number: Number) -> Lanes:
    """A tile whose lanes all are alike."""
    return Lanes(held={INSIDE: number})


def unknown(number: Number, why: str) -> Lanes:
    """A tile of which only the kinds of its numbers are known."""
    return Lanes(held={INSIDE: number}, lost=why)


def subsets(edges: frozenset[Edge]) -> list[Past]:
    """All sets of edges, the empty one first."""
    if len(edges) < 2:
        return [INSIDE, edges] if edges else [INSIDE]
    ordered = sorted(edges, key=lambda e: (e.axis, _shown_once(e.origin), _shown_once(e.extent)))
    sizes = range(len(ordered) + 1)
    return [frozenset(chosen) for size in sizes for chosen in combinations(ordered, size)]


@lru_cache(maxsize=4096)
def _shown_once(e: ex.Expr) -> str:
    return ex.show(e)


def build(edges: frozenset[Edge], number: Callable[[Past], Number], like: tuple[Lanes, ...], span: Span) -> Lanes:
    """A tile with these edges; `like` are the tiles it is computed from."""
    lost = next((t.lost for t in like if t.lost), "")
    carried = frozenset(name for t in like for name in t.carried)
    spoiled = next((t.spoiled for t in like if t.spoiled is not None), None)
    if len(edges) > MOST_EDGES:
        everything = NOTHING
        for t in like:
            everything |= t.anywhere
        return Lanes(held={INSIDE: everything | FINITE}, carried=carried, lost=lost or "it has too many edges")
    held = {past: number(past) for past in subsets(edges)}
    if spoiled is None and _changes(held, like):
        spoiled = span
    return Lanes(edges, held, spoiled=spoiled, carried=carried, lost=lost)


def _changes(held: Mapping[Past, Number], like: tuple[Lanes, ...]) -> bool:
    """Whether a lane past an edge held a constant before, and holds something else now."""
    for past, number in held.items():
        if (
            past
            and any(past <= t.edges and t.at(past).value is not None for t in like)
            and not any(t.at(past) == number for t in like if past <= t.edges)
        ):
            return True
    return False


def moved(tile: Lanes, move: Moved, span: Span) -> Lanes:
    """The tile after its axes have moved. Along an axis that is gone the tile must have no edges."""
    where: dict[Edge, Edge] = {}
    for edge in tile.edges:
        axis = move(edge.axis)
        if axis is None:
            return replace(unknown(tile.anywhere, "its axes were regrouped"), carried=tile.carried)
        where[edge] = replace(edge, axis=axis)
    held = {frozenset(where[e] for e in past): number for past, number in tile.held.items()}
    return replace(
        tile, edges=frozenset(where.values()), held=held,
        index=moved_index(tile.index, move), mask=moved_mask(tile.mask, move),
    )  # fmt: skip


def joined(one: Lanes, other: Lanes) -> Lanes:
    """Either of two tiles."""
    if one == other:
        return one
    made = build(one.edges | other.edges, lambda past: one.at(past) | other.at(past), (one, other), NO_SPAN)
    same = one.index == other.index, one.mask == other.mask
    return replace(
        made, index=one.index if same[0] else None, mask=one.mask if same[1] else None,
        spoiled=one.spoiled or other.spoiled, lost=one.lost or other.lost or made.lost,
        shown=_shown(one, other) & _shown(other, one),
    )  # fmt: skip


def _shown(tile: Lanes, other: Lanes) -> frozenset[int]:
    """The axes of `shown`; where nothing is minus infinity every lane is, along whatever axis the other tile says."""
    return tile.shown if tile.anywhere.may("-inf") else tile.shown | other.shown


def matched(one: Lanes, other: Lanes, origin: ex.Expr) -> tuple[Lanes, Lanes, list[Edge]]:
    """The tiles with one edge, at `origin`, where they differ only in where an edge begins; and the edges it replaces.

    So it is with tiles of one tensor at different places, as when the next tile is loaded while this one is used.
    Joined as they are, each would hold what it likes past the edge of the other.
    """
    mine, theirs = ({(e.axis, e.extent): e for e in tile.edges} for tile in (one, other))
    alike = mine.keys() == theirs.keys() and len(mine) == len(one.edges) and len(theirs) == len(other.edges)
    differ = [key for key in mine if mine[key] != theirs[key]] if alike else []
    if not differ:
        return one, other, []
    tiles: list[Lanes] = []
    for tile, edges in ((one, mine), (other, theirs)):
        origins = frozenset(edges[key].origin for key in differ)
        tiles.append(renamed(tile, lambda e, known=origins: origin if e in known else e))
    return tiles[0], tiles[1], [edges[key] for key in differ for edges in (mine, theirs)]


def without(tile: Lanes, edges: frozenset[Edge]) -> Lanes:
    """The tile without some of its edges: lanes past them count as lanes inside, whatever they hold."""
    kept = tile.edges - edges
    held = {past: tile.held[past] for past in subsets(kept)}
    return replace(tile, edges=kept, held=held)


def renamed(tile: Lanes, rename: Callable[[ex.Expr], ex.Expr]) -> Lanes:
    """The tile with other origins and bounds."""
    where = {e: replace(e, origin=rename(e.origin)) for e in tile.edges}
    if len(set(where.values())) < len(where):
        return replace(unknown(tile.anywhere, "edges of several iterations meet in it"), carried=tile.carried)
    held = {frozenset(where[e] for e in past): number for past, number in tile.held.items()}
    keep = tile.index is not None and rename(tile.index.offset) == tile.index.offset
    atoms = () if tile.mask is None else (*tile.mask.when_true, *tile.mask.when_false)
    same = all(rename(a.offset) == a.offset and rename(a.bound) == a.bound for a in atoms)
    return replace(
        tile, edges=frozenset(where.values()), held=held,
        index=tile.index if keep else None, mask=tile.mask if same else None,
    )  # fmt: skip
