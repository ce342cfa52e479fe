"""What a reshape does to the axes of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AxisSource:
    """Where an axis of a reshaped tile comes from: `kept`, the axis of the operand it is, or those it is `mixed` of."""

    kept: int | None = None
    mixed: tuple[int, ...] = ()


def reshaped_axes(old: Sequence[int], new: Sequence[int]) -> tuple[tuple[AxisSource, ...], tuple[int, ...]]:
    """For each axis of the row-major reshape from `old` to `new` its source, and the axes of extent 1 that are gone.

    An axis is kept where as many elements lie before and after it, and its extent is equal.
    """
    result: list[AxisSource] = []
    gone: list[int] = []
    i = j = 0
    while i < len(old) or j < len(new):
        here, there = (old[i] if i < len(old) else 0), (new[j] if j < len(new) else 0)
        if here == there:
            result.append(AxisSource(kept=i))
            i, j = i + 1, j + 1
        elif here == 1:
            gone.append(i)
            i += 1
        elif there == 1:
            result.append(AxisSource())
            j += 1
        else:
            first, start = i, j
            left, right = here, there
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * old[i], i + 1
                else:
                    right, j = right * new[j], j + 1
            result.extend(AxisSource(mixed=tuple(range(first, i))) for _ in range(start, j))
    return tuple(result), tuple(gone)


def parts_of(extent: int) -> tuple[int, ...]:
    """The powers of two that add up to `extent`, largest first: 192 gives (128, 64)."""
    return tuple(1 << bit for bit in reversed(range(extent.bit_length())) if extent >> bit & 1)
