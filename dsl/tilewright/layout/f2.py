"""Linear algebra over F2 on integers: a vector is an int, a matrix a tuple of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def is_power_of_two(value: int) -> bool:
    """Whether the value is 1, 2, 4, …."""
    return value > 0 and value & (value - 1) == 0


def log2_exact(value: int) -> int:
    """Exponent of a power of two; ValueError for anything else."""
    if not is_power_of_two(value):
        raise ValueError(f"{value} is not a power of two")
    return value.bit_length() - 1


def apply(columns: Sequence[int], vector: int) -> int:
    """Matrix times vector. Bits past the last column pass through unchanged."""
    count = len(columns)
    result = vector >> count << count
    for column in columns:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


@dataclass(frozen=True)
class Elimination:
    """Row-reduced form of a set of columns.

    pivots: reduced column value -> the combination of original columns (bit k = column k) that gives it,
        keyed by the leading bit of the value.
    kernel: combinations of columns that give zero; a basis of the null space.
    """

    pivots: dict[int, tuple[int, int]]
    kernel: tuple[int, ...]

    def solve(self, target: int) -> int | None:
        """One x with columns · x = target, or None. All others are x xor a combination of `kernel`."""
        combination = 0
        while target:
            pivot = self.pivots.get(target.bit_length())
            if pivot is None:
                return None
            target ^= pivot[0]
            combination ^= pivot[1]
        return combination


def eliminate(columns: Sequence[int]) -> Elimination:
    """Gaussian elimination; columns are taken in order, so early columns are preferred as pivots."""
    pivots: dict[int, tuple[int, int]] = {}
    kernel: list[int] = []
    for index, column in enumerate(columns):
        combination = 1 << index
        while column:
            pivot = pivots.get(column.bit_length())
            if pivot is None:
                pivots[column.bit_length()] = (column, combination)
                break
            column ^= pivot[0]
            combination ^= pivot[1]
        else:
            kernel.append(combination)
    return Elimination(pivots, tuple(kernel))


def have_disjoint_bits(values: Sequence[int]) -> bool:
    """Whether no bit is set in two of the values: then their sum equals their xor for every subset."""
    seen = 0
    for value in values:
        if value < 0 or value & seen:
            return False
        seen |= value
    return True
