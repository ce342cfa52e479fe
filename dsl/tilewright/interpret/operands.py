"""Operands of statements, compiled: scalars, origins of views, stages of buffers, slots of barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.interpret.barriers import Slot
from tilewright.interpret.machine import Events, Process
from tilewright.interpret.memory import Stage, Tensor
from tilewright.interpret.scalars import Env, Scalar, compile_scalar
from tilewright.ir import nodes as ir
from tilewright.ir.data import Sources, tensors_behind
from tilewright.ir.expr import Expr, Int, show
from tilewright.ir.stages import seen
from tilewright.ir.types import Type
from tilewright.lines import Lines

StepRun = Callable[[Process], Events | None]
SlotOf = Callable[[Process], Slot]


@dataclass(frozen=True, slots=True)
class Operands:
    """Compiles the operands of one kernel; equal expressions are compiled once."""

    types: Mapping[str, Type]
    check_overflow: bool
    data: Sources = field(default_factory=dict[str, frozenset[str]])
    lines: Lines | None = None
    _scalars: dict[Expr, Scalar] = field(default_factory=dict[Expr, Scalar])

    def scalar(self, expr: Expr) -> Scalar:
        """The expression as a function of the environment."""
        found = self._scalars.get(expr)
        if found is None:
            found = self._scalars[expr] = compile_scalar(expr, check_overflow=self.check_overflow)
        return found

    def origin(self, view: ir.View) -> Callable[[Env], tuple[int, ...]]:
        """The origin of a view as a function of the environment."""
        parts = [self.scalar(o) for o in view.origin]
        if len(parts) == 2:
            first, second = parts
            return lambda env: (first(env), second(env))
        return lambda env: tuple(part(env) for part in parts)

    def place(self, view: ir.View) -> Callable[[Process], tuple[Tensor, tuple[int, ...]]]:
        """The tensor and the origin of a view; the function raises Violation for a fixed index that does not exist."""
        origin_of, name, lead = self.origin(view), view.tensor, view.lead

        def resolve(process: Process) -> tuple[Tensor, tuple[int, ...]]:
            tensor, origin = process.machine.tensors[name], origin_of(process.env)
            if lead and (wrong := tensor.not_indexed(origin, lead)):
                raise process.violation("bounds", wrong, element=origin, values={"origin": str(origin)})
            return tensor, origin

        return resolve

    def decided(self, view: ir.View) -> tuple[frozenset[str], ...]:
        """For each dimension of a view the tensors whose elements decide where it starts."""
        return tuple(tensors_behind((o,), self.data) for o in view.origin)

    def stage(self, ref: ir.BufRef) -> Callable[[Process], Stage]:
        """The stage that a reference means; its function raises Violation for a number that the ring does not have."""
        name, at = ref.buffer, self.scalar(ref.stage)

        def resolve(process: Process) -> Stage:
            stages, index = process.machine.stages[name], at(process.env)
            if 0 <= index < len(stages):
                return stages[index]
            raise _no_such(process, "stage", name, ref.stage, index, len(stages))

        if isinstance(ref.stage, Int) and ref.stage.value == 0:
            return lambda process: process.machine.stages[name][0]
        return resolve

    def stage_shape(self, ref: ir.BufRef) -> tuple[int, ...]:
        """The shape of a stage as the reference sees it."""
        kind = seen(self.types, ref)
        return kind.shape

    def slot(self, ref: ir.BarRef) -> Callable[[Process], Slot]:
        """The barrier slot that a reference means; its function raises Violation for one that does not exist."""
        name, at = ref.barrier, self.scalar(ref.slot)

        def resolve(process: Process) -> Slot:
            slots, index = process.machine.slots[name], at(process.env)
            if 0 <= index < len(slots):
                return slots[index]
            raise _no_such(process, "slot", name, ref.slot, index, len(slots))

        return resolve


def _no_such(process: Process, what: str, name: str, expr: Expr, index: int, count: int) -> Exception:
    return process.violation(
        "bounds",
        f"{what} {show(expr)} = {index} of {name} does not exist: it has {count}",
        values={show(expr): str(index)},
    )
