"""Statements of the asynchronous proxy and of barriers: TMA, wgmma, mbarriers, and what must be over at the end."""

from __future__ import annotations

from collections import deque

import numpy as np

from tilewright.dtypes import f32
from tilewright.interpret.compute import matrix_product
from tilewright.interpret.machine import Events, Pending, Process, Tile
from tilewright.interpret.memory import Use
from tilewright.interpret.operands import Operands, SlotOf, StepRun
from tilewright.interpret.provenance import loaded, product, stored
from tilewright.interpret.schedule import Action
from tilewright.interpret.shared_steps import begin_read, begin_write
from tilewright.ir import nodes as ir


def compile_step(stmt: ir.Stmt, operands: Operands) -> StepRun | None:
    """The step of a statement of this module; None for any other."""
    match stmt:
        case ir.BarrierWait():
            return _barrier_wait(stmt, operands)
        case ir.BarrierArrive():
            return _barrier_arrive(stmt, operands)
        case ir.BarrierExpect():
            return _barrier_expect(stmt, operands)
        case ir.TmaLoad():
            return _tma_load(stmt, operands)
        case ir.TmaStore():
            return _tma_store(stmt, operands)
        case ir.TmaStoreWait(pending=pending):
            return lambda process: (
                _drain(process, process.stores, pending, "its bulk stores") if process.elected else None
            )
        case ir.Wgmma():
            return _wgmma(stmt, operands)
        case ir.WgmmaWait(pending=pending):
            return lambda process: _drain(process, process.matrix, pending, "its matrix instructions")
        case _:
            return None


def check_exit(process: Process) -> None:
    """Raise Violation if the process ends with asynchronous work that it has not waited for."""
    left = {
        "bulk stores": len(process.stores),
        "matrix instructions": len(process.matrix),
        "cp.async copies": len(process.open_copies) + sum(map(len, process.copies)),
    }
    for what, number in left.items():
        if number:
            raise process.violation(
                "exit", f"the role ends with {number} {what} it has not waited for", values={what: str(number)}
            )


def _barrier_wait(stmt: ir.BarrierWait, operands: Operands) -> StepRun:
    slot_of, parity_of = operands.slot(stmt.bar), operands.scalar(stmt.parity)

    def run(process: Process) -> Events:
        slot, parity = slot_of(process), parity_of(process.env)
        if parity not in (0, 1):
            raise process.violation("phase", f"the parity of a wait is 0 or 1, not {parity}")
        if not slot.passed(parity):
            process.waiting = f"the end of a phase of parity {parity} ({slot.describe()})"
            yield lambda: slot.passed(parity)
        ordering = process.machine.ordering
        if ordering is not None and not ordering.wait(slot, slot.phase, process.knowledge):
            raise process.violation(
                "phase",
                f"the wait on {slot.name} may pass one round early: nothing tells this role that phase "
                f"{slot.phase - 2} has ended, and that phase has the same parity as the one before it",
                values={"phase": str(slot.phase), "parity": str(parity)},
            )

    return run


def _barrier_arrive(stmt: ir.BarrierArrive, operands: Operands) -> StepRun:
    slot_of = operands.slot(stmt.bar)

    def run(process: Process) -> None:
        if process.elected:
            _arrive(process, slot_of)

    return run


def _barrier_expect(stmt: ir.BarrierExpect, operands: Operands) -> StepRun:
    slot_of, bytes_of = operands.slot(stmt.bar), operands.scalar(stmt.bytes)

    def run(process: Process) -> None:
        if not process.elected:
            return
        slot, count = slot_of(process), bytes_of(process.env)
        process.announced[slot.name] = process.announced.get(slot.name, 0) + count
        slot.announce(count)
        _arrive(process, slot_of)

    return run


def _arrive(process: Process, slot_of: SlotOf) -> None:
    slot = slot_of(process)
    ordering = process.machine.ordering
    if ordering is not None and not ordering.arrive(slot, slot.phase, process.knowledge):
        raise process.violation(
            "phase",
            f"the arrival on {slot.name} may count in phase {slot.phase - 1}: nothing tells this role that "
            "it has ended",
            values={"phase": str(slot.phase)},
        )
    if not slot.arrive():
        raise process.violation(
            "arrivals",
            f"phase {slot.phase} of {slot.name} gets more than its {slot.arrivals} arrival(s)",
            values={"arrivals": str(slot.arrivals + 1), "expected": str(slot.arrivals)},
        )


