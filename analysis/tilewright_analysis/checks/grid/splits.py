"""Program numbers that a kernel takes apart into quotient and remainder, to name the program that writes a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir import expr as ex

from ...integers import Binder


@dataclass(frozen=True, slots=True)
class Split:
    """Program number `quotient * divisor + remainder` of the variable `name`, with 0 <= remainder < divisor."""

    name: str
    divisor: ex.Expr
    quotient: ex.Expr
    remainder: ex.Expr

    @property
    def number(self) -> ex.Expr:
        """The program number."""
        return ex.add(ex.mul(self.quotient, self.divisor), self.remainder)

    def insert(self, expr: ex.Expr, env: Mapping[str, ex.Expr]) -> ex.Expr:
        """`expr` for this program, with other variables replaced as `env` says."""
        parts: dict[ex.Expr, ex.Expr] = {
            ex.Bin("//", ex.Var(self.name), self.divisor): self.quotient,
            ex.Bin("%", ex.Var(self.name), self.divisor): self.remainder,
        }
        return ex.substitute(_replaced(expr, parts), env)

    def range(self, binder: Binder) -> list[ex.Expr]:
        """What must hold for the program to be one of those of the binder."""
        claims: list[ex.Expr] = [ex.Bin("<=", ex.Int(0), self.remainder), ex.Bin("<", self.remainder, self.divisor)]
        match binder.hi:
            case ex.Bin("*", a, b) if binder.lo == ex.Int(0) and self.divisor in (a, b):
                count = b if a == self.divisor else a
                return [*claims, ex.Bin("<=", ex.Int(0), self.quotient), ex.Bin("<", self.quotient, count)]
            case _:
                return [*claims, ex.Bin("<=", binder.lo, self.number), ex.Bin("<", self.number, binder.hi)]


def split_of(coordinates: Sequence[ex.Expr | None], tiles: Sequence[ex.Expr]) -> Split | None:
    """The program whose coordinates, quotient and remainder of its number in either order, are those of `tiles`.

    The remainder may count blocks of several tiles, of which the store writes one, and from the end.
    """
    dims = [d for d, c in enumerate(coordinates) if c != ex.Int(0)]
    for upper, lower in (dims, dims[::-1]) if len(dims) == 2 else ():
        block, length = _blocks(coordinates[lower])
        at = ex.floordiv(tiles[lower], ex.Int(length))
        match coordinates[upper], block:
            case ex.Bin("//", ex.Var(a), d), ex.Bin("%", ex.Var(b), e) if a == b and d == e:
                return Split(a, d, tiles[upper], at)
            case ex.Bin("//", ex.Var(a), d), ex.Bin("-", last, ex.Bin("%", ex.Var(b), e)) if a == b and d == e:
                return Split(a, d, tiles[upper], ex.sub(last, at))
            case _:
                pass
    return None


def _blocks(coordinate: ex.Expr | None) -> tuple[ex.Expr | None, int]:
    """(b, n) of a coordinate `b * n + r` with a constant r from 0 to n - 1."""
    match coordinate:
        case ex.Bin("+", ex.Bin("*", block, ex.Int(n)), ex.Int(r)) if 0 <= r < n:
            return block, n
        case ex.Bin("*", block, ex.Int(n)) if n > 0:
            return block, n
        case _:
            return coordinate, 1


def _replaced(expr: ex.Expr, parts: Mapping[ex.Expr, ex.Expr]) -> ex.Expr:
    if expr in parts:
        return parts[expr]
    match expr:
        case ex.Bin(op, left, right):
            return ex.binary(op, _replaced(left, parts), _replaced(right, parts))
        case ex.Not(arg):
            return ex.negate(_replaced(arg, parts))
        case _:
            return expr
