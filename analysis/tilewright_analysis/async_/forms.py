"""Canonical linear forms of scalar expressions, so that the same value written twice is recognized.

A form is an integer constant plus rational multiples of *atoms*; an atom is a size, a variable, or an operation that is
not linear, itself over canonical operands. Fractions appear only where an assumption makes them whole: with
`K % 64 == 0` the form of `K // 64` is `1/64 * K`, and `K // 64 * 64` is `K`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, inf, lcm

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir


@dataclass(frozen=True, slots=True)
class Form:
    """`const + sum of coefficient * atom`; `terms` is sorted and holds no zero."""

    terms: tuple[tuple[ex.Expr, Fraction], ...]
    const: Fraction

    @property
    def is_constant(self) -> bool:
        """True when no atom is left."""
        return not self.terms

    def without_constant(self) -> Form:
        """The part that depends on atoms."""
        return Form(self.terms, Fraction(0))

    def names(self) -> frozenset[str]:
        """Names of all sizes and variables in the atoms, and `@T` for each tensor T of which they have elements.

        What loops compute (`opaque`) has their marks: `@` where data takes part, else `°`.
        """
        found = {n for atom, _ in self.terms for n in ex.names(atom)}
        # An element of a tensor is as fixed as a size and has no number either; `@` marks its tensor.
        items = {i.tensor for atom, _ in self.terms for i in ex.items(atom)}
        return frozenset(found | {t if t.startswith("°") else f"@{t}" for t in items})


ZERO = Form((), Fraction(0))


def constant(value: int | Fraction) -> Form:
    """The form of a number."""
    return Form((), Fraction(value))


def atom(expr: ex.Expr) -> Form:
    """The form of one atom."""
    return Form(((expr, Fraction(1)),), Fraction(0))


def add(a: Form, b: Form, factor: int | Fraction = 1) -> Form:
    """`a + factor * b`."""
    terms = dict(a.terms)
    for key, coefficient in b.terms:
        terms[key] = terms.get(key, Fraction(0)) + factor * coefficient
    return _form(terms, a.const + factor * b.const)


def scale(a: Form, factor: int | Fraction) -> Form:
    """`factor * a`."""
    return add(ZERO, a, factor)


def _form(terms: Mapping[ex.Expr, Fraction], const: Fraction) -> Form:
    kept = [(key, value) for key, value in terms.items() if value]
    if len(kept) > 1:
        for key, value in kept:
            match key:
                case ex.Bin("//", whole, ex.Int(d) as divisor) if terms.get(whole, 0) * d == -value:
                    return _instead(terms, const, key, whole, ex.Bin("%", whole, divisor), terms[whole])
                case ex.Bin("%", whole, ex.Int(d) as divisor) if terms.get(whole, 0) == -value:
                    return _instead(terms, const, key, whole, ex.Bin("//", whole, divisor), -value * d)
                case _:
                    pass
        kept.sort(key=lambda t: ex.show(t[0]))
    return Form(tuple(kept), const)


def _instead(
    terms: Mapping[ex.Expr, Fraction], const: Fraction, one: ex.Expr, other: ex.Expr, new: ex.Expr, times: Fraction
) -> Form:
    """With `times * new` instead of two terms: `x - x // d * d` is `x % d`, and `x - x % d` is `x // d * d`."""
    left = {k: v for k, v in terms.items() if k not in (one, other)}
    return _form({**left, new: left.get(new, Fraction(0)) + times}, const)


def to_expr(form: Form) -> ex.Expr:
    """An expression with the value of the form; equal forms give equal expressions."""
    denominator = 1
    for value in (form.const, *(c for _, c in form.terms)):
        denominator = denominator * value.denominator // gcd(denominator, value.denominator)
    result: ex.Expr = ex.Int(int(form.const * denominator))
    for key, coefficient in reversed(form.terms):
        result = ex.add(ex.mul(ex.Int(int(coefficient * denominator)), key), result)
    return ex.floordiv(result, ex.Int(denominator))


@dataclass(frozen=True)
class Facts:
    """What the assumptions of a kernel say about single sizes: bounds and divisors."""

    lower: Mapping[str, int]
    upper: Mapping[str, int]
    multiple: Mapping[str, int]

    @staticmethod
    def of(assumptions: Iterable[ir.Assumption]) -> Facts:
        """Bounds and divisors read off conditions such as `K % 64 == 0`, `N <= 1024`, `0 < K`; others are skipped."""
        lower: dict[str, int] = {}
        upper: dict[str, int] = {}
        multiple: dict[str, int] = {}

        def at_least(size: ex.Size, value: int) -> None:
            lower[size.name] = max(lower.get(size.name, size.least), value)

        def at_most(name: str, value: int) -> None:
            upper[name] = min(upper.get(name, value), value)

        def read(e: ex.Expr) -> None:
            match e:
                case ex.Bin("and", left, right):
                    read(left)
                    read(right)
                case ex.Bin("==", ex.Bin("%", ex.Size(name), ex.Int(m)), ex.Int(0)) if m > 0:
                    multiple[name] = multiple.get(name, 1) * m // gcd(multiple.get(name, 1), m)
                case ex.Bin("==", ex.Size() as size, ex.Int(v)) | ex.Bin("==", ex.Int(v), ex.Size() as size):
                    at_least(size, v)
                    at_most(size.name, v)
                case ex.Bin("<", ex.Int(v), ex.Size() as size):
                    at_least(size, v + 1)
                case ex.Bin("<=", ex.Int(v), ex.Size() as size):
                    at_least(size, v)
                case ex.Bin("<", ex.Size(name), ex.Int(v)):
                    at_most(name, v - 1)
                case ex.Bin("<=", ex.Size(name), ex.Int(v)):
                    at_most(name, v)
                case _:
                    pass

        for a in assumptions:
            read(a.expr)
        return Facts(lower, upper, multiple)

    def divides(self, divisor: int, key: ex.Expr, coefficient: Fraction) -> bool:
        """True when `coefficient * key` is known to be a multiple of `divisor`."""
        if isinstance(key, ex.Size):
            coefficient = coefficient * self.multiple.get(key.name, 1)
        return (coefficient / divisor).denominator == 1

    def bounds(self, form: Form) -> tuple[float, float]:
        """Lower and upper bound of a form; infinite where nothing is known. A launch has sizes of at least 1."""
        low, high = float(form.const), float(form.const)
        terms = dict(form.terms)
        for key, coefficient in form.terms:
            # d - x % d is at least 1.
            match key:
                case ex.Bin("%", _, d) if coefficient < 0 and terms.get(d, 0) >= -coefficient and self._of(d)[0] >= 1:
                    del terms[key]
                    terms[d] += coefficient
                    low -= float(coefficient)
                    high -= float(coefficient) * self._of(d)[1]
                case _:
                    pass
        for key, coefficient in terms.items():
            if not coefficient:
                continue
            a, b = self._atom_bounds(key)
            ends = (float(coefficient) * a, float(coefficient) * b)
            low += min(ends)
            high += max(ends)
        return low, high

    def _of(self, expr: ex.Expr) -> tuple[float, float]:
        return self.bounds(canonical(expr, {}, self))

    def _atom_bounds(self, key: ex.Expr) -> tuple[float, float]:
        match key:
            case ex.Size(name, least):
                return float(self.lower.get(name, least)), float(self.upper.get(name, inf))
            case ex.Bin("cdiv", ex.Size(name, least), ex.Int(d)) if d > 0 and self.lower.get(name, least) >= 1:
                return 1.0, inf
            case ex.Bin("//" | "%", ex.Size(name, least), ex.Int(d)) if d > 0 and self.lower.get(name, least) >= 0:
                return 0.0, float(d - 1) if key.op == "%" else inf
            case ex.Bin("*", a, b) if self._atom_bounds(a)[0] >= 0 and self._atom_bounds(b)[0] >= 0:
                return 0.0, inf
            case ex.Var(name) if name.startswith("%"):
                return 0.0, inf  # the number of a program
            case ex.Bin("min" | "max" as op, a, b):
                (least, most), (other, greatest) = self._of(a), self._of(b)
                choose = min if op == "min" else max
                return choose(least, other), choose(most, greatest)
            case ex.Bin("//" | "%" as op, a, b) if self._of(b)[0] >= 1:
                (least, most), (_, greatest) = self._of(a), self._of(b)
                if op == "%":
                    return 0.0, greatest - 1
                return (0.0, most) if least >= 0 else (-inf, inf)
            case _:
                return -inf, inf


def canonical(expr: ex.Expr, env: Mapping[str, Form], facts: Facts) -> Form:
    """The canonical form of `expr`, variables replaced by the forms in `env` where it has them."""

    def go(e: ex.Expr) -> Form:
        match e:
            case ex.Int(value):
                return constant(value)
            case ex.Size(name) | ex.Var(name):
                return env[name] if name in env else atom(e)
            case ex.Item(tensor, index):
                return atom(ex.Item(tensor, tuple(to_expr(go(i)) for i in index)))
            case ex.Not(arg):
                inner = go(arg)
                if inner.is_constant:
                    return constant(int(not inner.const))
                return atom(ex.negate(to_expr(inner)))
            case ex.Bin(op, lhs, rhs):
                return combine(op, go(lhs), go(rhs))

    def combine(op: ex.Op, a: Form, b: Form) -> Form:
        if op == "+":
            return add(a, b)
        if op == "-":
            return add(a, b, -1)
        if a.is_constant and b.is_constant and not (op in ("//", "%", "cdiv") and b.const == 0):
            return constant(ex.OPERATIONS[op](int(a.const), int(b.const)))
        if op == "*":
            return _product(a, b)
        if op in ("//", "%", "cdiv"):
            if b.is_constant and b.const > 0 and b.const.denominator == 1:
                return _divide(op, a, int(b.const), facts)
            return atom(ex.Bin(op, to_expr(a), to_expr(b)))
        difference = add(b, a, -1)
        if op in ("min", "max") and difference.is_constant:
            return a if (difference.const >= 0) == (op == "min") else b
        if op in ("<", "<=", "==", "!="):
            if difference.is_constant:
                return constant(ex.OPERATIONS[op](0, int(difference.const)))
            return atom(ex.Bin(op, ex.Int(0), to_expr(difference)))
        left, right = to_expr(a), to_expr(b)
        if ex.show(right) < ex.show(left):  # the operations left over are symmetric
            left, right = right, left
        return atom(ex.binary(op, left, right))

    return go(expr)


def _product(a: Form, b: Form) -> Form:
    if a.is_constant:
        return scale(b, a.const)
    if b.is_constant:
        return scale(a, b.const)
    result = constant(a.const * b.const)
    for key, coefficient in a.terms:
        result = add(result, atom(key), coefficient * b.const)
        for other, factor in b.terms:
            factors = sorted((*_factors(key), *_factors(other)), key=ex.show)
            product = factors[0]
            for f in factors[1:]:
                product = ex.Bin("*", product, f)
            result = add(result, atom(product), coefficient * factor)
    for other, factor in b.terms:
        result = add(result, atom(other), a.const * factor)
    return result


def _factors(key: ex.Expr) -> tuple[ex.Expr, ...]:
    if isinstance(key, ex.Bin) and key.op == "*":
        return (*_factors(key.lhs), *_factors(key.rhs))
    return (key,)


def _divide(op: ex.Op, a: Form, divisor: int, facts: Facts) -> Form:
    whole = {k: c for k, c in a.terms if facts.divides(divisor, k, c)}
    rest = {k: c for k, c in a.terms if k not in whole}
    if op == "cdiv":
        steps = -(-a.const // divisor)
    else:
        steps = a.const // divisor
    remainder = a.const - (a.const // divisor) * divisor
    quotient = _form({k: c / divisor for k, c in whole.items()}, Fraction(steps) if not rest else Fraction(0))
    if not rest:
        return constant(remainder) if op == "%" else quotient
    left = _form(rest, remainder if op != "cdiv" else a.const)
    if op == "%":
        return atom(ex.Bin("%", to_expr(left), ex.Int(divisor)))
    quotient = add(quotient, constant(steps)) if op == "//" else quotient
    inner = left.terms[0][0] if len(left.terms) == 1 and left.terms[0][1] == 1 and left.const == 0 else None
    if isinstance(inner, ex.Bin) and inner.op == op and isinstance(inner.rhs, ex.Int) and inner.rhs.value > 0:
        return add(quotient, atom(ex.Bin(op, inner.lhs, ex.Int(inner.rhs.value * divisor))))
    return add(quotient, atom(ex.Bin(op, to_expr(left), ex.Int(divisor))))


@dataclass(frozen=True, slots=True)
class Trip:
    """The number of steps of `step` that fit below `form`: ceil(form / step). The identity of a loop bound."""

    form: Form
    step: int

    @property
    def expr(self) -> ex.Expr:
        """The number as an expression."""
        return ex.cdiv(to_expr(self.form), ex.Int(self.step))


def trip_of(bound: Form, step: int) -> tuple[Trip, int]:
    """(trip, offset) with ceil(bound / step) = ceil(trip.form / trip.step) + offset.

    Bounds that differ by whole steps share the trip, and a bound that is itself a count `cdiv(X, d)` has that of X.
    """
    offset, remainder = divmod(bound.const, step)
    form = Form(bound.terms, remainder)
    if remainder == 0 and len(form.terms) == 1 and form.terms[0][1] == 1:
        key = form.terms[0][0]
        if isinstance(key, ex.Bin) and key.op == "cdiv" and isinstance(key.rhs, ex.Int) and key.rhs.value > 0:
            inner = canonical(key.lhs, {}, Facts({}, {}, {}))
            nested, more = trip_of(inner, key.rhs.value * step)
            return nested, int(offset) + more
    values = (form.const, *(c for _, c in form.terms))
    whole = lcm(*(v.denominator for v in values))
    common = gcd(step * whole, *(int(v * whole) for v in values))
    return Trip(scale(form, Fraction(whole, common)), step * whole // common), int(offset)
