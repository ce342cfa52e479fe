"""Follows which coordinates values have been reduced over, through the statements of a plain kernel.

A reduction turns the stretch of its axis into a `Reduction` that its result carries, and everything computed from it. A
variable that a loop carries around and adds to gathers the stretches of all iterations; one that is only replaced keeps
the last. Statements without a rule give values of which nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.shapes import reshaped_axes
from tilewright.ir.types import TileType
from tilewright.source import Span

from ...context import KernelContext, Site
from ...integers import Binder, conjunction
from .axes import defined
from .meetings import fixed_apart, met, stands_still
from .stretches import Reduction, Scan, Stretch, last, lost, shifted, walked
from .summands import NONE, Summands, computed, loaded

_SELECTING = frozenset(("where", "lt", "le", "gt", "ge", "eq", "ne"))

Axes = tuple[Stretch | None, ...]
_Change = Callable[[Stretch], Stretch]


@dataclass(frozen=True, slots=True)
class Value:
    """A tile: the stretch along each axis, those of dimensions that an index fixes, and what it was reduced over.

    `carried`: variables of the loops around, from before the iteration, that went into it. `scans`: the running results
    in it. `selected`: it went through a comparison or a selection, which may have taken lanes out. `summands`: what it
    is a sum of, as far as that is known.
    """

    axes: Axes
    fixed: tuple[Stretch, ...] = ()
    reductions: frozenset[Reduction] = frozenset()
    carried: frozenset[str] = frozenset()
    scans: frozenset[Scan] = frozenset()
    selected: bool = False
    summands: Summands = NONE


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that is stored, and where."""

    site: Site
    tensor: str
    value: Value


@dataclass(frozen=True, slots=True)
class Quotient:
    """A reduced value that is divided by a scalar, over sizes and binders, or multiplied by one over that."""

    site: Site
    stmt: ir.Compute
    divisor: ex.Expr
    reductions: frozenset[Reduction]


Tiles = dict[str, Value]


