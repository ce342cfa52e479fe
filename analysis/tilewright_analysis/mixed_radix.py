"""Numbers and their digits: `n // (P * Q)`, `n // Q % P`, `n % Q` are those of one number below N * P * Q.

A number below the product of the radices and its digits determine each other, each digit takes every value below its
radix, and all combinations occur. What the solver needs seconds for, with sizes as radices, is read off here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir import expr as ex


@dataclass(frozen=True, slots=True)
class Digit:
    """`number // divisor % radix`; without a radix all that is above the divisor."""

    number: ex.Expr
    divisor: Product
    radix: Product | None


@dataclass(frozen=True, slots=True)
class Product:
    """A positive integer times factors that are not numbers, in any order."""

    coefficient: int
    factors: tuple[tuple[ex.Expr, int], ...]

    def times(self, other: Product) -> Product:
        """The product of both."""
        return _product(
            self.coefficient * other.coefficient, Counter(dict(self.factors)) + Counter(dict(other.factors))
        )

    def over(self, other: Product) -> Product | None:
        """The quotient if the other's factors are among these."""
        rest = Counter(dict(self.factors))
        rest.subtract(dict(other.factors))
        if self.coefficient % other.coefficient or any(v < 0 for v in rest.values()):
            return None
        return _product(self.coefficient // other.coefficient, rest)

    @property
    def expr(self) -> ex.Expr:
        """The product as an expression."""
        result: ex.Expr = ex.Int(self.coefficient)
        for factor, times in self.factors:
            for _ in range(times):
                result = ex.mul(result, factor)
        return result


ONE = Product(1, ())


def product_of(e: ex.Expr) -> Product | None:
    """An expression as a product of a positive number and other factors; None for a number below 1."""
    match e:
        case ex.Int(value):
            return Product(value, ()) if value > 0 else None
        case ex.Bin("*", lhs, rhs):
            one, other = product_of(lhs), product_of(rhs)
            return one.times(other) if one is not None and other is not None else None
        case _:
            return Product(1, ((e, 1),))


def digit_of(e: ex.Expr) -> Digit:
    """The expression as a digit of a number, of itself if it is no quotient and no remainder."""
    match e:
        case ex.Bin("//", lhs, rhs) if (by := product_of(rhs)) is not None:
            inner = digit_of(lhs)
            if inner.radix is None:
                return Digit(inner.number, inner.divisor.times(by), None)
            if (left := inner.radix.over(by)) is not None:
                return Digit(inner.number, inner.divisor.times(by), left)
        case ex.Bin("%", lhs, rhs) if (radix := product_of(rhs)) is not None:
            inner = digit_of(lhs)
            if inner.radix is None or inner.radix.over(radix) is not None:
                return Digit(inner.number, inner.divisor, radix)
        case _:
            pass
    return Digit(e, ONE, None)


def radices(digits: Sequence[Digit], total: Product) -> tuple[Product, ...] | None:
    """The radix of each digit, if together they are all digits of one number below `total`; None if they are not.

    Every radix must be at least 1.
    """
    if not digits or len({d.number for d in digits}) != 1:
        return None
    found: dict[int, Product] = {}
    weight = ONE
    while len(found) < len(digits):
        at = next((i for i, d in enumerate(digits) if i not in found and d.divisor == weight), None)
        if at is None:
            return None
        radix = digits[at].radix
        if radix is None:
            # The last one: it takes what is left of the total.
            radix = total.over(weight)
            if radix is None or len(found) + 1 < len(digits):
                return None
        found[at] = radix
        weight = weight.times(radix)
    return tuple(found[i] for i in range(len(digits))) if weight == total else None


def joined(
    index: Sequence[ex.Expr], extents: Sequence[ex.Expr], bounds: Iterable[tuple[ex.Expr, ex.Expr]]
) -> tuple[tuple[ex.Expr, ...], tuple[ex.Expr, ...]]:
    """An index tuple and its extents with digits replaced by the number that they are digits of.

    Only where the digits have the extents as radices and the number is one of `bounds`, (number, extent): below the
    product of the extents. Then the digits are inside exactly if the number is, and two numbers are equal exactly if
    all their digits are.
    """
    index, extents = tuple(index), tuple(extents)
    for number, bound in bounds:
        total = product_of(bound)
        at = [i for i, e in enumerate(index) if (d := digit_of(e)).number == number and d != Digit(number, ONE, None)]
        if total is None or len(at) < 2:
            continue
        digits = [digit_of(index[i]) for i in at]
        found = radices(digits, total) if any(d.radix is None for d in digits) else None
        if found is None or any(found[n] != product_of(extents[i]) for n, i in enumerate(at)):
            continue
        first = at[0]
        kept = [i for i in range(len(index)) if i == first or i not in at]
        index, extents = (
            tuple(number if i == first else index[i] for i in kept),
            tuple(total.expr if i == first else extents[i] for i in kept),
        )
    return index, extents


def conjuncts(e: ex.Expr) -> Iterator[ex.Expr]:
    """The parts of a conjunction."""
    if isinstance(e, ex.Bin) and e.op == "and":
        yield from conjuncts(e.lhs)
        yield from conjuncts(e.rhs)
    else:
        yield e


def upper_bounds(condition: ex.Expr) -> Iterator[tuple[ex.Expr, ex.Expr]]:
    """What a condition compares, as (number, bound): below the bound."""
    for part in conjuncts(condition):
        if isinstance(part, ex.Bin) and part.op == "<":
            yield part.lhs, part.rhs


def _product(coefficient: int, factors: Counter[ex.Expr]) -> Product:
    kept = sorted(((e, n) for e, n in factors.items() if n), key=lambda f: ex.show(f[0]))
    return Product(coefficient, tuple(kept))
