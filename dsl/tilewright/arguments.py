"""Arguments of a call against a kernel's declaration, told apart from what holds them: sizes, or what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.ir import nodes as ir
from tilewright.ir.expr import (
    GREATEST_SCALAR,
    LEAST_SCALAR,
    EvaluationError,
    Expr,
    Size,
    evaluate,
    show,
    walk,
)


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


def bind(kernel: ir.Kernel, given: Sequence[object], accepted: Accepted) -> dict[str, int]:
    """The problem sizes that tensors give, and the integer scalars; `given` holds one of `TensorFacts` for each tensor.

    Raises ArgumentError for a wrong number of arguments, element type, rank, device, extent or stride, for a scalar
    that is no number of its type, for a size that no shape gives, and for an assumption that does not hold.
    """
    return _Binder(kernel, given, accepted).sizes()


def check_count(kernel: ir.Kernel, count: int) -> None:
    """Raise ArgumentError unless that is the number of the kernel's arguments."""
    if count != len(kernel.arguments):
        names = ", ".join(a.name for a in kernel.arguments)
        what = "arguments" if kernel.scalars else "arrays"
        raise ArgumentError(f"{kernel.name} takes {len(kernel.arguments)} {what} ({names}), got {count}")


def decisive(kernel: ir.Kernel) -> frozenset[str]:
    """Integer scalars on whose value it depends whether and how a kernel is launched."""
    exprs = [a.expr for a in kernel.assumptions] + [e for p in kernel.params for e in p.type.strides]
    exprs += [s.count for s in ir.walk(kernel.body) if isinstance(s, ir.Programs)]
    exprs += [c for s in ir.walk(kernel.body) if isinstance(s, ir.Tiles) for c in s.counts]
    return kernel.integers & {e.name for expr in exprs for e in walk(expr) if isinstance(e, Size)}


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
    def __init__(self, kernel: ir.Kernel, given: Sequence[object], accepted: Accepted) -> None:
        check_count(kernel, len(given))
        self.kernel, self.accepted = kernel, accepted
        self.pairs: list[tuple[ir.Param, TensorFacts]] = []
        self.integers: dict[str, int] = {}
        for want, one in zip(kernel.arguments, given, strict=True):
            if isinstance(want, ir.ScalarParam):
                self._scalar(want, one)
            elif isinstance(one, TensorFacts):
                self.pairs.append((want, one))
            else:
                raise ArgumentError(f"{kernel.name}: {want.name} is a tensor of {want.type.dtype}, not {one!r}")
        self.bound: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def sizes(self) -> dict[str, int]:
        for param, facts in self.pairs:
            self._check_type(param, facts)
            for axis, extent in enumerate(param.type.shape):
                if isinstance(extent, Size) and extent.name not in self.bound:
                    self.bound[extent.name] = facts.shape[axis]
                    self.origin[extent.name] = f"axis {axis} of {param.name}"
        for param, facts in self.pairs:
            for axis, stride in enumerate(param.type.strides):
                found = facts.strides[axis]
                if isinstance(stride, Size) and stride.name not in self.bound and isinstance(found, int):
                    self.bound[stride.name] = found
                    self.origin[stride.name] = f"the stride of {param.name} along axis {axis}"
        self._check_sizes()
        self.bound |= self.integers
        for param, facts in self.pairs:
            self._check_extents(param, facts)
        check_assumptions(self.kernel, self.bound)
        return self.bound

    def _scalar(self, want: ir.ScalarParam, value: object) -> None:
        name, whole = want.name, isinstance(value, int) and not isinstance(value, bool)
        if not whole and not (want.dtype.is_float and isinstance(value, float)):
            kind = "a number" if want.dtype.is_float else "an integer"
            what = "a tensor" if isinstance(value, TensorFacts) else repr(value)
            raise ArgumentError(f"{self.kernel.name}: {name} is {kind} ({want.dtype}), not {what}")
        if not want.dtype.is_float:
            assert isinstance(value, int)
            if not LEAST_SCALAR <= value <= GREATEST_SCALAR:
                limits = f"{LEAST_SCALAR} .. {GREATEST_SCALAR}"
                raise ArgumentError(f"{self.kernel.name}: {name} = {value} is not in {limits}")
            self.integers[name] = value

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
        missing = sorted(
            {e.name for p in kernel.params for e in _sizes((*p.type.shape, *p.type.strides))} - bound.keys()
        )
        missing += [n for n in kernel.sizes if n not in bound and n not in missing and n not in self.integers]
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
