"""Stretches of coordinates: which part of a dimension an axis of a tile, or a finished reduction, stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...integers import Binder


@dataclass(frozen=True, slots=True)
class Step:
    """A loop that walks along a stretch: `distance` coordinates from one iteration to the next, of `length` each."""

    binder: Binder
    distance: int
    length: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Coordinates `start` to `start + length - 1` of dimension `dim` (its extent), axis `axis` of `tensor`.

    `start` and `length` are over sizes and binders. `steps` are loops whose step is not the length of what they step
    over, so that elements are left out or met twice. `sometimes`: the reduction runs under a condition. `lost` says why
    it is not known which coordinates they are, or is empty. `met` says which elements elsewhere were combined with
    them.
    """

    dim: ex.Expr
    start: ex.Expr
    length: ex.Expr
    tensor: str = field(compare=False)
    axis: int = field(compare=False)
    steps: tuple[Step, ...] = ()
    sometimes: bool = False
    lost: str = ""
    met: str = ""

    @property
    def end(self) -> ex.Expr:
        """The coordinate after the last."""
        return ex.add(self.start, self.length)

    @property
    def names(self) -> frozenset[str]:
        """Names of sizes and binders in both ends."""
        return ex.names(self.start) | ex.names(self.length)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A stretch that `stmt`, or a sum that it carries around, has reduced. `op` is the name of a reduction."""

    op: str
    stretch: Stretch
    stmt: ir.Stmt = field(compare=False)

    @property
    def counts(self) -> bool:
        """True when an element that is met twice counts twice."""
        return self.op == "sum"


@dataclass(frozen=True, slots=True)
class Scan:
    """Running results of `stmt` along an axis that stands for `stretch`."""

    stretch: Stretch
    stmt: ir.Compute = field(compare=False)


def walked(stretch: Stretch, binder: Binder) -> Stretch:
    """What all iterations of a loop cover together, upwards or downwards; lost where the coordinate moves unevenly."""
    if binder.name not in stretch.names:
        return stretch
    move = advance(stretch.start, binder)
    if not move or not isinstance(stretch.length, ex.Int) or stretch.steps or stretch.lost:
        return lost(stretch, binder, f"how it moves with {binder.label} is not followed")
    distance, length = abs(move), stretch.length.value
    trips = ex.cdiv(ex.sub(binder.hi, binder.lo), ex.Int(binder.step))
    before_last = ex.sub(trips, ex.Int(1))
    least = binder.lo if move > 0 else ex.add(binder.lo, ex.mul(before_last, ex.Int(binder.step)))
    first = ex.substitute(stretch.start, {binder.name: least})
    if distance == length:
        return replace(stretch, start=first, length=ex.mul(trips, ex.Int(length)))
    reach = ex.add(ex.mul(before_last, ex.Int(distance)), ex.Int(length))
    return replace(stretch, start=first, length=reach, steps=(Step(binder, distance, length),))


def lost(stretch: Stretch, binder: Binder, why: str) -> Stretch:
    """The stretch as one of which it is not known what it covers over the iterations of a loop."""
    env: dict[str, ex.Expr] = {binder.name: binder.lo}
    start, length = ex.substitute(stretch.start, env), ex.substitute(stretch.length, env)
    return replace(stretch, start=start, length=length, steps=(), lost=stretch.lost or why)


def shifted(stretch: Stretch, binder: Binder) -> Stretch:
    """The stretch as the iteration before left it."""
    env: dict[str, ex.Expr] = {binder.name: ex.sub(ex.Var(binder.name), ex.Int(binder.step))}
    return replace(stretch, start=ex.substitute(stretch.start, env), length=ex.substitute(stretch.length, env))


def last(stretch: Stretch, binder: Binder) -> Stretch:
    """What the last iteration of a loop alone has left."""
    trips = ex.cdiv(ex.sub(binder.hi, binder.lo), ex.Int(binder.step))
    at = ex.add(binder.lo, ex.mul(ex.sub(trips, ex.Int(1)), ex.Int(binder.step)))
    env: dict[str, ex.Expr] = {binder.name: at}
    return replace(
        stretch, start=ex.substitute(stretch.start, env), length=ex.substitute(stretch.length, env)
    )  # fmt: skip


def interleaved(stretch: Stretch, others: Iterable[Stretch]) -> Stretch:
    """The stretch with those that fill the gaps of its steps: tiles side by side in one loop, one step for all."""
    if len(stretch.steps) != 1 or stretch.steps[0].distance % stretch.steps[0].length:
        return stretch
    (step,) = stretch.steps
    starts = {
        o.start.value
        for o in (stretch, *others)
        if isinstance(o.start, ex.Int) and o == replace(stretch, start=o.start)
    }
    for first in sorted(starts):
        tiles = range(first, first + step.distance, step.length)
        if isinstance(stretch.start, ex.Int) and stretch.start.value in tiles and starts.issuperset(tiles):
            trips = ex.cdiv(ex.sub(step.binder.hi, step.binder.lo), ex.Int(step.binder.step))
            return replace(stretch, start=ex.Int(first), length=ex.mul(trips, ex.Int(step.distance)), steps=())
    return stretch


def advance(value: ex.Expr, binder: Binder) -> int | None:
    """How much `value` grows from one iteration to the next; None where that is no constant."""
    match value:
        case ex.Bin("//", inner, ex.Int(c)) if c > 0:
            move = advance(inner, binder)
            return None if move is None or move % c else move // c
        case ex.Bin("*", inner, ex.Int(c)) | ex.Bin("*", ex.Int(c), inner):
            move = advance(inner, binder)
            return None if move is None else move * c
        case _:
            factor = slope(value, binder.name)
            return None if factor is None else factor * binder.step


def slope(value: ex.Expr, name: str) -> int | None:
    """How much `value` grows when `name` does by one; None where that is no constant."""
    match value:
        case ex.Var(other) if other == name:
            return 1
        case ex.Bin("+" | "-" as op, a, b):
            left, right = slope(a, name), slope(b, name)
            return None if left is None or right is None else left + right if op == "+" else left - right
        case ex.Bin("*", a, ex.Int(c)) | ex.Bin("*", ex.Int(c), a):
            inner = slope(a, name)
            return None if inner is None else c * inner
        case _:
            return 0 if name not in ex.names(value) else None
