"""Statements on tensor memory: tcgen05 products, their completion on barriers, and loads into registers.

Products of one thread execute in order, so a later one may add to the accumulator of an earlier one in flight; nobody
else may touch an accumulator before a barrier has said that it is complete.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.interpret.compute import matrix_product
from tilewright.interpret.happens_before import Knowledge
from tilewright.interpret.machine import Process, Sum, Tile
from tilewright.interpret.memory import Use
from tilewright.interpret.operands import Operands, StepRun
from tilewright.interpret.provenance import product
from tilewright.interpret.schedule import Action
from tilewright.interpret.shared_steps import begin_read, begin_write
from tilewright.interpret.tags import Tag
from tilewright.ir import nodes as ir


def compile_step(stmt: ir.Stmt, operands: Operands) -> StepRun | None:
    """The step of a statement of this module; None for any other."""
    match stmt:
        case ir.Tcgen05():
            return _multiply(stmt, operands)
        case ir.Tcgen05Commit():
            return _commit(stmt, operands)
        case ir.TensorLoad():
            return _load(stmt, operands)
        case _:
            return None


def _multiply(stmt: ir.Tcgen05, operands: Operands) -> StepRun:
    a_of, b_of, acc_of = operands.stage(stmt.a), operands.stage(stmt.b), operands.stage(stmt.acc)
    accumulate_of = operands.scalar(stmt.accumulate)
    arrive = _arrival(stmt.bar, operands, stmt)

    def run(process: Process) -> None:
        if not process.elected:
            return
        machine, a, b, acc = process.machine, a_of(process), b_of(process), acc_of(process)
        again = bool(accumulate_of(process.env))
        _forget_complete(process)
        token = begin_read(process, a, a.whole, asynchronous=True, queue=process.tensor)
        token |= begin_read(process, b, b.whole, asynchronous=True, queue=process.tensor)
        earlier = process.accumulating.get(acc.name)
        if again and earlier is None and not acc.version.all():
            raise process.violation("uninitialized", f"{acc.name} is added to, but nothing was written there before")
        held = Sum(acc.data.copy()) if earlier is None else earlier
        # The thread's own products into the accumulator are ordered before this one, complete or not.
        acc.writers[:] = [use for use in acc.writers if use.action not in process.tensor]
        outside = process.knowledge
        process.knowledge = Knowledge(outside.known | process.products, outside.local)
        token |= begin_write(process, acc, acc.whole, asynchronous=True, queue=process.tensor)
        process.knowledge = outside
        process.products |= token
        if machine.ordering is not None:
            machine.loads.append((token, f"the product into {acc.name}", process, stmt))
        version = machine.version()
        (left, left_tag), (right, right_tag) = a.seen(stmt.a.transposed), b.seen(stmt.b.transposed)
        if machine.schedule.tags:
            before = acc.tag if again else Tag((None,) * len(acc.shape))
            acc.tag = product(process, left_tag, right_tag, before, left.shape[1])
        total = Sum(np.zeros(acc.shape, np.float32))

        def complete() -> None:
            total.data = matrix_product(left, right, held.data if again else total.data)
            acc.put(acc.whole, total.data, version, generic=False)

        multiplying = Action(complete, f"a product into {acc.name}", stmt.span, _last(process))
        for stage in (a, b):
            stage.readers.append(Use(stage.whole, multiplying))
        acc.writers.append(Use(acc.whole, multiplying))
        process.tensor.append(multiplying)
        process.accumulating[acc.name] = total
        machine.actions.issue(multiplying)
        arrive(process)

    return run


def _forget_complete(process: Process) -> None:
    process.tensor[:] = [action for action in process.tensor if not action.done]
    if not process.tensor:
        process.accumulating.clear()


def _commit(stmt: ir.Tcgen05Commit, operands: Operands) -> StepRun:
    arrive = _arrival(stmt.bar, operands, stmt)

    def run(process: Process) -> None:
        if process.elected:
            arrive(process)

    return run


def _arrival(bar: ir.BarRef, operands: Operands, stmt: ir.Stmt) -> Callable[[Process], None]:
    """An arrival that counts when the products so far of a process are complete."""
    slot_of = operands.slot(bar)

    def issue(process: Process) -> None:
        machine, slot = process.machine, slot_of(process)
        if machine.ordering is not None and not machine.ordering.arrive(
            slot, slot.phase, process.knowledge, process.products
        ):
            raise process.violation(
                "phase",
                f"the arrival on {slot.name} may count in phase {slot.phase - 1}: nothing tells this role that it has "
                "ended",
                values={"phase": str(slot.phase)},
            )
        phase = slot.phase
        iteration = {v: process.env[v] for v in process.loops}

        def complete() -> None:
            if slot.phase != phase or not slot.arrive():
                late = process.violation(
                    "arrivals",
                    f"phase {phase} of {slot.name} gets more than its {slot.arrivals} arrival(s)",
                    stmt=stmt,
                    values={"expected": str(slot.arrivals)},
                )
                late.iteration = iteration
                raise late

        arriving = Action(complete, f"an arrival on {slot.name}", stmt.span, _last(process))
        process.tensor.append(arriving)
        machine.actions.issue(arriving)

    return issue


def _last(process: Process) -> Action | None:
    return process.tensor[-1] if process.tensor else None


def _load(stmt: ir.TensorLoad, operands: Operands) -> StepRun:
    stage_of = operands.stage(stmt.src)

    def run(process: Process) -> None:
        stage = stage_of(process)
        token = begin_read(process, stage, stage.whole, asynchronous=False, queue=process)
        process.knowledge.local |= token
        reading = Action(_nothing, f"the load of {stage.name} by {process.label}", stmt.span)
        stage.readers.append(Use(stage.whole, reading))
        # Each warp reads its own lanes; the others of the role are known to be done after a sync.
        process.until_sync.append(reading)
        process.assign(stmt.dst, Tile(stage.data.copy(), stage.tag))

    return run


def _nothing() -> None:
    """A load has no effect of its own."""
