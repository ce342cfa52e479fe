"""CuTe swizzles `Sw<B,M,S>` as matrices over F2 (cute/swizzle.hpp).

B bits at position M + max(S, 0) are xor-ed onto the B bits at position M - min(S, 0). Each is its own inverse.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import f2
from .errors import LayoutError


def swizzle_columns(bits: int, base: int, shift: int) -> tuple[int, ...]:
    """Columns of `Sw<bits,base,shift>`; higher bits pass through. LayoutError for parameters that overlap."""
    if bits < 0 or base < 0 or abs(shift) < bits:
        raise LayoutError(f"Sw<{bits},{base},{shift}>: B and M must not be negative and |S| not less than B")
    source, target = base + max(shift, 0), base - min(shift, 0)
    columns = [1 << bit for bit in range(base + abs(shift) + bits)]
    for bit in range(bits):
        columns[source + bit] ^= 1 << target + bit
    return tuple(columns)


def as_swizzle(columns: Sequence[int]) -> tuple[int, int, int] | None:
    """(B, M, S) when the matrix is a CuTe swizzle, else None; the identity is (0, 0, 0)."""
    moved = [(bit, column ^ 1 << bit) for bit, column in enumerate(columns) if column != 1 << bit]
    if not moved:
        return (0, 0, 0)
    source, extra = moved[0]
    if not f2.is_power_of_two(extra):
        return None
    shift = source - f2.log2_exact(extra)
    bits = len(moved)
    base = source - max(shift, 0)
    if abs(shift) < bits:
        return None
    expected = swizzle_columns(bits, base, shift)
    width = max(len(expected), len(columns))
    return (bits, base, shift) if _pad(expected, width) == _pad(columns, width) else None


def _pad(columns: Sequence[int], width: int) -> tuple[int, ...]:
    return (*columns, *(1 << bit for bit in range(len(columns), width)))
