"""Values made of elements at several places of a tensor: differences, stencils, convolutions along an axis.

A store of `x[i] - x[i + 1]` puts together elements of different coordinates on purpose, so no one coordinate says where
the value belongs. What can be said is that each stored element is made of elements at constant distances from its own
place, in a tensor that is longer by as much as they reach, so that all of them exist. That is the case if each tile
begins at a distance from the place of the value that no program changes, from 0 up to the difference of the extents.
Single elements, as weights are, may come from anywhere along dimensions that the output does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.expand import ExpansionError, expand_policies
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from ...async_ import forms
from ...context import KernelContext, Site
from ...integers import Question, conjunction
from ...plain import plain
from ...report import Obligation
from ..outcome import proved, refuted, situation
from .axes import defined
from .counterfactual import first_difference, trial_sizes, unequal

CODE = "TW103"
_SECONDS = 2.0
_ROUNDS = 4
_PASSED_ON = frozenset(("convert_layout", "copy", "cast", "broadcast"))


@dataclass(frozen=True, slots=True)
class Origin:
    """A tile, or a `single` element, that was loaded: dimension `axis` of `tensor` from `start` on; and where."""

    tensor: str
    axis: int
    extent: ex.Expr
    start: ex.Expr
    site: Site
    single: bool = False

    def __hash__(self) -> int:
        return hash((self.tensor, self.axis, self.start))


Axes = tuple[frozenset[Origin], ...]
_NOWHERE: frozenset[Origin] = frozenset()


@dataclass(frozen=True, slots=True)
class Value:
    """What the elements of a tile are made of: tiles by axis, and indices of dimensions that a view fixes."""

    axes: Axes
    fixed: frozenset[Origin] = frozenset()


def placed(context: KernelContext, what: str, store: ir.Stmt) -> Obligation | None:
    """What is known of a store whose value has no coordinate tag: proved, refuted, or nothing (None)."""
    kernel = plain(context.written)
    flat = KernelContext(kernel, context.decider, written=context.written, source=context.source)
    stores = [s for s in flat.sites if isinstance(s.stmt, ir.Store) and s.stmt.span == store.span]
    if len(stores) != 1:
        return None
    (site,) = stores
    store = site.stmt
    if not isinstance(store, ir.Store):
        return None
    value = _Origins(flat, store).run().get(store.src)
    extents = kernel.param(store.view.tensor).type.shape
    places = [(o, e) for o, e in zip(store.view.origin, extents, strict=True) if not isinstance(o, ir.TileRef)]
    if value is None or len(places) < len(extents):
        return None
    lead, along = places[: store.view.lead], places[store.view.lead :]
    fixed = [o for o in value.fixed if not o.single or o.extent in extents]
    if len(along) != len(value.axes) or not all(_fixed(flat, site, lead, o) for o in fixed):
        return None
    beyond: list[Origin] = []
    for (at, extent), origins in zip(along, value.axes, strict=True):
        for origin in origins:
            distance = forms.canonical(ex.sub(origin.start, site.value(at)), {}, forms.Facts.of(kernel.assumptions))
            programs = {b.name for b in (*site.binders, *origin.site.binders) if b.kind == "program"}
            if distance.names() & programs or any(n.startswith("@") for n in distance.names()):
                return None
            if origin.extent == extent:
                if distance != forms.ZERO:
                    return None
                continue
            d = forms.to_expr(distance)
            exists = (ex.Bin("<=", ex.Int(0), d), ex.Bin("<=", ex.add(extent, d), origin.extent))
            if flat.decider.proves(_question(site, origin.site, conjunction(exists))):
                continue
            # A tensor that may be the shorter one is filled up on purpose.
            if not flat.decider.proves(_question(site, origin.site, ex.Bin("<=", extent, origin.extent))):
                return None
            beyond.append(origin)
    if not beyond:
        return proved(CODE, "tags", what, store.span, "distances of neighbours")
    return _past_the_end(context, kernel, what, store, beyond)


def _fixed(context: KernelContext, site: Site, lead: list[tuple[ex.Expr, ex.Expr]], origin: Origin) -> bool:
    """Whether an index that a value comes from is one that it is stored at."""
    for at, extent in lead:
        if extent == origin.extent:
            equal = ex.Bin("==", origin.start, site.value(at))
            if context.decider.proves(_question(site, origin.site, equal)):
                return True
    return False


def _question(store: Site, load: Site, claim: ex.Expr) -> Question:
    known = {b.name for b in store.binders}
    more = tuple(b for b in load.binders if b.name not in known)
    return Question(claim, tuple(dict.fromkeys((*store.facts, *load.facts))), (*store.binders, *more))


class _Origins:
    """Follows what tiles are made of through a plain kernel."""

    def __init__(self, context: KernelContext, store: ir.Stmt) -> None:
        self._context = context
        self._sites: dict[int, Site] = {}
        for site in context.sites:
            self._sites.setdefault(id(site.stmt), site)
        # What a loop around the store carries may come from another of its iterations.
        self._carried = {
            name
            for loop in ir.walk(context.kernel.body)
            if isinstance(loop, ir.For | ir.While | ir.Programs) and any(s is store for s in ir.walk(loop.body))
            for name in defined(loop.body) & _defined_outside(context.kernel.body, loop)
        }

    def run(self) -> dict[str, Value | None]:
        """By tile what it is made of; None where that is not followed. A name may stand for several values."""
        tiles: dict[str, Value | None] = {}
        for _ in range(_ROUNDS):
            before = dict(tiles)
            for stmt in ir.walk(self._context.kernel.body):
                for name in defined((stmt,)) if not ir.children(stmt) else ():
                    made = None if name in self._carried else self._made(stmt, tiles)
                    tiles[name] = made if name not in tiles else _either(tiles[name], made)
            if tiles == before:
                return tiles
        return {}

    def _made(self, stmt: ir.Stmt, tiles: dict[str, Value | None]) -> Value | None:
        match stmt:
            case ir.Load(view=view) if not any(isinstance(o, ir.TileRef) for o in view.origin):
                return self._loaded(self._sites[id(stmt)], view)
            case ir.Compute():
                return self._computed(stmt, tiles)
            case _:
                return None

    def _loaded(self, site: Site, view: ir.View) -> Value:
        extents = self._context.kernel.param(view.tensor).type.shape
        all_ = [
            Origin(view.tensor, axis, extent, site.value(at), site, view.lead == len(extents))
            for axis, (at, extent) in enumerate(zip(view.origin, extents, strict=True))
            if not isinstance(at, ir.TileRef)
        ]
        axes = tuple(frozenset((o,)) for o in all_[view.lead :])
        return Value(axes, frozenset(all_[: view.lead]))

    def _computed(self, stmt: ir.Compute, tiles: dict[str, Value | None]) -> Value | None:
        kind = self._context.kernel.types[stmt.dst]
        assert isinstance(kind, TileType)
        names = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
        if stmt.op in ("full", "arange") or not names:
            return Value((_NOWHERE,) * len(kind.shape))
        # Around a loop, what comes from the iteration before is not known at first, and joins the rest later.
        operands = [(tiles[n], self._shape(n)) for n in names if n in tiles]
        if not operands or any(v is None for v, _ in operands):
            return None
        values = [(v, shape) for v, shape in operands if v is not None]
        first = values[0][0]
        if stmt.op == "expand_dims":
            axis = stmt.axis or 0
            return replace(first, axes=(*first.axes[:axis], _NOWHERE, *first.axes[axis:]))
        if stmt.op == "transpose":
            return replace(first, axes=first.axes[::-1])
        if stmt.op not in ir.ELEMENTWISE and stmt.op not in _PASSED_ON:
            return None
        axes = [_NOWHERE] * len(kind.shape)
        for value, shape in values:
            shift = len(kind.shape) - len(shape)
            for i, origins in enumerate(value.axes):
                # What one row gives to all others is no neighbour of theirs, but where it lies is not asked either.
                if origins and shape[i] != kind.shape[i + shift]:
                    return None
                axes[i + shift] |= origins
        return Value(tuple(axes), _NOWHERE.union(*(v.fixed for v, _ in values)))

    def _shape(self, name: str) -> tuple[int, ...]:
        kind = self._context.kernel.types[name]
        return kind.shape if isinstance(kind, TileType) else ()


def _defined_outside(block: ir.Block, loop: ir.Stmt) -> set[str]:
    inside = {id(s) for s in ir.walk((loop,))}
    return {n for s in ir.walk(block) if id(s) not in inside and not ir.children(s) for n in defined((s,))}


def _either(one: Value | None, other: Value | None) -> Value | None:
    if one is None or other is None or len(one.axes) != len(other.axes):
        return None
    return Value(tuple(a | b for a, b in zip(one.axes, other.axes, strict=True)), one.fixed | other.fixed)


def _past_the_end(
    context: KernelContext, kernel: ir.Kernel, what: str, store: ir.Store, beyond: Iterable[Origin]
) -> Obligation | None:
    """Refuted if what loads give in place of elements that do not exist is seen in what is stored."""
    loads = {id(o.site.stmt): o for o in beyond}
    tensors = {o.tensor for o in loads.values()}

    def other_fill(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Load) and stmt.view.tensor in tensors and stmt.other is not None:
            return (replace(stmt, other=stmt.other + 64.0),)
        return None

    try:
        given, filled = (expand_policies(k) for k in (kernel, kernel.with_body(ir.rewrite(kernel.body, other_fill))))
    except ExpansionError:
        return None
    seconds = min(_SECONDS, context.seconds_left())
    found = first_difference(given, filled, trial_sizes(given), seconds, unequal)
    if found is None:
        return None
    origin = next(iter(loads.values()))
    dim, tensor = ex.show(origin.extent), origin.tensor
    extent = ex.evaluate(origin.extent, found.sizes)
    example = found.example("with another `other`")
    text = (
        f"{found.where} is made of elements of {tensor} past its end (axis {origin.axis} has {dim} = {extent}), where "
        f"loads give `other`: read less far, or make {tensor} longer. {situation(example)}"
    )
    return refuted(context, CODE, "tags", what, store.span, text, example=example, how="distances of neighbours")
