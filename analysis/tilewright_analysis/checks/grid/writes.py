"""The stores of a kernel as maps from programs and iterations to tiles of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.source import Span

from ...context import KernelContext, Site, view_span
from ...integers.compiled import Env, compiled
from ...integers.question import Binder
from ...integers.ranges import divisor, known_divisors

_MOST_WRITES = 30_000  # some tens of milliseconds

_LITTLE = 4  # elements more, over all sizes


@dataclass(frozen=True)
class Write:
    """One store statement: `origin` over sizes and binders, `extents` of the tensor over sizes."""

    site: Site
    view: ir.View
    origin: tuple[ex.Expr, ...]
    extents: tuple[ex.Expr, ...]

    @property
    def span(self) -> Span:
        """Where the view stands."""
        return view_span(self.site.stmt, self.view)

    @cached_property
    def tiles(self) -> tuple[ex.Expr, ...]:
        """Number of tiles in each dimension of the tensor."""
        return tuple(ex.cdiv(e, ex.Int(b)) for e, b in zip(self.extents, self.view.shape, strict=True))

    @cached_property
    def coordinates(self) -> tuple[ex.Expr | None, ...]:
        """Tile number in each dimension; None where the origin is not evidently a multiple of the tile extent."""
        steps = {b.name: b for b in self.site.loops if b.kind == "loop"}
        return tuple(_quotient(o, b, steps) for o, b in zip(self.origin, self.view.shape, strict=True))

    @property
    def tracked(self) -> bool:
        """False when origin or surroundings hold values that are not known, or that data decides."""
        exprs = (*self.origin, *self.site.conditions, *(e for b in self.site.loops for e in (b.lo, b.hi)))
        if any(True for e in exprs for _ in ex.items(e)):
            return False
        names = {n for e in (*self.origin, *self.site.conditions) for n in ex.names(e)}
        for b in self.site.loops:
            names |= ex.names(b.lo) | ex.names(b.hi)
        return not any(b.kind == "free" and b.name in names for b in self.site.binders)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a small grid showed: sizes with the values of binders, and the tiles in question."""

    kind: str
    write: Write
    model: dict[str, int]
    origin: tuple[int, ...]
    second: Write | None = None
    other: dict[str, int] = field(default_factory=dict[str, int])


def outputs(context: KernelContext) -> dict[str, tuple[Write, ...]]:
    """The writes of each tensor that the kernel stores to, by name, in source order.

    Stores that follow each other, run equally often and write boxes side by side count as one, as the pieces of a tile
    whose extent is no power of two do, and the rows of roles that divide a tile.
    """
    found: dict[str, list[Write]] = {}
    for site, view in context.views():
        if isinstance(site.stmt, ir.Store | ir.TmaStore | ir.Atomic):
            origin = tuple(site.value(o) for o in view.origin)
            extents = context.kernel.param(view.tensor).type.shape
            found.setdefault(view.tensor, []).append(Write(site, view, origin, extents))
    return {name: tuple(_joined(writes)) for name, writes in found.items()}


def _joined(writes: list[Write]) -> list[Write]:
    """The writes with neighbours made one, until none are left."""
    done: list[Write] = []
    for write in writes:
        done.append(write)
        while len(done) > 1 and (both := _side_by_side(done[-2], done[-1])) is not None:
            done[-2:] = [both]
    return done


