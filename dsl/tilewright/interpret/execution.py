"""Run a kernel on the CPU: every program in turn, each on a machine of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.interpret.arguments import Argument, as_arguments, bind
from tilewright.interpret.contracts import check_contracts
from tilewright.interpret.machine import Machine, Tile
from tilewright.interpret.memory import Counts, Tensor
from tilewright.interpret.numeric import STORAGE
from tilewright.interpret.operands import Operands
from tilewright.interpret.provenance import summed
from tilewright.interpret.schedule import SEQUENTIAL, Limits, Schedule
from tilewright.interpret.steps import Steps, compile_block, whole
from tilewright.ir import nodes as ir
from tilewright.ir.data import data_scalars
from tilewright.ir.expr import Int, evaluate, names, show
from tilewright.lines import Lines
from tilewright.tag_space import mentioned

RESIDENT = 3
"""Programs of a persistent grid unless the caller says otherwise: few, so that each takes several tiles."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An output element that was written twice: where, and by which programs."""

    tensor: str
    element: tuple[int, ...]
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did: sizes, programs, how often each output element was written, and which first one twice."""

    sizes: Mapping[str, int]
    programs: int
    write_counts: Mapping[str, Counts]
    rewritten: tuple[Rewritten, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel ready to run many times. `covered`: the tensors of which it must write every element."""

    kernel: ir.Kernel
    limits: Limits
    steps: Steps
    split: bool
    covered: tuple[str, ...]
    sums: tuple[ir.Atomic, ...]


def run(
    kernel: ir.Kernel,
    arguments: Sequence[Argument],
    *,
    schedule: Schedule = SEQUENTIAL,
    programs: int | None = None,
    limits: Limits | None = None,
) -> RunReport:
    """Execute an explicit kernel on NumPy arrays and numbers, one for each of `kernel.arguments`, in place.

    bf16 tensors are uint16 arrays of bit patterns or float32 arrays of values; outputs are rounded to nearest even.
    Matrix instructions multiply and sum in float32. `programs` is the number of programs of a persistent grid
    (default 3).

    Raises ArgumentError if the arguments do not fit or an assumption or data contract does not hold, Violation if
    the kernel does what no correct kernel does, ValueError for a kernel with policy statements.
    """
    return execute_compiled(compile_kernel(kernel, limits or Limits()), arguments, schedule, programs)


def interpret(kernel: ir.Kernel, *arguments: Any) -> RunReport:
    """`run` for NumPy arrays and CPU tensors that offer `.numpy()`."""
    return run(kernel, as_arguments(arguments))


def compile_kernel(kernel: ir.Kernel, limits: Limits) -> Compiled:
    """Closures for the statements of a kernel. Raises ValueError for policy statements."""
    has_roles = any(isinstance(stmt, ir.Roles) for stmt in ir.walk(kernel.body))
    operands = Operands(kernel.types, limits.check_overflow, data_scalars(kernel.body), Lines(kernel))
    sums = tuple(stmt for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Atomic))
    return Compiled(kernel, limits, compile_block(kernel.body, operands), not has_roles, covered(kernel), sums)


def execute_compiled(
    compiled: Compiled, arguments: Sequence[Argument], schedule: Schedule, programs: int | None
) -> RunReport:
    """`run` for a compiled kernel."""
    kernel = compiled.kernel
    bound = bind(kernel, arguments)
    sizes = bound.sizes
    if kernel.contracts:
        check_contracts(kernel, bound.arrays, sizes)
    dtypes = {s.name: STORAGE[s.dtype.name] for s in kernel.scalars}
    scalars = {name: Tile(np.asarray(value, dtypes[name])) for name, value in bound.numbers.items()}
    tensors = {
        p.name: Tensor(
            p.name,
            p.type.dtype,
            bound.arrays[p.name],
            tuple(None if isinstance(e, Int) else show(e) for e in p.type.shape),
            p.given,
        )
        for p in kernel.params
    }
    for param in kernel.params:
        if param.given == "zeros":
            bound.arrays[param.name][...] = 0
    launched = launch(kernel, sizes, programs)
    tracked = mentioned(kernel) if schedule.tags else frozenset[str]()
    for program in range(launched):
        machine = Machine(kernel, tensors, program, launched, schedule, compiled.limits, tracked)
        # A kernel with roles starts them from one process; any other is itself the only role, with all its warpgroups.
        for process in machine.start("", kernel.warps if compiled.split else 1, dict(sizes), dict(scalars), 0):
            process.events = whole(compiled.steps, process)
        machine.run()
    for stmt in compiled.sums:
        summed(tensors[stmt.view.tensor], stmt.span)
    for name in compiled.covered:
        tensor = tensors[name]
        if tensor.counts is None:
            tensor.counts = np.zeros(tensor.extents, np.int32)
    counts = {name: counts for name in compiled.covered if (counts := tensors[name].counts) is not None}
    twice = tuple(Rewritten(t.name, *t.rewritten) for t in tensors.values() if t.rewritten is not None)
    return RunReport(sizes, launched, counts, twice)


def outputs(kernel: ir.Kernel) -> tuple[str, ...]:
    """Names of the tensors that a kernel stores to or accumulates into, in parameter order."""
    stored = {s.view.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Store | ir.TmaStore | ir.Atomic)}
    stored |= {s.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Scatter)}
    return tuple(p.name for p in kernel.params if p.name in stored)


def covered(kernel: ir.Kernel) -> tuple[str, ...]:
    """Names of the tensors of which a kernel must write every element: it stores to them, and nothing is in them."""
    stored = {s.view.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Store | ir.TmaStore)}
    return tuple(p.name for p in kernel.params if p.name in stored and not p.given)


def launch(kernel: ir.Kernel, sizes: Mapping[str, int], programs: int | None) -> int:
    """The number of programs that a call launches: that of the first grid; 1 for a kernel without one."""
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Programs) and names(stmt.count) <= sizes.keys():
            count = evaluate(stmt.count, sizes)
            return min(count, max(1, programs or RESIDENT)) if stmt.persistent else count
    return 1
