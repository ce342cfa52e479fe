"""Gathers and scatters: single elements of a tensor at indices that register tiles hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tilewright.interpret.machine import Process, Tile
from tilewright.interpret.memory import Tensor, first_true
from tilewright.interpret.numeric import STORAGE, Array, decode, encode, to_dtype
from tilewright.interpret.operands import Operands, StepRun
from tilewright.interpret.provenance import Course, scattered
from tilewright.interpret.shared_steps import copy_async
from tilewright.interpret.tags import Tag
from tilewright.ir import nodes as ir
from tilewright.ir.data import tensors_behind
from tilewright.ir.expr import Bin, walk
from tilewright.ir.types import TileType

Index = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_]


def compile_step(stmt: ir.Stmt, operands: Operands) -> StepRun | None:
    """The step of a statement of this module; None for any other."""
    match stmt:
        case ir.Gather():
            return _gather(stmt, operands)
        case ir.CpGather():
            return _cp_gather(stmt, operands)
        case ir.Scatter():
            return _scatter(stmt, operands)
        case _:
            return None


def _gather(stmt: ir.Gather, operands: Operands) -> StepRun:
    kind = operands.types[stmt.dst]
    assert isinstance(kind, TileType)
    index_of, axes = _index(stmt, operands, kind.shape), _course(stmt, operands, kind.shape)
    other = 0.0 if stmt.other is None else stmt.other

    def run(process: Process) -> None:
        tensor, index, chosen = index_of(process)
        data = np.full(kind.shape, to_dtype(np.asarray(other), kind.dtype), STORAGE[kind.dtype.name])
        data[chosen] = decode(tensor.array[tuple(i[chosen] for i in index)], kind.dtype)
        tag = _tag(process, tensor, index, axes)
        process.assign(stmt.dst, Tile(data, tag))

    return run


def _cp_gather(stmt: ir.CpGather, operands: Operands) -> StepRun:
    stage_of = operands.stage(stmt.dst)
    shape = operands.stage_shape(stmt.dst)
    index_of, axes = _index(stmt, operands, shape), _course(stmt, operands, shape)

    def run(process: Process) -> None:
        # Indices are in registers, so a later change of their tiles has no effect on the copy.
        tensor, index, chosen = index_of(process)
        tag = _tag(process, tensor, index, axes)

        def read() -> Array:
            data = np.full(shape, to_dtype(np.asarray(0.0), tensor.dtype), STORAGE[tensor.dtype.name])
            data[chosen] = decode(tensor.array[tuple(i[chosen] for i in index)], tensor.dtype)
            return data

        copy_async(process, stage_of(process), tag, read)

    return run


def _scatter(stmt: ir.Scatter, operands: Operands) -> StepRun:
    kind = operands.types[stmt.src]
    assert isinstance(kind, TileType)
    index_of, course = _index(stmt, operands, kind.shape), _course(stmt, operands, kind.shape)

    def run(process: Process) -> None:
        tensor, index, chosen = index_of(process)
        if stmt.op and not tensor.given:
            raise uninitialized(process, tensor, ())
        tile = process.tile(stmt.src)
        if tile.tag is not None and chosen.any():
            first = tuple(int(i.flat[0]) for i in index)
            scattered(process, tile.tag, tensor, first, course, added=bool(stmt.op))
        region = process.share(kind.shape)
        if region is None:
            return
        mine = chosen[region]
        cells = tuple(i[region][mine] for i in index)
        if stmt.op:
            tensor.update_cells(cells, tile.data[region][mine], stmt.op, process.machine.program)
            return
        tensor.array[cells] = encode(tile.data[region][mine], tensor.array, tensor.dtype)
        _count(tensor, cells, process.machine.program)

    return run


def uninitialized(process: Process, tensor: Tensor, element: tuple[int, ...]) -> Exception:
    """The violation of an update of what nothing initializes."""
    return process.violation(
        "uninitialized",
        f"{tensor.name} is accumulated into, but nothing says what it holds before: tw.zeroed({tensor.name}) or "
        f"tw.initialized({tensor.name})",
        element=element,
    )


def _index(
    stmt: ir.Gather | ir.CpGather | ir.Scatter, operands: Operands, shape: tuple[int, ...]
) -> Callable[[Process], tuple[Tensor, tuple[Index, ...], Chosen]]:
    """The tensor, an index a dimension for each element, and which elements the mask chooses.

    The function raises Violation for a chosen element that does not exist.
    """
    parts = [i.name if isinstance(i, ir.TileRef) else operands.scalar(_scalar(i)) for i in stmt.index]
    verb = "load of" if not isinstance(stmt, ir.Scatter) else "update of" if stmt.op else "store to"

    def resolve(process: Process) -> tuple[Tensor, tuple[Index, ...], Chosen]:
        tensor = process.machine.tensors[stmt.tensor]
        chosen = np.ones(shape, np.bool_)
        if stmt.mask is not None:
            chosen = np.array(np.broadcast_to(process.tile(stmt.mask.name).data != 0, shape))
        index: list[Index] = []
        for axis, (part, extent) in enumerate(zip(parts, tensor.extents, strict=True)):
            at = process.tile(part).data if isinstance(part, str) else np.asarray(part(process.env))
            at = np.broadcast_to(at.astype(np.int64), shape)
            wrong = chosen & ((at < 0) | (at >= extent))
            if wrong.any():
                lane = first_true(wrong)
                raise process.violation(
                    "bounds",
                    f"element {lane} of the {verb} {tensor.name} has index {int(at[lane])} in dimension {axis}, whose "
                    f"extent is {extent}",
                    element=lane,
                    values={"index": str(int(at[lane])), "extent": str(extent)},
                )
            index.append(at)
        return tensor, tuple(index), chosen

    return resolve


def _course(stmt: ir.Gather | ir.CpGather | ir.Scatter, operands: Operands, shape: tuple[int, ...]) -> Course:
    """The axes that have coordinates: those counted by one index, if the other indices come from tables or are scalars.

    Where indices are computed otherwise, an iteration may mean several coordinates at once, and none are claimed.
    """
    decided = [frozenset[str]()] * len(stmt.index)
    nothing = Course((None,) * len(shape), (), tuple(decided))
    lines = operands.lines
    dims: list[int | None] = [None] * len(shape)
    for dim, index in enumerate(stmt.index):
        if not isinstance(index, ir.TileRef):
            continue
        line = lines.of(index.name) if lines is not None else None
        kind = operands.types[index.name]
        assert isinstance(kind, TileType)
        if line is None:
            if lines is None or index.name not in lines.loaded:
                return nothing
            continue
        axis = line[0] + len(shape) - len(kind.shape)
        if dims[axis] is not None or not _linear(line[1]):
            return nothing
        dims[axis] = dim
        decided[dim] = tensors_behind((line[1],), operands.data)
    for dim, index in enumerate(stmt.index):
        if not isinstance(index, ir.TileRef | float | int):
            decided[dim] = tensors_behind((index,), operands.data)
    fixed = tuple(d for d, i in enumerate(stmt.index) if not isinstance(i, ir.TileRef))
    return Course(tuple(dims), fixed, tuple(decided))


def _linear(e: ir.Expr) -> bool:
    return all(not isinstance(x, Bin) or x.op in ("+", "-", "*") for x in walk(e))


def _tag(process: Process, tensor: Tensor, index: tuple[Index, ...], counted: Course) -> Tag | None:
    if not process.machine.schedule.tags:
        return None
    origin = tuple(int(i.flat[0]) for i in index)
    axes = tensor.axes(origin, counted.decided)
    fixed = tuple(origin[d] for d in counted.fixed)
    slices = frozenset((f"{tensor.name}[{', '.join(map(str, fixed))}]",)) if fixed else frozenset[str]()
    return Tag(tuple(None if d is None else axes[d] for d in counted.dims), slices=slices)


def _scalar(operand: ir.Operand) -> ir.Expr:
    assert not isinstance(operand, ir.TileRef | float | int)
    return operand


def _count(tensor: Tensor, cells: tuple[Index, ...], program: int) -> None:
    """Count the elements as written, and note the first that was written before or is written twice here."""
    if tensor.counts is None or tensor.writer is None:
        tensor.counts = np.zeros(tensor.extents, np.int32)
        tensor.writer = np.full(tensor.extents, -1, np.int32)
    np.add.at(tensor.counts, cells, 1)
    if tensor.rewritten is None:
        twice = tensor.counts[cells] > 1
        if tensor.updater is not None:
            twice |= tensor.updater[cells] >= 0
        if twice.any():
            at = tuple(int(i[int(np.argmax(twice))]) for i in cells)
            before = int(tensor.writer[at])
            tensor.rewritten = (at, program if before < 0 else before, program)
    tensor.writer[cells] = np.where(tensor.writer[cells] < 0, program, tensor.writer[cells])