def _side_by_side(a: Write, b: Write) -> Write | None:
    """The box of both writes, where the second begins at the end of the first along one dimension."""
    one, two = a.site, b.site
    if type(one.stmt) is not type(two.stmt) or a.view.lead != b.view.lead:
        return None
    if one.role == two.role:
        if (one.loops, one.conditions) != (two.loops, two.conditions):
            return None
        left_out = ()
    else:
        found = _as_in(a, b)
        if found is None:
            return None
        b, conditions = found
        if not set(one.conditions) <= set(conditions):
            return None
        left_out = tuple(c for c in conditions if c not in one.conditions)
    apart = [d for d, (x, y) in enumerate(zip(a.origin, b.origin, strict=True)) if x != y]
    others = [n for d, n in enumerate(a.view.shape) if d not in apart]
    if len(apart) != 1 or others != [n for d, n in enumerate(b.view.shape) if d not in apart]:
        return None
    (axis,) = apart
    width = a.view.shape[axis]
    if b.origin[axis] != ex.add(a.origin[axis], ex.Int(width)):
        return None
    # Another role may leave out what lies past the edge as a whole: nothing of it would be written.
    if any(c != ex.less(b.origin[axis], b.extents[axis]) for c in left_out):
        return None
    shape = list(a.view.shape)
    shape[axis] += b.view.shape[axis]
    return replace(a, view=replace(a.view, shape=tuple(shape)))


def _as_in(a: Write, b: Write) -> tuple[Write, tuple[ex.Expr, ...]] | None:
    """The write of another role and its conditions in the loop variables of `a`; None if it runs in other loops."""
    env: dict[str, ex.Expr] = {}
    if len(a.site.loops) != len(b.site.loops):
        return None
    for x, y in zip(a.site.loops, b.site.loops, strict=True):
        bounds = ex.substitute(y.lo, env), ex.substitute(y.hi, env)
        if (x.kind, x.step, x.dies, x.lo, x.hi) != (y.kind, y.step, y.dies, *bounds):
            return None
        env[y.name] = ex.Var(x.name)
    origin = tuple(ex.substitute(o, env) for o in b.origin)
    return replace(b, origin=origin), tuple(ex.substitute(c, env) for c in b.site.conditions)


def small_faults(context: KernelContext, writes: Sequence[Write]) -> dict[str, Fault]:
    """Run the maps of one tensor over small grids: the first fault of each kind (`outside`, `twice`, `missing`),
    smallest grids first.

    Stops after some ten thousand writes; an empty result proves nothing.
    """
    if not all(w.tracked for w in writes):
        return {}
    runs = [_run(w) for w in writes]
    found: dict[str, Fault] = {}
    left = _MOST_WRITES
    for sizes in _small_grids(context, writes):
        try:
            left -= _one_grid(writes, runs, sizes, found, left)
        except ZeroDivisionError:
            continue
        if left <= 0 or len(found.keys() - {"nothing"}) == 3:
            break
    nothing, missing = found.pop("nothing", None), found.get("missing")
    if nothing is not None and (missing is None or _size(missing, context) > _size(nothing, context) + _LITTLE):
        found["missing"] = nothing
    return found


def _size(fault: Fault, context: KernelContext) -> int:
    return sum(v for n, v in fault.model.items() if n in context.kernel.sizes)


def _one_grid(
    writes: Sequence[Write],
    runs: Sequence[Callable[[dict[str, int]], Iterator[dict[str, int]]]],
    sizes: dict[str, int],
    found: dict[str, Fault],
    limit: int,
) -> int:
    """Adds the faults at these sizes to `found`; returns the number of writes, none of which were checked past
    `limit`.
    """
    seen: dict[tuple[int, ...], tuple[Write, dict[str, int]]] = {}
    extents = tuple(ex.evaluate(e, sizes) for e in writes[0].extents)
    shape, total = writes[0].view.shape, 0
    uniform = all(w.view.shape == shape for w in writes)
    for write, run in zip(writes, runs, strict=True):
        origins = compiled(write.origin)
        for env in run(sizes):
            total += 1
            if total > limit:
                return total
            origin = origins(env)
            uniform &= all(o % b == 0 for o, b in zip(origin, shape, strict=True))
            if any(not 0 <= o < e for o, e in zip(origin, extents, strict=True)):
                found.setdefault("outside", Fault("outside", write, dict(env), origin))
            elif origin in seen:
                first, model = seen[origin]
                found.setdefault("twice", Fault("twice", first, model, origin, write, dict(env)))
            else:
                seen[origin] = (write, dict(env))
    # A grid without programs shows less than one that is a little larger, whose programs leave out a tile.
    kind = "missing" if total else "nothing"
    if uniform and kind not in found:
        for origin in product(*(range(0, e, b) for e, b in zip(extents, shape, strict=True))):
            if origin not in seen:
                found[kind] = Fault("missing", writes[0], dict(sizes), origin)
                break
    return total


