"""Follows which coordinates values have been reduced over, through the statements of a plain kernel.

A reduction turns the stretch of its axis into a `Reduction` that its result carries, and everything computed from it. A
variable that a loop carries around and adds to gathers the stretches of all iterations; one that is only replaced keeps
the last. Statements without a rule give values of which nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.shapes import reshaped_axes
from tilewright.ir.types import TileType

from ...context import KernelContext, Site
from ...integers import Binder
from .axes import defined
from .stretches import Reduction, Stretch, last, walked

Axes = tuple[Stretch | None, ...]
_Change = Callable[[Stretch], Stretch]


@dataclass(frozen=True, slots=True)
class Value:
    """A tile: the stretch along each axis, those of dimensions that an index fixes, and what it was reduced over.

    `carried`: variables of the loops around, from before the iteration, that went into it.
    """

    axes: Axes
    fixed: tuple[Stretch, ...] = ()
    reductions: frozenset[Reduction] = frozenset()
    carried: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that is stored, and where."""

    site: Site
    tensor: str
    value: Value


@dataclass(frozen=True, slots=True)
class Quotient:
    """A reduced value that is divided by a scalar, over sizes and binders."""

    site: Site
    stmt: ir.Compute
    divisor: ex.Expr
    reductions: frozenset[Reduction]


Tiles = dict[str, Value]


@dataclass
class Reduced:
    """The stores of a plain kernel and its divisions of reduced values, in source order after `run`."""

    context: KernelContext
    stores: list[Stored] = field(default_factory=list[Stored])
    quotients: list[Quotient] = field(default_factory=list[Quotient])
    _buffers: dict[str, frozenset[Reduction]] = field(default_factory=dict[str, frozenset[Reduction]])
    _sites: dict[int, Site] = field(default_factory=dict[int, Site])

    def run(self) -> Reduced:
        """Follow the whole kernel."""
        for site in self.context.sites:
            self._sites.setdefault(id(site.stmt), site)
        self._block(self.context.kernel.body, {})
        return self

    # ------------------------------------------------------------------------------------ statements

    def _block(self, block: ir.Block, tiles: Tiles) -> None:
        for stmt in block:
            self._statement(stmt, tiles)

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        match stmt:
            case ir.Load():
                tiles[stmt.dst] = self._loaded(stmt)
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
                tiles[dst] = replace(self._nothing(dst), reductions=self._held(src.buffer))
            case ir.TmaStore(view=view, src=src):
                held = Value((), reductions=self._held(src.buffer))
                self.stores.append(Stored(self._sites[id(stmt)], view.tensor, held))
            case ir.For(body=body):
                self._loop(body, self._binder(stmt), tiles)
            case ir.While():
                self._statement(stmt.counted, tiles)
            case ir.Programs(body=body):
                self._block(body, tiles)
            case ir.If(then=then, orelse=orelse):
                other = dict(tiles)
                self._block(then, tiles)
                self._block(orelse, other)
                for name, value in other.items():
                    tiles[name] = _either(tiles[name], value) if name in tiles else value
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

    def _loop(self, body: ir.Block, binder: Binder, tiles: Tiles) -> None:
        names = defined(body)
        before = {n: tiles[n] for n in names if n in tiles}
        inside = dict(tiles)
        for name, value in before.items():
            inside[name] = Value((None,) * len(value.axes), carried=frozenset((name,)))
        self._block(body, inside)
        for name in names & inside.keys():
            made = inside[name]
            if name in made.carried:
                kind = self.context.kernel.types.get(name)
                made = self._gathered(made, binder, kind.shape if isinstance(kind, TileType) else ())
                made = replace(made, reductions=made.reductions | before[name].reductions)
            else:
                made = _mapped(made, lambda s: last(s, binder))
            # What was carried into this loop from one around it is still carried by that one.
            outer = frozenset(c for n in made.carried & before.keys() for c in before[n].carried)
            tiles[name] = replace(made, carried=(made.carried - before.keys()) | outer)

    def _gathered(self, value: Value, binder: Binder, shape: Sequence[int]) -> Value:
        """What a sum holds after all iterations: along an axis of one element, and a fixed index, it was reduced."""
        reductions: set[Reduction] = set()
        axes: list[Stretch | None] = []
        stmt = self._of(binder)
        for r in value.reductions:
            if (whole := walked(r.stretch, binder)) is not None:
                reductions.add(replace(r, stretch=whole))
        for axis, extent in zip(value.axes, shape, strict=False):
            whole = None if axis is None else walked(axis, binder)
            if axis is not None and whole is not None and whole != axis and extent == 1:
                reductions.add(Reduction("sum", whole, stmt))
                whole = None
            axes.append(whole)
        fixed: list[Stretch] = []
        for one in value.fixed:
            whole = walked(one, binder)
            if whole == one:
                fixed.append(one)
            elif whole is not None:
                reductions.add(Reduction("sum", whole, stmt))
        return Value(tuple(axes), tuple(fixed), frozenset(reductions), value.carried)

    def _of(self, binder: Binder) -> ir.Stmt:
        return next(s.stmt for s in self.context.sites if s.stmt.span == binder.span and isinstance(s.stmt, ir.For))

    # ------------------------------------------------------------------------------------ values

    def _loaded(self, stmt: ir.Load) -> Value:
        view, site = stmt.view, self._sites[id(stmt)]
        extents = self.context.kernel.param(view.tensor).type.shape
        if len(view.origin) != len(view.shape) or any(isinstance(o, ir.TileRef) for o in view.origin):
            return self._nothing(stmt.dst)
        along = tuple(
            Stretch(extent, site.value(origin), ex.Int(length), view.tensor, axis)
            for axis, (extent, origin, length) in enumerate(zip(extents, view.origin, view.shape, strict=True))
        )
        return Value(along[view.lead :], along[: view.lead])

    def _compute(self, stmt: ir.Compute, tiles: Tiles) -> Value:
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
            return _reduction(stmt, first, stmt.axis % len(old))
        if stmt.op == "div" and isinstance(stmt.args[1], ex.Int | ex.Size | ex.Bin | ex.Var):
            site = self._sites[id(stmt)]
            self.quotients.append(Quotient(site, stmt, site.value(stmt.args[1]), first.reductions))
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
            case op if op in ir.ELEMENTWISE or op == "broadcast":
                return _elementwise(list(zip(values, shapes, strict=True)), kind.shape)
            case _:
                return replace(_united((None,) * rank, values), fixed=())