def _tma_load(stmt: ir.TmaLoad, operands: Operands) -> StepRun:
    stage_of, slot_of, place_of = operands.stage(stmt.dst), operands.slot(stmt.bar), operands.place(stmt.view)
    decided = operands.decided(stmt.view)
    view, name = stmt.view, stmt.view.tensor

    def run(process: Process) -> None:
        if not process.elected:
            return
        machine, stage, slot = process.machine, stage_of(process), slot_of(process)
        tensor, origin = place_of(process)
        region, count = stage.whole, stage.data.size * stage.dtype.bytes
        if slot.name in process.announced:
            process.announced[slot.name] -= count
            if process.announced[slot.name] < 0:
                raise process.violation(
                    "bytes",
                    f"the copies to {slot.name} deliver {-process.announced[slot.name]} bytes more than were announced",
                    values={"surplus bytes": str(-process.announced[slot.name])},
                )
        token = begin_write(process, stage, region, asynchronous=True, queue=None)
        if machine.ordering is not None:
            machine.loads.append((token, f"the load of {name}", process, stmt))
            if not machine.ordering.arrive(slot, slot.phase, process.knowledge, token):
                raise process.violation(
                    "phase",
                    f"the bytes of this load may count in phase {slot.phase - 1} of {slot.name}: nothing tells this "
                    "role that it has ended",
                    values={"phase": str(slot.phase)},
                )
        version, phase = machine.version(), slot.phase
        stage.tag = loaded(process, tensor, origin, view.tile_shape, view.lead, decided)
        iteration = {v: process.env[v] for v in process.loops}

        def complete() -> None:
            if slot.phase != phase:
                late = process.violation(
                    "bytes",
                    f"phase {phase} of {slot.name} ended before this load was complete: too few bytes were announced",
                    stmt=stmt,
                )
                late.iteration = iteration
                raise late
            stage.put(region, tensor.read(origin, view.shape, 0.0).reshape(stage.shape), version, generic=False)
            loading.done = True
            slot.deliver(count)

        loading = Action(complete, f"the load of {name}", stmt.span)
        stage.writers.append(Use(region, loading))
        machine.actions.issue(loading)

    return run


def _tma_store(stmt: ir.TmaStore, operands: Operands) -> StepRun:
    stage_of, place_of, view = operands.stage(stmt.src), operands.place(stmt.view), stmt.view
    decided = operands.decided(stmt.view)

    def run(process: Process) -> None:
        if not process.elected:
            return
        machine, stage, (tensor, origin) = process.machine, stage_of(process), place_of(process)
        token = begin_read(process, stage, stage.whole, asynchronous=True, queue=process.stores)
        stored(process, stage.tag, tensor, origin, stage.data.shape, view.lead, decided)

        def complete() -> None:
            tensor.write(origin, stage.data.reshape(view.shape), machine.program)

        storing = Action(complete, f"the store to {view.tensor}", stmt.span)
        stage.readers.append(Use(stage.whole, storing))
        process.stores.append(Pending(storing, token))
        machine.actions.issue(storing)

    return run


def _wgmma(stmt: ir.Wgmma, operands: Operands) -> StepRun:
    b_of, name = operands.stage(stmt.b), stmt.a.name if isinstance(stmt.a, ir.TileRef) else ""
    a_of = operands.stage(stmt.a) if isinstance(stmt.a, ir.BufRef) else None

    def run(process: Process) -> None:
        a, b = process.tile(name) if a_of is None else a_of(process), b_of(process)
        acc = process.tiles.get(stmt.acc)
        if acc is None or not acc.pending:
            acc = process.tile(stmt.acc)
        token = begin_read(process, b, b.whole, asynchronous=True, queue=process.matrix)
        held = a if isinstance(a, Tile) else None
        if isinstance(a, Tile):
            a.held(1)
            left_tag = a.tag
        else:
            token |= begin_read(process, a, a.whole, asynchronous=True, queue=process.matrix)
            assert isinstance(stmt.a, ir.BufRef)
            left_tag = a.seen(stmt.a.transposed)[1]
        right, right_tag = b.seen(stmt.b.transposed)
        result = Tile(_UNDEFINED, product(process, left_tag, right_tag, acc.tag, right.shape[0]), pending=True)
        # In order after the one before, which may compute the accumulator this one adds to.
        before = process.matrix[-1].action if process.matrix else None

        def complete() -> None:
            left = a.data.T if isinstance(stmt.a, ir.BufRef) and stmt.a.transposed else a.data
            result.data = matrix_product(left, right, acc.data, tf32=b.dtype == f32)

        multiplying = Action(complete, f"a matrix instruction of {process.label}", stmt.span, before)
        if not isinstance(a, Tile):
            a.readers.append(Use(a.whole, multiplying))
        b.readers.append(Use(b.whole, multiplying))
        process.assign(stmt.dst, result)
        process.matrix.append(Pending(multiplying, token, result, operand=held))
        process.machine.actions.issue(multiplying)

    return run


def _drain(process: Process, queue: deque[Pending], pending: int, what: str) -> Events | None:
    """Wait until at most the last `pending` operations of an in-order queue are left."""
    finished = [queue.popleft() for _ in range(len(queue) - pending)]
    if any(not p.action.done for p in finished):
        return _blocked_drain(process, finished, what)
    _take(process, finished)
    return None


def _blocked_drain(process: Process, finished: list[Pending], what: str) -> Events:
    process.waiting = what
    yield lambda: all(p.action.done for p in finished)
    _take(process, finished)


def _take(process: Process, finished: list[Pending]) -> None:
    for operation in finished:
        process.knowledge.known |= operation.token
        if operation.tile is not None:
            operation.tile.pending = False
        if operation.operand is not None:
            operation.operand.held(-1)


_UNDEFINED = np.zeros(0, np.float32)
