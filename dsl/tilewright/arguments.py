"""Arguments of a call against a kernel's declaration, told apart from what holds them: sizes, or what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError, Expr, Size, evaluate, show, walk


class ArgumentError(ValueError):
    """The arguments of a call do not fit the kernel; the message names the argument, what it is and should be."""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a tensor is: `strides` in elements (a fraction where one ends inside of it), `device` as of torch."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int | float, ...]
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.dtype} {_tuple(self.shape)}, strides {_tuple(self.strides)}, on {self.device}"


Accepted = Callable[[DType], Sequence[str]]
"""The names of the element types that an argument may have."""


def bind(kernel: ir.Kernel, given: Sequence[TensorFacts], accepted: Accepted) -> dict[str, int]:
    """The problem sizes that tensors (one a parameter, in order) give.

    Raises ArgumentError for a wrong number of arguments, element type, rank, device, extent or stride, for a size that
    no shape gives, and for an assumption that does not hold.
    """
    return _Binder(kernel, given, accepted).sizes()


def check_count(kernel: ir.Kernel, count: int) -> None:
    """Raise ArgumentError unless that is the number of the kernel's parameters."""
    if count != len(kernel.params):
        names = ", ".join(p.name for p in kernel.params)
        raise ArgumentError(f"{kernel.name} takes {len(kernel.params)} arrays ({names}), got {count}")


def check_assumptions(kernel: ir.Kernel, sizes: Mapping[str, int]) -> None:
    """Raise ArgumentError, with the values, for an assumption of the kernel that `sizes` break."""
    for assumption in kernel.assumptions:
        try:
            holds = evaluate(assumption.expr, sizes)
        except EvaluationError as error:
            raise ArgumentError(f"assumption {show(assumption.expr)} has no value: {error}") from None
        if not holds:
            used = {e.name: sizes[e.name] for e in walk(assumption.expr) if isinstance(e, Size)}
            values = ", ".join(f"{name} = {value}" for name, value in used.items())
            raise ArgumentError(f"{kernel.name} assumes {show(assumption.expr)}, which does not hold for {values}")


class _Binder:
    def __init__(self, kernel: ir.Kernel, given: Sequence[TensorFacts], accepted: Accepted) -> None:
        check_count(kernel, len(given))
        self.kernel, self.accepted = kernel, accepted
        self.pairs = tuple(zip(kernel.params, given, strict=True))
        self.bound: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def sizes(self) -> dict[str, int]:
        for param, facts in self.pairs:
            self._check_type(param, facts)
            for axis, extent in enumerate(param.type.shape):
                if isinstance(extent, Size) and extent.name not in self.bound:
                    self.bound[extent.name] = facts.shape[axis]
                    self.origin[extent.name] = f"axis {axis} of {param.name}"
        self._check_sizes()
        for param, facts in self.pairs:
            self._check_extents(param, facts)
        check_assumptions(self.kernel, self.bound)
        return self.bound

    def _check_type(self, param: ir.Param, facts: TensorFacts) -> None:
        expected = self.accepted(param.type.dtype)
        if facts.dtype not in expected:
            names = " or ".join(expected)
            self._refuse(param, facts, f"has elements {facts.dtype}, expected {names} ({param.type.dtype})")
        if len(facts.shape) != len(param.type.shape):
            shape = ", ".join(show(e) for e in param.type.shape)
            self._refuse(param, facts, f"has shape {facts.shape}, expected {len(param.type.shape)} axes [{shape}]")
        first, other = self.pairs[0]
        if facts.device != other.device:
            self._refuse(param, facts, f"is on {facts.device}, but {first.name} is on {other.device}")

    def _check_sizes(self) -> None:
        kernel, bound = self.kernel, self.bound
        missing = sorted({e.name for p in kernel.params for e in _sizes(p.type.shape)} - bound.keys())
        missing += [name for name in kernel.sizes if name not in bound and name not in missing]
        if missing:
            raise ArgumentError(
                f"size {missing[0]} cannot be read from the arguments: no tensor has it as an extent by itself"
            )
        for name, value in bound.items():
            if value < 1:
                raise ArgumentError(f"size {name} is {value} ({self.origin[name]}): sizes are at least 1")

    def _check_extents(self, param: ir.Param, facts: TensorFacts) -> None:
        for axis, (extent, stride) in enumerate(zip(param.type.shape, param.type.strides, strict=True)):
            found, want = facts.shape[axis], evaluate(extent, self.bound)
            if found != want:
                source = f", from {self.origin[extent.name]}" if isinstance(extent, Size) else ""
                words = f"has extent {found} along axis {axis}, expected {want} ({show(extent)}{source})"
                self._refuse(param, facts, words)
            step, want = facts.strides[axis], evaluate(stride, self.bound)
            # A stride is never used along an axis of extent 1, and libraries leave any value there.
            if found > 1 and step != want:
                words = f"has stride {step} along axis {axis}, expected {want} elements ({show(stride)})"
                self._refuse(param, facts, f"{words}; pass a contiguous array or declare the strides")

    def _refuse(self, param: ir.Param, facts: TensorFacts, message: str) -> None:
        name = param.name
        raise ArgumentError(
            f"{self.kernel.name}: {name} {message}\n"
            f"  {name} is {facts}\n"
            f"  {name} should be {self._expected(param)}, on {self.pairs[0][1].device}"
        )

    def _expected(self, param: ir.Param) -> str:
        """The declaration, with numbers where they are known."""
        names = " or ".join(self.accepted(param.type.dtype))
        shape = ", ".join(map(self._value, param.type.shape))
        strides = ", ".join(map(self._value, param.type.strides))
        return f"{names} [{shape}], strides ({strides}{',' if len(param.type.strides) == 1 else ''})"

    def _value(self, extent: Expr) -> str:
        try:
            value = str(evaluate(extent, self.bound))
        except EvaluationError:
            return show(extent)
        return value if value == show(extent) else f"{show(extent)} = {value}"


def _sizes(shape: Sequence[Expr]) -> list[Size]:
    return [e for extent in shape for e in walk(extent) if isinstance(e, Size)]


def _tuple(values: Sequence[int | float]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"