@dataclass
class Reduced:
    """The stores of a plain kernel and its divisions of reduced values, in source order after `run`.

    `overhangs` are reductions of tiles in a loop that ends where a table says, which reach past that end. `turns` are
    what one iteration makes of a variable that a loop carries around. `twice` are additions of what was added before.
    """

    context: KernelContext
    stores: list[Stored] = field(default_factory=list[Stored])
    quotients: list[Quotient] = field(default_factory=list[Quotient])
    overhangs: list[tuple[Site, Reduction]] = field(default_factory=list[tuple[Site, Reduction]])
    turns: dict[str, Value] = field(default_factory=dict[str, Value])
    twice: dict[Span, tuple[ir.Compute, str]] = field(default_factory=dict[Span, tuple[ir.Compute, str]])
    _buffers: dict[str, frozenset[Reduction]] = field(default_factory=dict[str, frozenset[Reduction]])
    _staged: dict[str, Value] = field(default_factory=dict[str, Value])
    _sites: dict[int, Site] = field(default_factory=dict[int, Site])

    def run(self) -> Reduced:
        """Follow the whole kernel."""
        for site in self.context.sites:
            self._sites.setdefault(id(site.stmt), site)
        for stmt in ir.walk(self.context.kernel.body):
            if isinstance(stmt, ir.CpAsync | ir.TmaLoad):
                self._staged.setdefault(stmt.dst.buffer, self._placed(stmt, stmt.view))
        self._block(self.context.kernel.body, {})
        return self

    # ------------------------------------------------------------------------------------ statements

    def _block(self, block: ir.Block, tiles: Tiles) -> None:
        for stmt in block:
            self._statement(stmt, tiles)

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        match stmt:
            case ir.Load():
                tiles[stmt.dst] = self._placed(stmt, stmt.view)
            case ir.Compute():
                tiles[stmt.dst] = self._compute(stmt, tiles)
            case ir.Mma(dst=dst, a=a, b=b, acc=acc):
                tiles[dst] = _product(*(tiles.get(n) or Value((None, None)) for n in (a, b, acc)))
            case ir.Store(view=view, src=src) | ir.Atomic(view=view, src=src):
                self.stores.append(Stored(self._sites[id(stmt)], view.tensor, tiles.get(src) or Value(())))
            case ir.SharedStore(dst=dst, src=src):
                held = tiles.get(src)
                self._buffers[dst.buffer] = self._held(dst.buffer) | (held.reductions if held else frozenset())
            case ir.SharedLoad(dst=dst, src=src):
                tiles[dst] = replace(self._read(dst, src), reductions=self._held(src.buffer))
            case ir.TmaStore(view=view, src=src):
                held = Value((), reductions=self._held(src.buffer))
                self.stores.append(Stored(self._sites[id(stmt)], view.tensor, held))
            case ir.For(body=body):
                self._loop(body, self._binder(stmt), tiles)
            case ir.While():
                self._statement(stmt.counted, tiles)
            case ir.Programs(body=body):
                self._block(body, tiles)
            case ir.If(cond=cond, then=then, orelse=orelse):
                other = dict(tiles)
                self._block(then, tiles)
                self._block(orelse, other)
                for name, value in other.items():
                    if name in tiles and tiles[name] != value:
                        one = self._as_selected(stmt, cond, tiles[name])
                        value = _either(one, self._as_selected(stmt, ex.negate(cond), value))
                    tiles[name] = value
            case ir.Roles(roles=roles):
                for role in roles:
                    self._block(role.body, dict(tiles))
            case _:
                for name in defined((stmt,)):
                    tiles[name] = self._nothing(name)

    def _binder(self, loop: ir.For) -> Binder:
        """The symbol of a loop variable, from the surroundings of a statement in the loop."""
        site = self._sites[id(loop)]
        depth = len([b for b in site.binders if b.kind != "free"])
        for stmt in ir.walk(loop.body):
            inner = self._sites.get(id(stmt))
            if inner is not None:
                return inner.loops[depth]
        return Binder(loop.var, loop.var, "loop", site.value(loop.lo), site.value(loop.hi), loop.step, loop.span)

    def _held(self, buffer: str) -> frozenset[Reduction]:
        return self._buffers.get(buffer, frozenset())

    def _nothing(self, name: str) -> Value:
        kind = self.context.kernel.types.get(name)
        return Value((None,) * len(kind.shape) if isinstance(kind, TileType) else ())

    def _read(self, dst: str, src: ir.BufRef) -> Value:
        """A stage that was loaded by hand: which tile it holds is not followed."""
        made = self._nothing(dst)
        axes = self._staged.get(src.buffer, made).axes[:: -1 if src.transposed else 1]
        if len(axes) != len(made.axes):
            return made
        why = "which tile the stage in shared memory holds is not followed"
        return replace(made, axes=tuple(None if a is None else replace(a, start=ex.Int(0), lost=why) for a in axes))

    def _loop(self, body: ir.Block, binder: Binder, tiles: Tiles) -> None:
        names = defined(body)
        before = {n: tiles[n] for n in names if n in tiles}
        start = {n: Value((None,) * len(v.axes), carried=frozenset((n,))) for n, v in before.items()}
        begin = len(self.stores), len(self.quotients), len(self.overhangs)
        inside = tiles | start
        self._block(body, inside)
        # What an iteration replaces, the next one finds: a tile that is loaded ahead.
        ahead = {n: self._ahead(before[n], inside[n], binder) for n in before if n not in inside[n].carried}
        if any(any(v.axes) or v.reductions for v in ahead.values()):
            for found, length in zip((self.stores, self.quotients, self.overhangs), begin, strict=True):
                del found[length:]
            inside = tiles | start | {n: replace(v, carried=start[n].carried) for n, v in ahead.items()}
            self._block(body, inside)
        for name in names & inside.keys():
            made = inside[name]
            if name in made.carried:
                self.turns[name] = made
                kind = self.context.kernel.types.get(name)
                made = self._gathered(made, binder, kind.shape if isinstance(kind, TileType) else ())
                made = replace(made, reductions=made.reductions | before[name].reductions)
            else:
                made = _mapped(made, lambda s: last(s, binder))
            # What was carried into this loop from one around it is still carried by that one.
            outer = frozenset(c for n in made.carried & before.keys() for c in before[n].carried)
            tiles[name] = replace(made, carried=(made.carried - before.keys()) | outer)

    def _ahead(self, before: Value, made: Value, binder: Binder) -> Value:
        """What a variable that every iteration replaces holds as one begins."""
        why = f"what the iteration before leaves to the next one of {binder.label} is not followed"

        def one(old: Stretch | None, new: Stretch | None) -> Stretch | None:
            if new is not None and old is not None:
                past = shifted(new, binder)
                first: dict[str, ex.Expr] = {binder.name: binder.lo}
                if (ex.substitute(past.start, first), past.length) == (old.start, old.length) and past.dim == old.dim:
                    return past
            either = new or old
            return None if either is None else lost(either, binder, why)

        axes = tuple(map(one, before.axes, made.axes)) if len(before.axes) == len(made.axes) else made.axes
        reductions = frozenset(replace(r, stretch=lost(r.stretch, binder, why)) for r in made.reductions)
        return Value(axes, (), reductions)

    def _gathered(self, value: Value, binder: Binder, shape: Sequence[int]) -> Value:
        """What a sum holds after all iterations: along an axis of one element, and a fixed index, it was reduced."""
        reductions: set[Reduction] = set()
        axes: list[Stretch | None] = []
        stmt = self._of(binder)
        for r in value.reductions:
            reductions |= {replace(r, stretch=s) for s in self._walked(r.stretch, binder)}
        for axis, extent in zip(value.axes, shape, strict=False):
            whole = None if axis is None else walked(axis, binder)
            if axis is not None and whole != axis and extent == 1:
                reductions |= {Reduction("sum", s, stmt) for s in self._walked(axis, binder)}
                whole = None
            axes.append(whole)
        fixed: list[Stretch] = []
        for one in value.fixed:
            if binder.name not in one.names:
                fixed.append(one)
                moving = [s for s in (*value.axes, *value.fixed, *(r.stretch for r in value.reductions)) if s]
                if still := stands_still(one, binder, moving):
                    reductions.add(Reduction("sum", replace(one, met=still), stmt))
            else:
                reductions |= {Reduction("sum", s, stmt) for s in self._walked(one, binder)}
        return replace(value, axes=tuple(axes), fixed=tuple(fixed), reductions=frozenset(reductions))

    def _walked(self, stretch: Stretch, binder: Binder) -> Iterator[Stretch]:
        """What the iterations cover; where a table says the place, they cover the part of the table that they read."""
        whole = walked(stretch, binder)
        found = [i for i in ex.items(stretch.start) if binder.name in ex.names(i)] if whole.lost else []
        if not found or stretch.lost:
            yield whole
        for item in found:
            extents = self.context.kernel.param(item.tensor).type.shape
            for axis, (extent, index) in enumerate(zip(extents, item.index, strict=True)):
                if binder.name in ex.names(index):
                    yield walked(Stretch(extent, index, ex.Int(1), item.tensor, axis), binder)

    def _of(self, binder: Binder) -> ir.Stmt:
        return next(s.stmt for s in self.context.sites if s.stmt.span == binder.span and isinstance(s.stmt, ir.For))

    # ------------------------------------------------------------------------------------ values

    def _placed(self, stmt: ir.Load | ir.CpAsync | ir.TmaLoad, view: ir.View) -> Value:
        site = self._sites[id(stmt)]
        extents = self.context.kernel.param(view.tensor).type.shape
        if len(view.origin) != len(view.shape) or any(isinstance(o, ir.TileRef) for o in view.origin):
            return Value((None,) * (len(view.shape) - view.lead))
        along = tuple(
            Stretch(extent, site.value(origin), ex.Int(length), view.tensor, axis)
            for axis, (extent, origin, length) in enumerate(zip(extents, view.origin, view.shape, strict=True))
        )
        return Value(along[view.lead :], along[: view.lead], summands=loaded(view.tensor, [s.start for s in along]))

    def _compute(self, stmt: ir.Compute, tiles: Tiles) -> Value:
        values = [tiles.get(a.name) or self._nothing(a.name) for a in stmt.args if isinstance(a, ir.TileRef)]
        summands, again = computed(stmt, [(v.summands, bool(v.carried)) for v in values])
        if again:
            self.twice.setdefault(stmt.span, (stmt, again))
        return replace(self._made(stmt, tiles), summands=summands)

    def _made(self, stmt: ir.Compute, tiles: Tiles) -> Value:
        kind = self.context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        rank = len(kind.shape)
        names = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
        values = [tiles.get(n) or self._nothing(n) for n in names]
        shapes = [t.shape if isinstance(t := self.context.kernel.types[n], TileType) else () for n in names]
        if not values:
            return Value((None,) * rank)
        first, old = values[0], shapes[0]
        axes = list(first.axes)
        if stmt.op in ir.REDUCTIONS and stmt.axis is not None:
            made = _reduction(stmt, first, stmt.axis % len(old))
            self._overhanging(stmt, first, made)
            return made
        if (divisor := _divisor(stmt)) is not None:
            site = self._sites[id(stmt)]
            self.quotients.append(Quotient(site, stmt, site.value(divisor), first.reductions))
        match stmt.op:
            case "transpose":
                return replace(first, axes=first.axes[::-1])
            case "permute":
                return replace(first, axes=tuple(axes[i] for i in stmt.order))
            case "expand_dims":
                axes.insert(stmt.axis or 0, None)
                return replace(first, axes=tuple(axes))
            case "convert_layout":
                return first
            case "reshape":
                sources, gone = reshaped_axes(old, kind.shape)
                kept = tuple(None if s.kept is None else axes[s.kept] for s in sources)
                fixed = tuple(a for i in gone if (a := axes[i]) is not None)
                return replace(first, axes=kept, fixed=(*first.fixed, *fixed))
            case "cumsum" | "cumprod" | "cummax" | "cummin" if stmt.axis is not None:
                along = axes[stmt.axis % len(old)]
                return first if along is None else replace(first, scans=first.scans | {Scan(along, stmt)})
            case op if op in ir.ELEMENTWISE or op == "broadcast":
                made = self._elementwise(stmt, list(zip(values, shapes, strict=True)), kind.shape)
                return replace(made, selected=True) if op in _SELECTING else made
            case _:
                return replace(_united((None,) * rank, values), fixed=())

    def _elementwise(self, stmt: ir.Stmt, args: list[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
        axes: list[Stretch | None] = [None] * len(shape)
        for value, own in args:
            shift = len(shape) - len(own)
            for i, axis in enumerate(value.axes):
                if axis is None or own[i] != shape[i + shift]:
                    continue
                mine = axes[i + shift]
                axes[i + shift] = axis if mine is None else met(self.context, self._sites[id(stmt)], mine, axis)
        made = _united(tuple(axes), [v for v, _ in args])
        apart = fixed_apart([v.fixed for v, _ in args])
        return replace(made, fixed=tuple(replace(f, met=f.met or apart.get(f, "")) for f in made.fixed))

    def _as_selected(self, branch: ir.If, cond: ex.Expr, value: Value) -> Value:
        """The value at the end of a branch, where nothing needs to be taken out of it if that ends within its loops."""
        site = self._sites[id(branch)]
        ends = [claim for s in value.axes if s is not None for claim in _ends(site, s)]
        inside = site.question(conjunction(ends))
        inside = replace(inside, facts=(*inside.facts, site.value(cond)))
        shown = bool(ends) and self.context.decider.proves(inside)
        return replace(value, selected=True) if shown else value

    def _overhanging(self, stmt: ir.Compute, value: Value, made: Value) -> None:
        """Note a reduction of tiles up to where a table says: the last may hold what belongs to whoever comes next."""
        site = self._sites[id(stmt)]
        for reduction in made.reductions - value.reductions if not value.selected else ():
            stretch = reduction.stretch
            for inside in _ends(site, stretch):
                if stretch.length != ex.Int(1) and not self.context.decider.proves(site.question(inside)):
                    self.overhangs.append((site, reduction))


def _ends(site: Site, stretch: Stretch) -> Iterator[ex.Expr]:
    """For each loop that moves a stretch and that a table ends: that the stretch ends no later."""
    for binder in site.loops:
        if binder.name in ex.names(stretch.start) and any(ex.items(binder.hi)):
            yield ex.Bin("<=", stretch.end, ex.substitute(stretch.start, {binder.name: binder.hi}))


def _divisor(stmt: ir.Compute) -> ex.Expr | None:
    """What the first operand is divided by, a scalar; a factor of one over a whole number divides by that."""
    if stmt.op not in ("div", "mul") or len(stmt.args) != 2:
        return None
    number = stmt.args[1]
    if stmt.op == "div" and isinstance(number, ex.Int | ex.Size | ex.Bin | ex.Var):
        return number
    if isinstance(number, float) and 0.0 < abs(number) < 2.0**24:
        number = number if stmt.op == "div" else 1.0 / number
        whole = round(number) if number < 2.0**24 else 0
        return ex.Int(whole) if whole > 1 and abs(number - whole) < 1e-6 * whole else None
    return None


def _reduction(stmt: ir.Compute, value: Value, axis: int) -> Value:
    stretch = value.axes[axis]
    rest = (*value.axes[:axis], *((None,) if stmt.keep else ()), *value.axes[axis + 1 :])
    more = frozenset[Reduction]() if stretch is None else frozenset((Reduction(stmt.op, stretch, stmt),))
    return replace(value, axes=rest, reductions=value.reductions | more)


def _product(a: Value, b: Value, acc: Value) -> Value:
    """`a @ b + acc`: what the product itself contracts is the subject of the asynchronous engine."""
    axes = (a.axes[0] if len(a.axes) == 2 else None, b.axes[1] if len(b.axes) == 2 else None)
    return _united(axes, [a, b, acc], fixed=False)


def _united(axes: Axes, values: Iterable[Value], *, fixed: bool = True) -> Value:
    """A value with these axes, computed from all of `values`."""
    values = list(values)
    return Value(
        axes,
        tuple(dict.fromkeys(f for v in values for f in v.fixed)) if fixed else (),
        frozenset(r for v in values for r in v.reductions),
        frozenset(c for v in values for c in v.carried),
        frozenset(s for v in values for s in v.scans),
        any(v.selected for v in values),
    )


def _either(one: Value, other: Value) -> Value:
    """What one branch or the other made; a reduction that only one has done is done sometimes."""
    if one == other:
        return one
    axes = tuple(a if a == b else None for a, b in zip(one.axes, other.axes, strict=False))
    both = one.reductions & other.reductions
    some = (one.reductions | other.reductions) - both
    sometimes = frozenset(replace(r, stretch=replace(r.stretch, sometimes=True)) for r in some)
    fixed = tuple(f for f in one.fixed if f in other.fixed)
    scans, selected = one.scans | other.scans, one.selected and other.selected
    summands = one.summands & other.summands
    return Value(axes, fixed, both | sometimes, one.carried | other.carried, scans, selected, summands)


def _mapped(value: Value, change: _Change) -> Value:
    return replace(
        value,
        axes=tuple(None if a is None else change(a) for a in value.axes),
        fixed=tuple(map(change, value.fixed)),
        reductions=frozenset(replace(r, stretch=change(r.stretch)) for r in value.reductions),
        scans=frozenset(replace(s, stretch=change(s.stretch)) for s in value.scans),
    )
