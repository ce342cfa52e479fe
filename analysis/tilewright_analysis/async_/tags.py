"""Coordinate tags of tiles: what each axis of a value stands for, and which part of a contraction it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.shapes import reshaped_axes

_MOST_KEPT = 4

# A slope says how a constant moves with the position in a loop: (oracle, outer iteration, factor).
Slopes = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Tag:
    """Element i along the axis has coordinate `symbol + const + i` in dimension `dim`.

    `symbol` numbers the opaque part, `outer` is the program iteration it belongs to (-1: any). `slopes` and `text` (the
    source of the coordinate, for messages) play no part in comparisons of coordinates. `link`: an index tensor decides
    where the elements lie, and the coordinate is that of its element, beside any that they have by themselves.
    """

    dim: int
    symbol: int
    outer: int
    const: int
    slopes: Slopes
    text: str
    link: bool = False

    def same_coordinate(self, other: Tag) -> bool:
        """True when both are known to be the same coordinate."""
        return self.const == other.const and self.symbol == other.symbol and self.outer == other.outer


@dataclass(frozen=True, slots=True)
class Lost:
    """The axis had different tags in the operands of `stmt`, or lost them there; they were of the dimensions `dims`."""

    stmt: ir.Stmt
    dims: tuple[int, ...] = ()


Axis = Tag | Lost | None


@dataclass(frozen=True, slots=True)
class Func:
    """A named tag: `base + element`, where `element` is canonical, over the indices `~0`, `~1`, …, without constant."""

    base: Tag
    element: ex.Expr


Named = tuple[tuple[str, Func | Lost], ...]
"""Tags by name, sorted. A name that is missing says nothing; one that is lost had different tags."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Contracted coordinates `[low, high)`, each end with its slopes."""

    low: int
    low_slopes: Slopes
    high: int
    high_slopes: Slopes


@dataclass(frozen=True, slots=True)
class Fixed:
    """Where a tile lies along a dimension that an index fixes (`A[b]`), with extent number `dim`.

    `at` holds more than one coordinate after a product of tiles of different ones. `lost` is the statement that added
    tiles of different ones up, as in a sum over batches; then nothing is known. After a product by elements of tiles of
    different ones, it is that statement, and `at` holds them all.
    """

    dim: int
    at: tuple[Tag, ...]
    lost: ir.Stmt | None = None

    @property
    def places(self) -> tuple[tuple[object, ...], ...]:
        """The coordinates, to compare. With slopes: what moves differently is equal in one iteration only."""
        return tuple((t.symbol, t.outer, t.const, t.slopes) for t in self.at)