def _run(write: Write) -> Callable[[dict[str, int]], Iterator[dict[str, int]]]:
    """A function that walks all binder values of a write at given sizes."""
    binders = write.site.loops
    bounds = [compiled((b.lo, b.hi)) for b in binders]
    conditions: Callable[[Env], tuple[int, ...]] = compiled(write.site.conditions)

    def walk(depth: int, env: dict[str, int]) -> Iterator[dict[str, int]]:
        if depth == len(binders):
            if all(conditions(env)):
                yield env
            return
        lo, hi = bounds[depth](env)
        for value in range(lo, hi, binders[depth].step):
            env[binders[depth].name] = value
            yield from walk(depth + 1, env)

    return lambda sizes: walk(0, dict(sizes))


def _small_grids(context: KernelContext, writes: Sequence[Write]) -> Iterator[dict[str, int]]:
    """Sizes that give few tiles in each dimension and satisfy the assumptions, fewest tiles first."""
    known = known_divisors(context.assumptions)
    tile_of: dict[str, int] = {}
    for w in writes:
        for extent, b in zip(w.extents, w.view.shape, strict=True):
            for name in ex.names(extent):
                tile_of[name] = max(b, tile_of.get(name, 1))
    exprs = [*(o for w in writes for o in w.origin), *(b.hi for w in writes for b in w.site.loops)]
    constants = {i.value for e in exprs for i in ex.walk(e) if isinstance(i, ex.Int)}
    counts = sorted({*range(1, 10), *(c + 1 for c in constants if 9 <= c <= 64)})
    choices: list[list[tuple[int, int]]] = []  # (tiles, size) for each size
    for name in context.kernel.sizes:
        d = known.get(name, 1)
        tile = tile_of.get(name)
        if name in context.kernel.integers:
            choices.append([(abs(n), n * d) for n in (0, 1, -1, 2, 3, 5, 9)])
            continue
        if name in context.kernel.pitches:
            choices.append([(0, -(-n // d) * d) for n in (64, 1024, 16384)])
            continue
        if tile is None:
            choices.append([(0, d)])
        else:
            # The smallest size with that many tiles, and the one that fills them.
            sizes = {(n, -(-((n - 1) * tile + 1) // d) * d) for n in counts}
            sizes |= {(n, n * tile) for n in counts[:3]}
            choices.append(sorted(sizes))
    assumptions = compiled(context.assumptions)
    combined = sorted(product(*choices), key=lambda c: (sum(n for n, _ in c), c))
    for choice in combined:
        env = dict(zip(context.kernel.sizes, (s for _, s in choice), strict=True))
        if all(assumptions(env)):
            yield env


def _quotient(origin: ex.Expr, extent: int, steps: Mapping[str, Binder]) -> ex.Expr | None:
    """`origin / extent` where the division is evidently exact."""
    if extent == 1:
        return origin
    match origin:
        case ex.Int(value) if value % extent == 0:
            return ex.Int(value // extent)
        case ex.Bin("*", x, ex.Int(c)) | ex.Bin("*", ex.Int(c), x) if c % extent == 0:
            return ex.mul(x, ex.Int(c // extent))
        case ex.Bin("+" | "-" as op, a, b):
            qa, qb = _quotient(a, extent, steps), _quotient(b, extent, steps)
            return None if qa is None or qb is None else ex.binary(op, qa, qb)
        case ex.Var(name) if name in steps:
            binder = steps[name]
            exact = binder.step % extent == 0 and divisor(binder.lo, {}) % extent == 0
            return ex.floordiv(origin, ex.Int(extent)) if exact else None
        case _:
            return None
