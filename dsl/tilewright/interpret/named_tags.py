"""Named tags of every element, as arrays beside the numbers: what `tw.tag` gives, what `tw.expect` looks at.

An array broadcasts to the shape of its tile. None: values with different tags met, and the tag was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import tag_space
from tilewright.interpret.machine import Process, Tile
from tilewright.interpret.memory import Stage, Tensor
from tilewright.interpret.operands import Operands, StepRun
from tilewright.interpret.tags import LOST, Axis, Tag, turned
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.nodes import ELEMENTWISE, REDUCTIONS, SCANS
from tilewright.ir.tagging import Holder, displaced, shown
from tilewright.tag_space import Space, SpaceError

Array = npt.NDArray[Any]
Named = Mapping[str, Array | None]

NOTHING: Named = {}


def of_view(tensor: Tensor, origin: Sequence[int], shape: tuple[int, ...], lead: int, tracked: frozenset[str]) -> Named:
    """Coordinates of a tile of `shape` at `origin`, by the names of sizes that stand for one dimension only."""
    found: dict[str, Array | None] = {}
    for axis, (label, at) in enumerate(zip(tensor.labels, origin, strict=True)):
        if label is None or label not in tracked or tensor.labels.count(label) > 1:
            continue
        if axis < lead:
            found[label] = np.full((1,) * len(shape), at, np.int64)
        else:
            own = axis - lead
            found[label] = (at + np.arange(shape[own], dtype=np.int64)).reshape(
                tuple(-1 if i == own else 1 for i in range(len(shape)))
            )
    return found


def elementwise(operands: Sequence[Named], shape: tuple[int, ...]) -> Named:
    """Tags in which all operands that have one agree, in every element of a result of `shape`."""
    found: dict[str, Array | None] = {}
    for name in dict.fromkeys(n for named in operands for n in named):
        arrays = [named[name] for named in operands if name in named]
        first = arrays[0]
        if first is None or any(a is None or not bool(np.all(first == a)) for a in arrays[1:]):
            found[name] = None
        else:
            found[name] = np.broadcast_to(first, shape)
    return found


def product(a: Named, b: Named, acc: Named) -> Named:
    """Tags of `a @ b + acc`: those of rows of a and of columns of b; what changes along the contraction is gone."""
    rows = {n: t if t is None else t[:, :1] for n, t in a.items() if t is None or _constant(t, 1)}
    columns = {n: t if t is None else t[:1, :] for n, t in b.items() if t is None or _constant(t, 0)}
    shapes = [t.shape for named in (rows, columns, acc) for t in named.values() if t is not None]
    return elementwise((rows, columns, acc), np.broadcast_shapes((1, 1), *shapes))


def computed(stmt: ir.Compute, inputs: Sequence[tuple[Named, tuple[int, ...]]], shape: tuple[int, ...]) -> Named:
    """Tags of the result of a register computation on tiles of given shapes."""
    operands = [{n: t if t is None else np.broadcast_to(t, own) for n, t in named.items()} for named, own in inputs]
    if not any(operands):
        return NOTHING
    if stmt.op in ELEMENTWISE or stmt.op in SCANS or stmt.op in ("broadcast", "convert_layout"):
        return elementwise(operands, shape)
    if stmt.op == "join":
        names = dict.fromkeys(n for named in operands for n in named)
        return {n: _joined([named.get(n) for named in operands], shape) for n in names}
    first = operands[0]
    axis = (stmt.axis or 0) % max(1, len(inputs[0][1]))
    if stmt.op in REDUCTIONS:
        kept = {n: t for n, t in first.items() if t is None or _constant(t, axis)}
        return {n: t if t is None else _reduced(t, axis, stmt.keep) for n, t in kept.items()}
    moves: dict[str, Callable[[Array], Array]] = {
        "transpose": lambda t: t.T,
        "permute": lambda t: np.transpose(t, stmt.order),
        "expand_dims": lambda t: np.expand_dims(t, stmt.axis or 0),
        "reshape": lambda t: t.reshape(shape),
        "half": lambda t: t[..., stmt.axis],
    }
    move = moves.get(stmt.op)
    return {n: None if t is None or move is None else move(t) for n, t in first.items()}


def _constant(tags: Array, axis: int) -> bool:
    return bool((tags == np.take(tags, [0], axis)).all())


def _reduced(tags: Array, axis: int, keep: bool) -> Array:
    return np.take(tags, [0] if keep else 0, axis)


def _joined(halves: Sequence[Array | None], shape: tuple[int, ...]) -> Array | None:
    present = [t for t in halves if t is not None]
    return np.stack([np.broadcast_to(t, shape[:-1]) for t in present], -1) if len(present) == len(halves) else None


# ------------------------------------------------------------------------------------------------ statements


def compile_step(stmt: ir.Stmt, operands: Operands) -> StepRun | None:
    """The step of a statement about tags, which does nothing in runs without them; None for any other."""
    match stmt:
        case ir.Tag():
            return _tag(stmt, operands)
        case ir.ExpectTags():
            return _expect(stmt, operands)
        case _:
            return None


def _tag(stmt: ir.Tag, operands: Operands) -> StepRun:
    shape = tag_space.held_shape(stmt.of, operands.types)
    space = tag_space.element_space(shape, stmt.uses, operands.types)
    holder_of, moved = _reader(operands), displaced(stmt)

    def run(process: Process) -> None:
        found = holder_of(process, stmt.of)
        tag = _seen(found, stmt.of)
        if found is None or tag is None:
            return
        env = _environment(process, stmt.uses, space, holder_of)
        new: dict[str, Array | None] = {}
        for name, value in stmt.tags:
            known = all(n in env for n in ex.names(value))
            new[name] = np.broadcast_to(tag_space.evaluate(value, env), shape) if known else None
        tag = _claimed(process, replace(tag, named={**tag.named, **new}), new, moved)
        found.tag = turned(tag) if isinstance(stmt.of, ir.BufRef) and stmt.of.transposed else tag

    return run


def _claimed(process: Process, tag: Tag, new: Named, moved: frozenset[str]) -> Tag:
    """The tag with coordinates along axes that have none, or a `moved` one, where a new tag numbers such an axis."""
    axes = list(tag.axes)
    for name, values in new.items():
        extent = next(
            (t.extents[t.labels.index(name)] for t in process.machine.tensors.values() if name in t.labels), None
        )
        if values is None or extent is None:
            continue
        for axis, held in enumerate(axes):
            first = int(values[(0,) * values.ndim])
            along: Array = np.indices(values.shape, sparse=True)[axis]
            free = held in (None, LOST) or (name in moved and held.label == name)
            if free and bool(np.all(values == first + along)):
                axes[axis] = Axis(name, first, extent)
    return replace(tag, axes=tuple(axes))


def _expect(stmt: ir.ExpectTags, operands: Operands) -> StepRun:
    try:
        space = tag_space.space_of(stmt.params, stmt.uses, operands.types)
    except SpaceError:
        return lambda process: None
    holder_of = _reader(operands)

    def run(process: Process) -> None:
        if not process.machine.tracked:
            return
        env = _environment(process, stmt.uses, space, holder_of)
        for cond in tag_space.conjuncts(stmt.cond):
            if not all(n in env for n in ex.names(cond)):
                continue
            at = space.first(np.logical_not(tag_space.evaluate(cond, env)))
            if at is not None:
                raise _violation(process, stmt, cond, env, at)

    return run


def _violation(
    process: Process, stmt: ir.ExpectTags, cond: ex.Expr, env: Mapping[str, Any], at: tuple[int, ...]
) -> Exception:
    def value(expr: ex.Expr) -> str:
        found = np.asarray(tag_space.evaluate(expr, env))
        place = tuple(min(i, n - 1) for i, n in zip(at[len(at) - found.ndim :], found.shape, strict=True))
        return str(int(found[place]))

    sides = (cond.lhs, cond.rhs) if isinstance(cond, ex.Bin) else ()
    values = {shown(stmt, side): value(side) for side in sides if not isinstance(side, ex.Int)}
    place = stmt.whole(at)
    where = ", ".join(f"{n} = {i}" for n, i in zip(stmt.names, place, strict=True))
    numbers = " and ".join(f"{t} is {v}" for t, v in values.items())
    return process.violation(
        "expectation", f"{shown(stmt, cond)} does not hold for {where}" + (f": {numbers}" if numbers else ""),
        element=place, values=values,
    )  # fmt: skip


_Reader = Callable[[Process, Holder], Tile | Stage | None]


def _reader(operands: Operands) -> _Reader:
    """What carries tags, whether or not an instruction still works on it: its tag is that of the result."""

    def read(process: Process, of: Holder) -> Tile | Stage | None:
        return process.tiles.get(of) if isinstance(of, str) else operands.stage(of)(process)

    return read


def _seen(found: Tile | Stage | None, of: Holder) -> Tag | None:
    """The tag of what carries it, as the statement sees it."""
    if found is None or found.tag is None:
        return None
    return turned(found.tag) if isinstance(of, ir.BufRef) and of.transposed else found.tag


def _environment(process: Process, uses: Sequence[ir.TagUse], space: Space, holder_of: _Reader) -> dict[str, Any]:
    """Scalars, parameters, and the mentions whose tag is known."""
    env: dict[str, Any] = {**process.env, **space.parameters}
    for number, (use, at) in enumerate(zip(uses, space.coordinates, strict=True)):
        tag = _seen(holder_of(process, use.of), use.of)
        values = tag.named.get(use.tag) if tag is not None else None
        if values is not None:
            # A tag that is equal along an axis is stored once.
            full = tuple(c if n > 1 else np.zeros_like(c) for c, n in zip(at, values.shape, strict=True))
            env[f"?{number}"] = values[full]
    return env