@dataclass(frozen=True, slots=True)
class Cover:
    """What has been contracted over dimension `dim`: disjoint intervals relative to an opaque `symbol`.

    `inner` is the instance of the outer loop in which it was accumulated ((-1, 0): none), `source` the operands that
    were multiplied, `text` the coordinate for messages. `fixed`: where they lie along dimensions that an index fixes;
    products at different ones, as of the taps of a convolution, are different contractions.
    """

    dim: int
    symbol: int
    outer: int
    intervals: tuple[Interval, ...]
    inner: tuple[int, int]
    text: str
    source: str = ""
    complete: bool = False
    fixed: tuple[Fixed, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What must be equal for two covers to be parts of one contraction."""
        return self.dim, self.symbol, self.outer, self.source, tuple((f.dim, f.places) for f in self.fixed)


@dataclass(frozen=True, slots=True)
class Value:
    """A tile: the tags of its axes, its contractions, and the token of a wgmma that may still be writing it.

    `reader`: the token of a wgmma that may still be reading its registers. `loaded`: the elements are those of a
    tensor, nothing computed. `neutral`: a constant, which agrees with everything. `source`: a tensor it comes from, for
    messages. `made`: for what a stage holds, the instance of the outer loop in which it was put there. `named`: the
    tags that expectations mention, by name (`named.py`).
    """

    axes: tuple[Axis, ...]
    covers: tuple[Cover, ...] = ()
    pending: int | None = None
    neutral: bool = False
    source: str = ""
    made: tuple[int, int] = (-1, 0)
    fixed: tuple[Fixed, ...] = ()
    loaded: bool = False
    reader: int | None = None
    named: Named = ()

    @property
    def is_timeless(self) -> bool:
        """True when the tile is the same in whatever iteration it is made: loaded as it is, from one fixed place."""
        tags = [a for a in self.axes if isinstance(a, Tag)] + [t for f in self.fixed for t in f.at]
        tags += [t.base for _, t in self.named if isinstance(t, Func)]
        return self.loaded and all(t.outer < 0 and not t.slopes for t in tags)


# A stage whose tile belongs to an iteration that no role is in any more.
OLD = Value((), source="old")


def constant_tile(rank: int) -> Value:
    """A tile of one constant."""
    return Value((None,) * rank, neutral=True)


def united(one: tuple[Fixed, ...], other: tuple[Fixed, ...]) -> tuple[Fixed, ...]:
    """Where the product of two tiles lies: at the coordinates of both."""
    result = {f.dim: f for f in one}
    for f in other:
        mine = result.get(f.dim)
        if mine is None:
            result[f.dim] = f
        elif mine.lost is None:
            more = tuple(t for t, place in zip(f.at, f.places, strict=True) if place not in mine.places)
            result[f.dim] = Fixed(f.dim, (*mine.at, *more), f.lost)
    return tuple(result[d] for d in sorted(result))


def agreeing(stmt: ir.Stmt, one: tuple[Fixed, ...], other: tuple[Fixed, ...]) -> tuple[Fixed, ...]:
    """Where the sum of two tiles lies: along each dimension at the coordinates of both if those are equal.

    It is lost if they differ; not forgotten if one tile lies wherever the other does, as a sum of products to which the
    first was added.
    """
    result = {f.dim: f for f in one}
    for f in other:
        mine = result.get(f.dim)
        if mine is None:
            result[f.dim] = f
        elif mine.lost is None and (f.lost is not None or set(mine.places) != set(f.places)):
            wider = max(mine, f, key=lambda fixed: len(fixed.at))
            within = {*mine.places, *f.places} == set(wider.places)
            result[f.dim] = _kept(Fixed(f.dim, wider.at if within else (), f.lost or stmt))
    return tuple(result[d] for d in sorted(result))


def multiplied(stmt: ir.Stmt, one: tuple[Fixed, ...], other: tuple[Fixed, ...]) -> tuple[Fixed, ...]:
    """Where the product of two tiles by elements lies: where both do. Lost, but not forgotten, if the places differ."""
    places = {f.dim: frozenset(f.places) for f in one}
    result: list[Fixed] = []
    for f in united(one, other):
        more = next((frozenset(g.places) for g in other if g.dim == f.dim), frozenset[object]())
        mine = places.get(f.dim, frozenset[object]())
        result.append(f if f.lost is not None or mine <= more or more <= mine else _kept(replace(f, lost=stmt)))
    return tuple(result)


def _kept(f: Fixed) -> Fixed:
    """What is remembered of a lost place: few coordinates, that no loop moves. Others would never come to an end."""
    return f if len(f.at) <= _MOST_KEPT and not any(t.slopes for t in f.at) else replace(f, at=())


def apart(one: tuple[Fixed, ...], other: tuple[Fixed, ...]) -> bool:
    """True when two tiles surely lie at different indices of a dimension, and stay there: they differ by constants."""
    mine = {f.dim: f for f in one}
    for f in other:
        pairs = [(t, u) for t in f.at for u in mine[f.dim].at] if f.dim in mine else []
        if pairs and all(
            (t.symbol, t.outer, t.slopes, u.slopes) == (u.symbol, u.outer, (), ()) and t.const != u.const
            for t, u in pairs
        ):
            return True
    return False


def elementwise(stmt: ir.Compute, args: Sequence[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
    """The tags of an elementwise operation on values of given shapes, broadcast to `shape`."""
    axes: list[Axis] = [None] * len(shape)
    covers: list[Cover] = []
    fixed: tuple[Fixed, ...] = ()
    together = multiplied if stmt.op in ("mul", "div") else agreeing
    for value, own in args:
        fixed = together(stmt, fixed, value.fixed)
        shift = len(shape) - len(own)
        for i, axis in enumerate(value.axes):
            at = i + shift
            if axis is None or own[i] != shape[at]:
                continue
            mine = axes[at]
            if mine is None:
                axes[at] = axis
            else:
                axes[at] = met(stmt, mine, axis)
        for cover in value.covers:
            _merge(covers, cover, stmt.op in ("add", "sub"))
    for at, axis in enumerate(axes):
        if (
            isinstance(axis, Tag)
            and shape[at] > 1
            and any(_one_for_all(v, own, axis, at, shape, args) for v, own in args)
        ):
            axes[at] = Lost(stmt, (axis.dim,))
    neutral = all(v.neutral for v, _ in args)
    source = next((v.source for v, _ in args if v.source), "")
    return Value(tuple(axes), tuple(covers), None, neutral, source, fixed=fixed)


def _one_for_all(
    value: Value,
    own: tuple[int, ...],
    axis: Tag,
    at: int,
    shape: tuple[int, ...],
    args: Sequence[tuple[Value, tuple[int, ...]]],
) -> bool:
    """Whether `value` brings what lies at one coordinate of a dimension to all those along an axis of it.

    As one weight for all rows of a tile. With an axis of its own along the dimension it does not, nor where the others
    lie at that coordinate, too, as a row of a square matrix does.
    """
    place = at - (len(shape) - len(own))
    here = value.axes[place] if place >= 0 else None
    if isinstance(here, Tag) and own[place] == 1 and here.dim == axis.dim:
        return True
    if any(isinstance(a, Tag) and a.dim == axis.dim for a in value.axes):
        return False
    held = [f for f in value.fixed if f.dim == axis.dim and f.lost is None]
    others = [f for v, _ in args if v is not value for f in v.fixed if f.dim == axis.dim]
    return any(f.places not in [o.places for o in others] for f in held)


def met(stmt: ir.Stmt, mine: Axis, axis: Axis) -> Axis:
    """What the axes of two operands come to. One that a table decides yields to a coordinate of another dimension."""
    if not isinstance(mine, Tag):
        return mine
    if not isinstance(axis, Tag):
        return axis
    if mine.dim != axis.dim and (mine.link or axis.link):
        return axis if mine.link else mine
    if mine.dim != axis.dim or not mine.same_coordinate(axis):
        return Lost(stmt, dims_of((mine, axis)))
    return axis if mine.link else mine


def _merge(covers: list[Cover], cover: Cover, sums: bool) -> None:
    """Add a contraction of another operand: a sum joins disjoint parts of one contraction."""
    for i, mine in enumerate(covers):
        if mine == cover:
            return
        same = mine.key == cover.key
        if sums and same and not any(overlap(mine, r.low, r.high) for r in cover.intervals):
            for r in cover.intervals:
                mine = joined(mine, r)
            covers[i] = mine
            return
    covers.append(cover)


def compute(stmt: ir.Compute, args: Sequence[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
    """The tags of a pure operation."""
    if stmt.op in ("full", "arange") or not args:
        return constant_tile(len(shape))
    value, _ = args[0]
    axes = value.axes
    if stmt.op in ir.REDUCTIONS:
        axis = 0 if stmt.axis is None else stmt.axis
        reduced = (*axes[:axis], *((None,) if stmt.keep else ()), *axes[axis + 1 :])
        return Value(reduced, value.covers, None, value.neutral, value.source, fixed=value.fixed)
    if stmt.op == "transpose":
        return Value(axes[::-1], value.covers, None, value.neutral, value.source, fixed=value.fixed)
    if stmt.op == "expand_dims":
        axis = 0 if stmt.axis is None else stmt.axis
        return Value(
            (*axes[:axis], None, *axes[axis:]), value.covers, None, value.neutral, value.source, fixed=value.fixed
        )
    if stmt.op == "convert_layout" or stmt.op in ir.SCANS:
        # The running result at an element stands for the elements up to it, and lies where the last of them did.
        return Value(axes, value.covers, None, value.neutral, value.source, fixed=value.fixed)
    if stmt.op in ir.ORDERS:
        # What stands at a place is decided by the values, so along the axis there is no coordinate to compare.
        axis = 0 if stmt.axis is None else stmt.axis
        return replace(value, axes=(*axes[:axis], None, *axes[axis + 1 :]), pending=None, loaded=False)
    if stmt.op in ir.ELEMENTWISE or stmt.op == "broadcast":
        return elementwise(stmt, args, shape)
    if stmt.op == "permute":
        return replace(value, axes=tuple(axes[i] for i in stmt.order), pending=None)
    if stmt.op == "half":
        return replace(
            value, axes=axes[:-1], pending=None, fixed=united(value.fixed, _chosen(axes[-1], stmt.axis or 0))
        )
    if stmt.op == "join":
        return _joined(stmt, args, shape)
    if stmt.op == "reshape":
        return _reshaped(stmt, value, args[0][1], shape)
    return _opaque(stmt, args, shape)


def _joined(stmt: ir.Compute, args: Sequence[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
    """Two tiles along a new axis: what lies at one coordinate of a dimension and at the next has an axis of it."""
    pair = elementwise(stmt, args, shape[:-1])
    (left, _), (right, _) = args
    last: Axis = None
    fixed = list(pair.fixed)
    for held in pair.fixed:
        if held.lost is not stmt:
            continue
        one, other = ([t for f in v.fixed if f.dim == held.dim for t in f.at] for v in (left, right))
        if len(one) == len(other) == 1 and last is None:
            fixed.remove(held)
            follows = replace(one[0], const=one[0].const + 1)
            same = follows.same_coordinate(other[0]) and one[0].slopes == other[0].slopes
            last = one[0] if same else Lost(stmt, (held.dim,))
    return replace(pair, axes=(*pair.axes, last), fixed=tuple(fixed))


def dims_of(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The dimensions that axes have, or had, a coordinate of."""
    found = [(a.dim,) if isinstance(a, Tag) else a.dims for a in axes if a is not None]
    return tuple(sorted({d for dims in found for d in dims}))


def _chosen(axis: Axis, index: int) -> tuple[Fixed, ...]:
    """Where the elements at one index of an axis lie; what is known of none of its elements is not known of one."""
    match axis:
        case Tag(dim=dim, const=const):
            return (Fixed(dim, (replace(axis, const=const + index, text=f"{axis.text} + {index}"),)),)
        case Lost(stmt=stmt, dims=dims):
            return tuple(Fixed(d, (), stmt) for d in dims)
        case None:
            return ()


def _reshaped(stmt: ir.Compute, value: Value, old: tuple[int, ...], new: tuple[int, ...]) -> Value:
    """Axes that are the same before and after keep their tags; where several became one or one several, they are lost.

    An axis of extent 1 that is gone fixes the coordinate.
    """
    sources, gone = reshaped_axes(old, new)
    axes: list[Axis] = []
    for source in sources:
        if source.kept is not None:
            axes.append(value.axes[source.kept])
        else:
            mixed = [value.axes[i] for i in source.mixed]
            axes.append(Lost(stmt, dims_of(mixed)) if any(a is not None for a in mixed) else None)
    fixed = value.fixed
    for i in gone:
        axis = value.axes[i]
        if isinstance(axis, Tag):
            fixed = united(fixed, (Fixed(axis.dim, (axis,)),))
    return replace(value, axes=tuple(axes), pending=None, fixed=fixed)


def _opaque(stmt: ir.Compute, args: Sequence[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
    """The result of an operation of which no rule says what it does to coordinates: none is known, and none is free."""
    covers = tuple(dict.fromkeys(c for v, _ in args for c in v.covers))
    fixed: tuple[Fixed, ...] = ()
    for v, _ in args:
        fixed = united(fixed, v.fixed)
    return Value((Lost(stmt),) * len(shape), covers, fixed=tuple(Fixed(f.dim, (), stmt) for f in fixed))


def overlap(cover: Cover, low: int, high: int) -> tuple[int, int] | None:
    """The part of `[low, high)` that is contracted already."""
    for i in cover.intervals:
        if i.low < high and low < i.high:
            return max(low, i.low), min(high, i.high)
    return None


def joined(cover: Cover, interval: Interval) -> Cover:
    """`cover` with an interval that is disjoint from it; touching intervals become one."""
    rows: list[Interval] = []
    for row in sorted((*cover.intervals, interval), key=lambda i: i.low):
        if rows and rows[-1].high == row.low:
            rows[-1] = Interval(rows[-1].low, rows[-1].low_slopes, row.high, row.high_slopes)
        else:
            rows.append(row)
    return replace(cover, intervals=tuple(rows))
