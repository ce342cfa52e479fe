"""How large an expression can get when every tensor fits into memory.

Intervals alone multiply the largest sizes with each other: M and N near 2**31 would make a grid of 2**47 tiles. But M
× N elements of a tensor occupy memory, and no device has more than `MAX_TENSOR_BYTES`. Upper bounds are therefore
kept as polynomials in the sizes with coefficients that are not negative, and each product of sizes is bounded by the
tensors that contain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from .question import MAX_SIZE, Binder
from .ranges import Interval, interval

MAX_TENSOR_BYTES = 1 << 39

Monomial = tuple[str, ...]  # names of sizes, sorted, with repetition
Polynomial = Mapping[Monomial, Fraction]


class Magnitudes:
    """Upper bounds of expressions in one kernel."""

    def __init__(self, params: Iterable[ir.Param]) -> None:
        self._tensors: list[tuple[Monomial, Fraction]] = []
        for p in params:
            monomial, factor = _monomial(p.type.shape)
            if monomial is not None:
                self._tensors.append((monomial, Fraction(MAX_TENSOR_BYTES, p.type.dtype.bytes * factor)))
        self._cap = cache(self._cap_of)

    def at_most(self, e: ex.Expr, binders: Mapping[str, Binder], env: Mapping[str, Interval]) -> int | None:
        """A number that `e` does not exceed, or None. `env` gives intervals of all names."""
        polynomial = self._upper(e, binders, env)
        if polynomial is None:
            return None
        return int(sum((c * self._cap(m) for m, c in polynomial.items()), Fraction(0)))

    def _cap_of(self, monomial: Monomial) -> Fraction:
        best = Fraction(MAX_SIZE) ** len(monomial)
        for tensor, cap in self._tensors:
            common = _common(monomial, tensor)
            if len(common) > 1:
                # Sizes are at least 1, so a part of a tensor's product is bounded like the whole.
                best = min(best, cap * self._cap(_without(monomial, common)))
        return best

    def _upper(self, e: ex.Expr, binders: Mapping[str, Binder], env: Mapping[str, Interval]) -> Polynomial | None:
        def low(x: ex.Expr) -> int | None:
            return interval(x, env, positive_divisors=True)[0]

        def go(x: ex.Expr) -> Polynomial | None:
            match x:
                case ex.Int(value):
                    return {(): Fraction(max(0, value))}
                case ex.Size(name, least):
                    # An integer argument has no part in the extents of tensors.
                    return {(name,): Fraction(1)} if least >= 1 else {(): Fraction(max(0, _most(name, env)))}
                case ex.Var(name):
                    return go(binders[name].hi) if name in binders and binders[name].bounded else None
                case ex.Bin("+", lhs, rhs):
                    return _add(go(lhs), go(rhs))
                case ex.Bin("-", lhs, rhs):
                    return go(lhs) if _nonnegative(low(rhs)) else None
                case ex.Bin("*", lhs, rhs):
                    return _times(go(lhs), go(rhs)) if _nonnegative(low(lhs), low(rhs)) else None
                case ex.Bin("//" | "cdiv" as op, lhs, rhs):
                    quotient = _scale(go(lhs), Fraction(1, max(1, low(rhs) or 1)))
                    return _add(quotient, {(): Fraction(1)}) if op == "cdiv" else quotient
                case ex.Bin("%", lhs, rhs):
                    return (go(rhs) or go(lhs)) if _nonnegative(low(lhs)) else go(rhs)
                case ex.Bin("min", lhs, rhs):
                    a, b = go(lhs), go(rhs)
                    return b if a is None or (b is not None and len(b) < len(a)) else a
                case ex.Bin("max", lhs, rhs):
                    return _add(go(lhs), go(rhs))
                case _:
                    return {(): Fraction(1)}

        return go(e)


def _most(name: str, env: Mapping[str, Interval]) -> int:
    most = env.get(name, (None, None))[1]
    return ex.GREATEST_SCALAR if most is None else most


def _monomial(shape: Iterable[ex.Expr]) -> tuple[Monomial | None, int]:
    """Names and constant factor of a product of extents; None when an extent is neither a size nor a constant."""
    names: list[str] = []
    factor = 1
    pending = list(shape)
    while pending:
        match pending.pop():
            case ex.Size(name):
                names.append(name)
            case ex.Int(value) if value > 0:
                factor *= value
            case ex.Bin("*", lhs, rhs):
                pending += [lhs, rhs]
            case _:
                return None, 1
    return tuple(sorted(names)), factor


def _common(a: Monomial, b: Monomial) -> Monomial:
    left, found = list(b), list[str]()
    for name in a:
        if name in left:
            left.remove(name)
            found.append(name)
    return tuple(found)


def _without(a: Monomial, b: Monomial) -> Monomial:
    left = list(a)
    for name in b:
        left.remove(name)
    return tuple(left)


def _add(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None:
        return None
    return {m: a.get(m, Fraction(0)) + b.get(m, Fraction(0)) for m in {**a, **b}}


def _times(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None:
        return None
    found: dict[Monomial, Fraction] = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted((*m, *n)))
            found[key] = found.get(key, Fraction(0)) + c * d
    return found


def _scale(a: Polynomial | None, factor: Fraction) -> Polynomial | None:
    return None if a is None else {m: c * factor for m, c in a.items()}


def _nonnegative(*bounds: int | None) -> bool:
    return all(b is not None and b >= 0 for b in bounds)
