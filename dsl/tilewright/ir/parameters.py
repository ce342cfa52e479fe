"""What a launch gives to a kernel, what is fixed at compile time, and what is assumed of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr
from tilewright.ir.types import GlobalType
from tilewright.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Param:
    """A tensor argument.

    `given` says what it holds when the kernel starts: "" (an input if it is loaded, else nothing that counts), "zeros"
    (the launch fills it), or "values" (the caller's, which atomic updates build on).
    """

    name: str
    type: GlobalType
    span: Span = field(default=NO_SPAN, compare=False)
    given: Literal["", "zeros", "values"] = ""


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A scalar argument that each launch gives: `Scalar[i32]` is `Size(name, LEAST_SCALAR)` in expressions and one of
    `Kernel.sizes`; `Scalar[f32]` is a register tile of shape () with its name. `position` counts all arguments.
    """

    name: str
    dtype: DType
    position: int
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class ConstParam:
    """A compile-time argument: its value in this instance, its default, the choices for tuning (or it alone)."""

    name: str
    value: int
    default: int
    choices: tuple[int, ...]
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class TypeParam:
    """An element type that the arguments of a call decide: its value in this instance, the default first in `choices`.

    `tensors` are the tensor arguments that are declared with it.
    """

    name: str
    value: DType
    choices: tuple[DType, ...]
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assumption:
    """A fact about sizes that the launch checks and the verifier may use; `expr` is a condition over sizes."""

    expr: Expr
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """A fact about the elements of index tensors, such as `OFFSETS[e] <= OFFSETS[e + 1]`.

    It holds for all values of `variables` for which every index of a tensor in `expr` is inside its dimension. A launch
    does not check it, because that would wait for the data; the interpreter does, and generated inputs satisfy it.
    """

    expr: Expr
    variables: tuple[str, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False)
