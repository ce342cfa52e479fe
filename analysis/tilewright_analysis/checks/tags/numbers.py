"""What is known of a number: its sign, whether it is zero, infinite or no number, and its value if it has only one.

Numbers in tensors are finite, and arithmetic on finite numbers that are not constants stays finite: overflow, underflow
and division by data that happens to be zero are not modelled. Constants are computed with, so `0 * inf` and
`-inf - -inf` are seen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf, isinf, isnan, nan
from typing import Any

import numpy as np

from tilewright.dtypes import DType, f64
from tilewright.interpret.compute import compute
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

# A few numbers of each kind: enough to see every kind of result of the operations below.
_SAMPLES: Mapping[str, tuple[float, ...]] = {
    "-": (-3.0, -1.0, -0.25), "0": (0.0,), "+": (0.25, 1.0, 3.0), "-inf": (-inf,), "inf": (inf,), "nan": (nan,),
}  # fmt: skip
_FINITE = frozenset(("-", "0", "+"))
_ALL = frozenset(_SAMPLES)
_SAMPLED: frozenset[str] = frozenset((
    "neg", "abs", "exp", "exp2", "expm1", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "floor", "ceil", "round", "trunc",
    "add", "sub", "mul", "div", "maximum", "minimum", "fma", "log", "log2",
))  # fmt: skip
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
_ORDER = ("-inf", "-", "0", "+", "inf")


@dataclass(frozen=True, slots=True)
class Number:
    """The kinds that a number may be of, and its value if there is only one."""

    kinds: frozenset[str]
    value: float | None = None

    def __or__(self, other: Number) -> Number:
        same = self.value is not None and self.value == other.value
        return Number(self.kinds | other.kinds, self.value if same else None)

    @property
    def is_zero(self) -> bool:
        """True if it can be nothing but zero."""
        return self.kinds == frozenset("0")

    @property
    def is_finite(self) -> bool:
        """True if it is neither infinite nor NaN."""
        return self.kinds <= _FINITE

    def may(self, kind: str) -> bool:
        """Whether it may be of that kind."""
        return kind in self.kinds

    def without_nan(self) -> Number:
        """The number if it is one."""
        return Number(self.kinds - {"nan"}, self.value) if self.kinds > frozenset(("nan",)) else self

    def without_minus_infinity(self) -> Number:
        """The number if it is not minus infinity."""
        return Number(self.kinds - {"-inf"}, None if self.value == -inf else self.value)

    def at_most(self, other: Number) -> bool:
        """True if it is certainly not above `other`; NaN is not comparable."""
        if "nan" in self.kinds | other.kinds:
            return False
        if self.value is not None and self.value == other.value:
            return True
        highest = max((_ORDER.index(k) for k in self.kinds), default=0)
        lowest = min((_ORDER.index(k) for k in other.kinds), default=len(_ORDER))
        return highest < lowest or (highest == lowest and _ORDER[highest] in ("-inf", "0", "inf"))

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:g}"
        if self.kinds == _FINITE:
            return "any number"
        names = {"-": "negative", "0": "0", "+": "positive", "-inf": "-inf", "inf": "inf", "nan": "NaN"}
        return " or ".join(names[k] for k in names if k in self.kinds)


FINITE = Number(_FINITE)
NOTHING = Number(frozenset())
ANYTHING = Number(_ALL)
NATURAL = Number(frozenset(("0", "+")))


def constant(value: float) -> Number:
    """The number that is `value`."""
    return Number(frozenset((_kind(value),)), None if isnan(value) else value)


def scalar(expr: ex.Expr | float) -> Number:
    """A scalar operand: sizes are at least 1."""
    match expr:
        case int() | float():
            return constant(float(expr))
        case ex.Int(value):
            return constant(float(value))
        case ex.Size(least=least) if least >= 1:
            return Number(frozenset("+"))
        case ex.Bin("*" | "+" | "cdiv" | "min" | "max", lhs, rhs):
            both = scalar(lhs).kinds | scalar(rhs).kinds
            return Number(frozenset("+")) if both == frozenset("+") else FINITE
        case _:
            return FINITE


def loaded(dtype: DType) -> Number:
    """An element of a tensor."""
    return NATURAL if dtype.kind in ("bool", "uint") else FINITE


def cast(number: Number, dtype: DType) -> Number:
    """The number converted to an element type."""
    whole = number.value is not None and number.is_finite and number.value == int(number.value)
    return number if dtype.is_float or whole else loaded(dtype)


def apply(op: ir.ComputeOp, args: list[Number], dtype: DType) -> Number:
    """The result of an elementwise operation other than `where`."""
    if any(not a.kinds for a in args):
        return NOTHING
    if op in ("copy", "convert_layout"):
        return args[0]
    if op == "cast":
        return cast(args[0], dtype)
    if op in _COMPARED and all(a.value is not None for a in args):
        return constant(float(_COMPARED[op](args[0].value, args[1].value)))
    if op == "and" and any(a.is_zero for a in args):
        return constant(0.0)
    if op in (*_COMPARED, "isnan", "and", "or", "not", "rand"):
        return NATURAL
    if op in ("bitcast", "pow", "log1p"):
        return ANYTHING if dtype.is_float else loaded(dtype)
    if op not in _SAMPLED or not dtype.is_float:
        exact = all(a.is_zero for a in args) and op in ("add", "sub", "mul", "neg", "abs", "maximum", "minimum")
        return args[0] if exact else (FINITE if all(a.is_finite for a in args) else ANYTHING)
    return _sampled(op, args)


def _sampled(op: ir.ComputeOp, args: list[Number]) -> Number:
    return _sampled_once(op, tuple(args))


@lru_cache(maxsize=4096)
def _sampled_once(op: ir.ComputeOp, args: tuple[Number, ...]) -> Number:
    if all(a.value is not None for a in args):
        return constant(_evaluate(op, [a.value or 0.0 for a in args]))
    kinds: set[str] = set()
    unlikely: set[str] = set()
    for choice in product(*(sorted(a.kinds) for a in args)):
        sets = [_SAMPLES[k] if a.value is None else (a.value,) for a, k in zip(args, choice, strict=True)]
        found = {_kind(_evaluate(op, values)) for values in product(*sets)}
        exact = any(k not in _FINITE for k in choice) or all(a.value is not None or a.is_zero for a in args)
        kinds |= found if exact else found & _FINITE
        unlikely |= found
    return Number(frozenset(kinds or unlikely))


def _evaluate(op: ir.ComputeOp, values: Iterable[float]) -> float:
    return float(compute(op, [np.asarray([v]) for v in values], f64, (1,), None, False)[0])


def total(parts: Number) -> Number:
    """The sum of several numbers of which each is like `parts`."""
    if parts.is_zero or not parts.kinds:
        return parts
    once = Number(parts.kinds)
    return once | _sampled("add", [once, once])


def _kind(value: float) -> str:
    if isnan(value):
        return "nan"
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    return "0" if value == 0 else "+" if value > 0 else "-"