def _reduction(stmt: ir.Compute, value: Value, axis: int) -> Value:
    stretch = value.axes[axis]
    rest = (*value.axes[:axis], *((None,) if stmt.keep else ()), *value.axes[axis + 1 :])
    more = frozenset[Reduction]() if stretch is None else frozenset((Reduction(stmt.op, stretch, stmt),))
    return replace(value, axes=rest, reductions=value.reductions | more)


def _product(a: Value, b: Value, acc: Value) -> Value:
    """`a @ b + acc`: what the product itself contracts is the subject of the asynchronous engine."""
    axes = (a.axes[0] if len(a.axes) == 2 else None, b.axes[1] if len(b.axes) == 2 else None)
    return _united(axes, [a, b, acc], fixed=False)


def _elementwise(args: list[tuple[Value, tuple[int, ...]]], shape: tuple[int, ...]) -> Value:
    axes: list[Stretch | None] = [None] * len(shape)
    clash: set[int] = set()
    for value, own in args:
        shift = len(shape) - len(own)
        for i, axis in enumerate(value.axes):
            if axis is None or own[i] != shape[i + shift]:
                continue
            if axes[i + shift] not in (None, axis):
                clash.add(i + shift)
            axes[i + shift] = axis
    kept = tuple(None if i in clash else a for i, a in enumerate(axes))
    return _united(kept, [v for v, _ in args])


def _united(axes: Axes, values: Iterable[Value], *, fixed: bool = True) -> Value:
    """A value with these axes, computed from all of `values`."""
    values = list(values)
    return Value(
        axes,
        tuple(dict.fromkeys(f for v in values for f in v.fixed)) if fixed else (),
        frozenset(r for v in values for r in v.reductions),
        frozenset(c for v in values for c in v.carried),
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
    return Value(axes, fixed, both | sometimes, one.carried | other.carried)


def _mapped(value: Value, change: _Change) -> Value:
    return Value(
        tuple(None if a is None else change(a) for a in value.axes),
        tuple(map(change, value.fixed)),
        frozenset(replace(r, stretch=change(r.stretch)) for r in value.reductions),
        value.carried,
    )
