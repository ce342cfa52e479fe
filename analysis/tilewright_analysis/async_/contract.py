"""Alignment, completeness and placement: the rules for coordinate tags at products and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import floor
from operator import is_

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir import tagging
from tilewright.ir.types import TileType
from tilewright_analysis.async_ import blocks, forms, named, said
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.ends import Ends
from tilewright_analysis.async_.expectations import Expectations, Undecided
from tilewright_analysis.async_.flow import contractions
from tilewright_analysis.async_.forms import Facts
from tilewright_analysis.async_.motion import Motion
from tilewright_analysis.async_.parts import completed, whole
from tilewright_analysis.async_.reporter import Reporter
from tilewright_analysis.async_.state import INF, Instance, Process, State
from tilewright_analysis.async_.tag_findings import TagFindings
from tilewright_analysis.async_.tags import (
    Axis,
    Cover,
    Fixed,
    Func,
    Interval,
    Lost,
    Named,
    Slopes,
    Tag,
    Value,
    agreeing,
    apart,
    compute,
    constant_tile,
    joined,
    met,
    overlap,
    united,
)
from tilewright_analysis.async_.unpacked import doubled, unpacked
from tilewright_analysis.async_.words import sid

_MOST_PLACES = 32  # indices of operands that are told apart in one sum of products; a convolution has some ten
Find = Callable[[State, Process, str | c.Place], Value | None]


class Tags:
    """The tag rules of one program."""

    def __init__(self, program: c.Program, report: Reporter) -> None:
        self.program = program
        self.report = TagFindings(report)
        self.motion = Motion(program)
        self.contractions = contractions(program)
        self.outer = {o.outer for o in program.oracles} | {i for i, o in enumerate(program.oracles) if o.is_programs}
        self.facts = Facts.of(program.kernel.assumptions)
        self.unpacked = unpacked(program.kernel)
        self.expectations = Expectations(program, self.facts)
        self.ends: Ends = {}

    def unknown(self, rank: int) -> Value:
        """A value about which nothing is claimed, after its absence has been reported."""
        return constant_tile(rank)

    def depth(self, operand: str) -> int:
        """Length of the contraction of an operand in registers."""
        kind = self.program.kernel.types[operand]
        return kind.shape[-1] if isinstance(kind, TileType) else 0

    def made(self, p: Process, value: Value) -> Value:
        """`value` as it is put into memory: it belongs to the iteration of the outer loop in which this is."""
        return replace(value, made=self._around(p))

    def tag(self, p: Process, dim: int, at: c.Coordinate) -> Tag:
        """The tag of an axis that starts at a coordinate."""
        slopes: Slopes = tuple((o, self._outer(p, o), factor) for o, factor in at.slopes)
        return Tag(dim, at.symbol, p.outer if at.outer else -1, int(at.value(p.env)), slopes, at.text)

    def _outer(self, p: Process, oracle: int) -> int:
        return p.outer if self.program.oracles[oracle].outer is not None else 0

    def agree(self, s: State, p: Process, o: c.Instr, code: str, a: Tag, b: Tag) -> bool:
        """True when two tags are the same coordinate. Says so if they may be the same in this iteration only."""
        if not a.same_coordinate(b):
            return False
        if not self.motion.rigid(s, a.slopes, b.slopes):
            self.report.coincidence(p, o, code, a, b)
        return True

    def starts_at(self, s: State, p: Process, axis: Axis, at: c.Coordinate) -> bool:
        """True when an axis starts at a coordinate, in this state and all others of its normal form."""
        if not isinstance(axis, Tag):
            return False
        want = self.tag(p, axis.dim, at)
        if not axis.same_coordinate(want):
            return False
        known = not want.slopes and self.motion.early(axis) is not None
        return known or self.motion.rigid(s, axis.slopes, want.slopes)

    def gathered(self, p: Process, o: c.Gather | c.CpAsync) -> Value:
        """The tile of a view, or of single elements: where a table decides, nothing is claimed."""
        known = self.loaded(p, o.box)
        if o.spread is None:
            return known
        places = self.through(p, o.spread)
        axes = [place if by_table else Lost(o.stmt) for place, by_table in zip(places, o.spread.by_table, strict=True)]
        for axis, tag in zip(o.spread.lines, known.axes, strict=True):
            axes[axis] = tag
        return replace(known, axes=tuple(axes))

    def through(self, p: Process, spread: c.Spread) -> list[Axis]:
        """Where the elements of index tensors lie that decide the axes of a tile, along each; None: not known."""
        rank = len(spread.by_table)
        found: list[Axis] = [None] * rank
        for name in spread.tables:
            value = p.tiles.get(name)
            for axis, tag in enumerate(value.axes, rank - len(value.axes)) if value is not None else ():
                if isinstance(tag, Tag) and spread.by_table[axis]:
                    other = found[axis]
                    alike = not isinstance(other, Tag) or (other.dim == tag.dim and other.same_coordinate(tag))
                    found[axis] = replace(tag, link=True) if alike else Lost(p.code[p.pc].stmt)
        return [None if isinstance(axis, Lost) else axis for axis in found]

    def loaded(self, p: Process, box: c.Box) -> Value:
        """The tile of a view."""
        axes: tuple[Axis, ...] = tuple(
            self.tag(p, d, at) if at.lost is None else Lost(at.lost, (d,))
            for d, at in zip(box.dims, box.origin, strict=True)
        )
        fixed = united((), tuple(
            Fixed(d, (self.tag(p, d, at),) if at.lost is None else (), at.lost) for d, at in box.fixed
        ))  # fmt: skip
        own = {d for d, _ in box.coordinates}
        links = (Fixed(d, (replace(self.tag(p, d, at), link=True),)) for d, at in box.links if d not in own)
        fixed = united(fixed, tuple(links))
        moving = (Fixed(d, (Tag(d, symbol, -1, 0, (), text, link=True),)) for d, symbol, text in box.moving)
        fixed = united(fixed, tuple(moving))
        named = self._coordinates(p, box) if self.program.tracked else ()
        return Value(axes, source=box.tensor, made=self._around(p), fixed=fixed, loaded=True, named=named)

    def _coordinates(self, p: Process, box: c.Box) -> Named:
        """The coordinates of a view under the names of sizes, where a size stands for one dimension only."""
        dims = [dim for dim, _ in box.coordinates]
        found: dict[str, Func | Lost] = {}
        for axis, (dim, at) in enumerate(box.coordinates):
            extent = forms.to_expr(self.program.dims[dim])
            if isinstance(extent, ex.Size) and extent.name in self.program.tracked and dims.count(dim) == 1:
                own = axis - len(box.fixed)
                element = tagging.parameter(own) if own >= 0 else ex.Int(0)
                found[extent.name] = Func(self.tag(p, -1, at), element) if at.lost is None else Lost(at.lost)
        return named.named(found)

    # ------------------------------------------------------------------------------------------- products

    def product(
        self, s: State, p: Process, o: c.Instr, a: Value, b: Value, acc: Value | None, depth: int,
        token: int | None,
    ) -> Value:  # fmt: skip
        """`a @ b + acc`: the contracted axes must carry equal coordinates, the accumulator those of the product."""
        rows, left = a.axes if len(a.axes) == 2 else (None, None)
        right, columns = b.axes if len(b.axes) == 2 else (None, None)
        covers = acc.covers if acc is not None else ()
        axes = (rows, columns)
        # Along what is contracted, which elements of tables the operands were taken by says nothing.
        left, right = (None if isinstance(side, Tag) and side.link else side for side in (left, right))
        for name, side in (("left", left), ("right", right)):
            if isinstance(side, Lost):
                self.report.lost("TW101", sid(o), p, o, side, f"the {name} operand")
        if isinstance(left, Tag) and isinstance(right, Tag):
            if left.dim != right.dim and (turned := self.motion.turned(s, rows, left, right, columns)):
                self.report.turned_operand(s, p, o, a, b, left, right, turned)
                # What follows from it would be said again at the accumulator and the store.
                done = tuple(completed(Cover(d, 0, -1, (), (-1, 0), "")) for d in (left.dim, right.dim))
                return replace(self.unknown(2), neutral=False, covers=done, pending=token)
            if left.dim != right.dim:
                self.report.other_dimension(s, p, o, a, b, left, right)
            elif not self.agree(s, p, o, "TW101", left, right):
                self.report.misaligned(s, p, o, a, b, left, right)
        along = left if isinstance(left, Tag) else right
        if acc is not None:
            axes = tuple(_linked(o.stmt, mine, held) for mine, held in zip(axes, acc.axes, strict=True))
            for mine, held in zip(axes, acc.axes, strict=True):
                if isinstance(held, Tag) and isinstance(mine, Tag) and not held.link and not mine.link:
                    if held.dim != mine.dim or not self.agree(s, p, o, "TW101", held, mine):
                        self.report.other_tile(s, p, o, held, mine)
                elif isinstance(held, Lost):
                    self.report.lost("TW101", sid(o), p, o, held, "the accumulator")
        fixed = united(a.fixed, b.fixed)
        if isinstance(along, Tag):
            along = blocks.counted(self.program, s, along, self._around(p))
            # An index that moves along with the contraction, as that of a scale for each group, is one of its parts.
            loops = {way[:2] for way in along.slopes}
            own = (replace(f, at=tuple(t for t in f.at if not t.link)) for f in fixed if not _is_link(f))
            at = tuple(f for f in own if not all(any(w[:2] in loops for w in t.slopes) for t in f.at) or not f.at)
            start = Cover(along.dim, along.symbol, along.outer, (), self._around(p), along.text,
                          f"{a.source} @ {b.source}", fixed=at)  # fmt: skip
            covers = self._contracted(s, p, o, covers, along, depth, start)
        tags: Named = ()
        if self.program.tracked:
            assert isinstance(o, c.Wgmma | c.Mma | c.TensorProduct)
            shapes = self.matrix(o.a), self.matrix(o.b)
            held = acc.named if acc is not None else ()
            tags = named.product(o.stmt, a.named, b.named, held, shapes)
        return Value(
            axes, covers, token, fixed=agreeing(o.stmt, acc.fixed, fixed) if acc is not None else fixed, named=tags
        )  # fmt: skip

    def _contracted(
        self, s: State, p: Process, o: c.Instr, covers: tuple[Cover, ...], along: Tag, depth: int, start: Cover
    ) -> tuple[Cover, ...]:
        low, high = along.const, along.const + depth
        if along.symbol == 0 and low < 0:
            self.report.negative(p, o, along)
            return covers
        part = Interval(low, along.slopes, high, along.slopes)
        for i, cover in enumerate(covers):
            if cover.key != start.key:
                continue
            end = cover.intervals[-1] if cover.intervals else None
            if end is not None and not self.motion.rigid(s, end.high_slopes, along.slopes):
                self.report.negative(p, o, along)
                return covers
            if cover.complete or (end is not None and low < end.high):
                twice = (low, high) if cover.complete else overlap(cover, low, high)
                if twice is None:
                    self.report.negative(p, o, along)
                elif twice[0] < self.greatest(s, along.dim, along.slopes, self._around(p)):
                    self.report.twice(s, p, o, along, twice)
                return covers
            return (*covers[:i], whole(self.program, joined(cover, part), along), *covers[i + 1 :])
        others = [v for v in covers if (v.dim, v.source) == (start.dim, start.source) and v.key[4:] != start.key[4:]]
        if len(others) >= _MOST_PLACES or not all(apart(v.fixed, start.fixed) for v in others):
            # Kept apart they may be without end, or be one and the same at some sizes; merged, nothing would be known.
            self.report.summed(p, o, along)
            return tuple(completed(v) if v in others else v for v in covers)
        return (*covers, whole(self.program, joined(start, part), along))

    def compute(self, s: State, p: Process, o: c.Compute, args: list[tuple[Value, tuple[int, ...]]]) -> Value:
        """The tags of a pure operation."""
        if o.op.op in ir.ELEMENTWISE:
            args = self.motion.operands(s, o.op, args, len(o.shape))
            if o.op.op in ("add", "sub") and (cover := self.motion.sums(s, args)) is not None:
                self.report.unordered(p, o, cover)
        value = compute(o.op, args, o.shape)
        if o.op.op == "reshape" and o.reads[0] in self.unpacked and o.shape[:-1] == args[0][1][:-2]:
            nibbles = doubled(self.program, self.facts, args[0][0].axes[-2])
            value = replace(value, axes=(*value.axes[:-1], value.axes[-1] if nibbles is None else nibbles))
        if self.program.tracked:
            value = replace(value, named=named.compute(o.op, [(v.named, shape) for v, shape in args], o.shape))
        return self.closed(s, p, o, value) if value.covers else value

    def matrix(self, operand: c.Place | str) -> tuple[int, int]:
        """The shape of an operand of a product."""
        kind = self.program.kernel.types[operand] if isinstance(operand, str) else operand
        assert isinstance(kind, TileType | c.Place)
        rows, columns = kind.shape
        return rows, columns

    # ------------------------------------------------------------------------------------------- statements about tags

    def claimed(self, value: Value, displaced: frozenset[str]) -> Value:
        """`value` with the coordinates that its tags claim along axes that have none, or a `displaced` one."""
        axes = list(value.axes)
        for name, tag in value.named:
            size = forms.atom(ex.Size(name))
            if isinstance(tag, Lost) or size not in self.program.dims:
                continue
            dim = self.program.dims.index(size)
            for i, axis in enumerate(axes):
                open_ = axis.link or (axis.dim == dim and name in displaced) if isinstance(axis, Tag) else True
                if open_ and tag.element == tagging.parameter(i):
                    axes[i] = replace(tag.base, dim=dim)
        return replace(value, axes=tuple(axes))

    def mentioned(self, s: State, p: Process, o: said.OverElements, find: Find) -> list[Func | Lost | None]:
        """For each mention of a statement the tag that is there; None: there is none."""
        found: list[Func | Lost | None] = []
        for use, place in zip(o.about.uses, o.places, strict=True):
            value = find(s, p, place)
            found.append(dict(value.named).get(use.tag) if value is not None else None)
        return found

    def expected(self, s: State, p: Process, o: said.Expectation, mentions: list[Func | Lost | None]) -> None:
        """The conditions of an expectation hold for all elements."""
        for cond, written in o.conditions:
            if isinstance(cond, str):
                self.report.open_expectation(p, o, cond)
                continue
            try:
                broken = self.expectations.broken(s, p, o, cond, written, mentions)
            except Undecided as error:
                self.report.open_expectation(p, o, error.missing, error.related, known=error.known)
                continue
            if broken is not None:
                self.report.broken_expectation(s, p, o, broken)

    def _around(self, p: Process) -> Instance:
        """The loop around a process in whose iterations trip counts differ, and its position there."""
        for loop in p.role.loops:
            if loop.oracle is not None and loop.oracle in self.outer and loop.start < p.pc < loop.end:
                return loop.oracle, p.outer
        return -1, 0

    # ------------------------------------------------------------------------------------------- completeness

    def greatest(self, s: State, dim: int, slopes: Slopes, inner: Instance) -> float:
        """The greatest extent of a dimension that the trip counts decided so far in an outer iteration allow.

        For comparison with a coordinate that moves like `slopes`; infinite where nothing may be compared with it.
        """
        along = self.motion.counts(s, dim, slopes, inner)
        if along is None:
            return INF
        extent = self.program.dims[dim]
        # A moving coordinate is compared with what moves along, not with constants, unless its position is known.
        fixed = not slopes or s.exact
        high = self.facts.bounds(extent)[1] if fixed else INF
        counts: dict[int, float] = {}
        parts: dict[int, blocks.Part] = {}
        for i, oracle in enumerate(self.program.oracles):
            found = None if oracle.is_programs else blocks.part_of(extent, oracle.trip)
            if found is None or (oracle.outer is not None and oracle.outer != inner[0]):
                continue
            at = (i, inner[1] if oracle.outer is not None else 0)
            most = s.oracles.get(at, (oracle.minimum, oracle.maximum))[1]
            if i not in along and most >= self.program.limits[i]:
                most = oracle.maximum
            parts[i], counts[i] = found, most
            if found.kind == "all" and (fixed or i in along) and most < INF:
                # ceil((factor * (extent - e) + r) / step) = N  bounds the extent.
                form, factor = oracle.trip.form, oracle.trip.step / found.length
                shift = form.const - extent.const * factor
                high = min(high, float(floor((int(most) * oracle.trip.step - shift) / factor)))
        return min(high, blocks.greatest(parts, counts, frozenset(parts) if fixed else along))

    def _empty(self, s: State, dim: int, p: Process) -> bool:
        return self.greatest(s, dim, (), self._around(p)) <= 0

    def complete(self, s: State, cover: Cover) -> bool:
        """True when all of the dimension has been contracted."""
        if cover.complete:
            return True
        if cover.symbol != 0 or len(cover.intervals) > 1:
            return False
        slopes = cover.intervals[-1].high_slopes if cover.intervals else ()
        most = self.greatest(s, cover.dim, slopes, cover.inner)
        if not cover.intervals:
            return most <= 0
        return cover.intervals[0].low <= 0 and cover.intervals[0].high >= most

    def closed(self, s: State, p: Process, o: c.Instr, value: Value) -> Value:
        """`value` with the contractions that are complete marked so, which makes them independent of the iteration."""
        covers = [completed(v) if not v.complete and self.complete(s, v) else v for v in value.covers]
        missing = self._missing(value, p, o)
        if any(self._empty(s, dim, p) for dim in missing):
            covers += [completed(Cover(dim, 0, -1, (), (-1, 0), "")) for dim in missing]
        made = self._around(p)
        if made == value.made and all(map(is_, covers, value.covers)) and len(covers) == len(value.covers):
            return value
        return replace(value, covers=tuple(covers), made=made)

    def _missing(self, value: Value, p: Process, o: c.Instr) -> list[int]:
        held = {v.dim for v in value.covers}
        return sorted(self.contractions.needs.get((p.role.name, o.number), frozenset()) - held)


def _is_link(f: Fixed) -> bool:
    """True where tables alone say so, and it is not lost."""
    return bool(f.at) and all(t.link for t in f.at)


def _linked(stmt: ir.Stmt, mine: Axis, held: Axis) -> Axis:
    """The axis of a product whose accumulator has one, if a table decides either."""
    if isinstance(mine, Tag) and isinstance(held, Tag) and (mine.link or held.link):
        return met(stmt, held, mine)
    return mine
