"""Statements as Python closures: control flow, register computations and direct global accesses.

`compile_block` turns a block into steps once for a kernel; a step runs a statement for a process and returns None, or a
generator of events if it may have to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.interpret import async_steps, named_tags, point_steps, shared_steps, tensor_steps
from tilewright.interpret.compute import compute, matrix_product
from tilewright.interpret.machine import Events, Process, Tile
from tilewright.interpret.memory import Tensor
from tilewright.interpret.numeric import Array
from tilewright.interpret.operands import Operands, StepRun
from tilewright.interpret.provenance import computed, loaded, product, stored
from tilewright.interpret.recording import CURRENT, Executed
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Item, names, show
from tilewright.ir.types import TileType


@dataclass(frozen=True, slots=True)
class Step:
    """One compiled statement. `visible`: what it does matters to others, so an adversary may interrupt before it."""

    stmt: ir.Stmt
    visible: bool
    run: StepRun


Steps = tuple[Step, ...]

_PRIVATE = (
    ir.Assign, ir.Compute, ir.Mma, ir.For, ir.If, ir.While, ir.Programs, ir.AllocShared, ir.AllocBarrier,
    ir.AllocTensor, ir.Load, ir.Gather, ir.Tag, ir.ExpectTags,
)  # fmt: skip


def compile_block(block: ir.Block, operands: Operands) -> Steps:
    """The steps of a block of explicit statements. Raises ValueError for a policy statement."""
    return tuple(Step(s, not isinstance(s, _PRIVATE), _compile(s, operands)) for s in block)


def execute(steps: Steps, process: Process) -> Events:
    """Run steps in order."""
    adversarial, recording = process.machine.schedule.adversarial, CURRENT.get()
    for step in steps:
        process.stmt = step.stmt
        if recording is not None:
            around = {name: process.env[name] for name in process.loops}
            recording.append(Executed(process.label, step.stmt, around))
        if adversarial and step.visible:
            yield None
        events = step.run(process)
        if events is not None:
            yield from events


def _compile(stmt: ir.Stmt, operands: Operands) -> StepRun:
    match stmt:
        case ir.Assign(dst=dst, value=Item() as item):
            return _element(dst, item, operands)
        case ir.Assign(dst=dst, value=value):
            return _assign(dst, operands.scalar(value))
        case ir.Compute():
            return _compute(stmt, operands)
        case ir.Mma(instr="mma_v2" | "mfma"):
            return _mma(stmt)
        case ir.Load(via="direct" | "buffer"):
            return _load(stmt, operands)
        case ir.Store(via="direct" | "buffer"):
            return _store(stmt, operands)
        case ir.Atomic():
            return _atomic(stmt, operands)
        case ir.For():
            return _for(stmt, operands)
        case ir.While():
            return _while(stmt, operands)
        case ir.If():
            return _if(stmt, operands)
        case ir.Programs():
            return _programs(stmt, operands)
        case ir.Roles():
            return _roles(stmt, operands)
        case ir.AllocShared() | ir.AllocBarrier() | ir.AllocTensor():
            return lambda process: None
        case _:
            run = (
                point_steps.compile_step(stmt, operands)
                or shared_steps.compile_step(stmt, operands)
                or async_steps.compile_step(stmt, operands)
                or tensor_steps.compile_step(stmt, operands)
                or named_tags.compile_step(stmt, operands)
            )
            if run is None:
                raise ValueError(f"{type(stmt).__name__} is a policy statement: expand the kernel first")
            return run


def _assign(dst: str, value: Callable[[dict[str, int]], int]) -> StepRun:
    def run(process: Process) -> None:
        process.env[dst] = value(process.env)

    return run


def _element(dst: str, item: Item, operands: Operands) -> StepRun:
    parts, name = [operands.scalar(i) for i in item.index], item.tensor

    def run(process: Process) -> None:
        tensor, index = process.machine.tensors[name], tuple(part(process.env) for part in parts)
        if wrong := tensor.not_indexed(index, len(index)):
            raise process.violation("bounds", wrong, element=index, values={"index": str(index)})
        process.env[dst] = int(tensor.array[index])

    return run


def _compute(stmt: ir.Compute, operands: Operands) -> StepRun:
    kind = operands.types[stmt.dst]
    assert isinstance(kind, TileType)
    tiles = [a.name if isinstance(a, ir.TileRef) else None for a in stmt.args]
    scalars = [
        None if isinstance(a, ir.TileRef) else a if isinstance(a, float | int) else operands.scalar(a)
        for a in stmt.args
    ]
    first = next((operands.types[name] for name in tiles if name is not None), None)
    source = first.dtype if isinstance(first, TileType) else None

    def run(process: Process) -> None:
        inputs: list[Tile] = []
        args: list[Array | int | float] = []
        for name, scalar in zip(tiles, scalars, strict=True):
            if name is not None:
                tile = process.tile(name)
                inputs.append(tile)
                args.append(tile.data)
            elif scalar is not None:
                args.append(scalar(process.env) if callable(scalar) else scalar)
        try:
            data = compute(
                stmt.op, args, kind.dtype, kind.shape, stmt.axis, stmt.keep,
                reverse=stmt.reverse, order=stmt.order, source=source,
            )  # fmt: skip
        except ArithmeticError as error:
            raise process.violation("arithmetic", str(error)) from None
        same = inputs[0] if stmt.op == "convert_layout" and inputs[0].same is None else None
        process.assign(stmt.dst, Tile(data, computed(process, stmt, inputs, kind.shape), same=same))

    return run


def _mma(stmt: ir.Mma) -> StepRun:
    # mfma multiplies f32 as it is.
    tf32 = stmt.precision == "tf32" and stmt.instr == "mma_v2"

    def run(process: Process) -> None:
        a, b, acc = process.tile(stmt.a), process.tile(stmt.b), process.tile(stmt.acc)
        tag = product(process, a.tag, b.tag, acc.tag, a.data.shape[1])
        process.assign(stmt.dst, Tile(matrix_product(a.data, b.data, acc.data, tf32=tf32), tag))

    return run


def _load(stmt: ir.Load, operands: Operands) -> StepRun:
    place_of, view, other = operands.place(stmt.view), stmt.view, stmt.other
    decided = operands.decided(stmt.view)
    name, shape = view.tensor, view.shape

    def run(process: Process) -> None:
        tensor, origin = place_of(process)
        _refuse_negative(process, tensor, origin, stmt.view)
        if other is None and (element := tensor.outside(origin, shape)) is not None:
            raise process.violation(
                "bounds",
                f"the load of {name} reaches element {element}, outside its extents {tensor.extents}, "
                "and has no other=",
                element=element,
            )
        data = tensor.read(origin, shape, 0.0 if other is None else other).reshape(view.tile_shape)
        process.assign(stmt.dst, Tile(data, loaded(process, tensor, origin, view.tile_shape, view.lead, decided)))

    return run


def _store(stmt: ir.Store, operands: Operands) -> StepRun:
    place_of, lead = operands.place(stmt.view), stmt.view.lead
    decided = operands.decided(stmt.view)

    def run(process: Process) -> None:
        tensor, origin = place_of(process)
        _refuse_negative(process, tensor, origin, stmt.view)
        tile = process.tile(stmt.src)
        stored(process, tile.tag, tensor, origin, tile.data.shape, lead, decided)
        region = process.share(tile.data.shape)
        if region is not None:
            at = origin[:lead] + tuple(o + s.start for o, s in zip(origin[lead:], region, strict=True))
            part = tile.data[region]
            tensor.write(at, part.reshape((1,) * lead + part.shape), process.machine.program)

    return run


def _atomic(stmt: ir.Atomic, operands: Operands) -> StepRun:
    place_of, lead = operands.place(stmt.view), stmt.view.lead
    decided = operands.decided(stmt.view)

    def run(process: Process) -> None:
        tensor, origin = place_of(process)
        _refuse_negative(process, tensor, origin, stmt.view)
        if not tensor.given:
            raise point_steps.uninitialized(process, tensor, origin)
        tile = process.tile(stmt.src)
        mask = None if stmt.mask is None else process.tile(stmt.mask).data
        stored(process, tile.tag, tensor, origin, tile.data.shape, lead, decided, added=stmt.op == "add")
        region = process.share(tile.data.shape)
        if region is not None:
            at = origin[:lead] + tuple(o + s.start for o, s in zip(origin[lead:], region, strict=True))
            parts = [None if a is None else a[region].reshape((1,) * lead + a[region].shape) for a in (tile.data, mask)]
            assert parts[0] is not None
            tensor.update(at, parts[0], stmt.op, parts[1], process.machine.program)

    return run


def _refuse_negative(process: Process, tensor: Tensor, origin: tuple[int, ...], view: ir.View) -> None:
    """Masks of direct accesses compare with the extent only, so a negative coordinate touches foreign memory."""
    if any(o < 0 for o in origin):
        raise process.violation(
            "bounds",
            f"the tile of {tensor.name} starts at {origin}, before its first element",
            element=origin,
            values={"origin": str(origin), "shape": str(view.shape)},
        )


def _for(stmt: ir.For, operands: Operands) -> StepRun:
    lo, hi, body = operands.scalar(stmt.lo), operands.scalar(stmt.hi), compile_block(stmt.body, operands)

    def run(process: Process) -> Events:
        first, last = lo(process.env), hi(process.env)
        process.loops.append(stmt.var)
        for value in range(first, last, stmt.step):
            process.env[stmt.var] = value
            process.machine.count_iteration()
            yield from execute(body, process)
        process.loops.pop()

    def start(process: Process) -> Events | None:
        return run(process) if lo(process.env) < hi(process.env) else None

    return start


def _while(stmt: ir.While, operands: Operands) -> StepRun:
    cond, body = operands.scalar(stmt.cond), compile_block(stmt.body, operands)
    state = sorted({s.dst for s in ir.walk(stmt.body) if isinstance(s, ir.Assign)} | names(stmt.cond))

    def endless(process: Process, turn: int, how: str) -> Exception:
        process.stmt = stmt
        values = {n: str(process.env[n]) for n in sorted(names(stmt.cond))}
        held = ", ".join(f"{n} = {v}" for n, v in values.items())
        return process.violation("endless", f"this loop {how}: {show(stmt.cond)} still holds, with {held}",
                                 values=values)  # fmt: skip

    def run(process: Process) -> Events:
        process.loops.append(stmt.turn)
        turn, before = 0, None
        while cond(process.env):
            process.env[stmt.turn] = turn
            # Scalars depend on nothing but scalars and what never changes, so what comes back comes back for ever. One
            # state is kept at a time, for twice as long each time (Brent 1980).
            now = [process.env.get(n) for n in state]
            if now == before:
                raise endless(process, turn, f"never ends: after {turn} turns its scalars are what they were before")
            if turn & (turn - 1) == 0:
                before = now
            if turn == process.machine.limits.turns:
                raise endless(process, turn, f"has not ended after {turn} turns")
            turn += 1
            yield from execute(body, process)
            process.stmt = stmt
        process.loops.pop()

    def start(process: Process) -> Events | None:
        return run(process) if cond(process.env) else None

    return start


def _if(stmt: ir.If, operands: Operands) -> StepRun:
    cond = operands.scalar(stmt.cond)
    then, orelse = compile_block(stmt.then, operands), compile_block(stmt.orelse, operands)

    def run(process: Process) -> Events | None:
        steps = then if cond(process.env) else orelse
        return execute(steps, process) if steps else None

    return run


def _programs(stmt: ir.Programs, operands: Operands) -> StepRun:
    count, body = operands.scalar(stmt.count), compile_block(stmt.body, operands)

    def run(process: Process) -> Events:
        machine, total = process.machine, count(process.env)
        for role, other in machine.grids.items():
            if role != process.role and other != total:
                raise process.violation(
                    "grid",
                    f"role {process.role} walks a grid of {total} tiles, role {role} one of {other}",
                    values={process.role: str(total), role: str(other)},
                )
        machine.grids.setdefault(process.role, total)
        first = machine.program
        turns = range(first, total, machine.programs) if stmt.persistent else range(first, min(total, first + 1))
        process.loops.append(stmt.var)
        for value in turns:
            process.env[stmt.var] = value
            yield from execute(body, process)
        process.loops.pop()

    return run


def _roles(stmt: ir.Roles, operands: Operands) -> StepRun:
    roles = [(r.name, r.warps, compile_block(r.body, operands)) for r in stmt.roles]

    def run(process: Process) -> Events:
        machine = process.machine
        # Starting the roles is a barrier over the whole program: what came before is visible to all of them.
        shared_steps.publish(process.group)
        started: list[Process] = []
        for name, warps, steps in roles:
            members = machine.start(name, warps, process.env, process.tiles, process.knowledge.known)
            for member in members:
                member.events = whole(steps, member)
            started += members
        process.waiting = "its roles to end"
        yield lambda: all(p.finished for p in started)
        for member in started:
            process.knowledge.known |= member.knowledge.known | member.knowledge.local

    return run


def whole(steps: Steps, process: Process) -> Events:
    """Run the steps of a role to its end, then check that it left no asynchronous work behind."""
    yield from execute(steps, process)
    async_steps.check_exit(process)
    shared_steps.finish(process)
