"""Combinations of values, the smallest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush


def smallest_first(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """All choices of one value from each list, by the sum of their magnitudes, then in order.

    Each list has the smallest magnitude first. Nothing is sorted: nine sizes have too many choices for that.
    """
    if not all(lists):
        return

    def entry(at: tuple[int, ...], last: int) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        values = tuple(values[i] for values, i in zip(lists, at, strict=True))
        return sum(map(abs, values)), values, at, last

    heap = [entry((0,) * len(lists), 0)]
    while heap:
        _, values, at, last = heappop(heap)
        yield values
        # Each choice is reached once: by raising its entries from the first to the last.
        for i in range(last, len(lists)):
            if at[i] + 1 < len(lists[i]):
                heappush(heap, entry((*at[:i], at[i] + 1, *at[i + 1 :]), i))
