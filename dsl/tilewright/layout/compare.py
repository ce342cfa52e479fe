"""Equality, injectivity and coverage of layouts, each decided with a witness.

Linear maps are decided by elimination over F2, injective affine maps by sorting strides; what is left is
enumerated up to `ENUMERATION_LIMIT` and refused above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from . import f2
from .errors import LayoutError
from .index_map import IndexMap


@dataclass(frozen=True)
class Difference:
    """A flat input index at which two layouts differ, with both flat outputs."""

    index: int
    left: int
    right: int


@dataclass(frozen=True)
class Collision:
    """Two flat input indices with the same flat output."""

    first: int
    second: int
    value: int


def difference(left: IndexMap, right: IndexMap) -> Difference | None:
    """The first index (lowest, where enumerated) at which the layouts differ as functions, or None.

    LayoutError when they have different sizes: then they are not functions on the same domain.
    """
    if left.size != right.size:
        raise LayoutError(f"layouts of {left.size} and {right.size} elements cannot be compared")
    if _same_digits(left, right):
        return None
    if left.columns is not None and right.columns is not None:
        if left.origin != right.origin:
            return Difference(0, left.origin, right.origin)
        for bit, (a, b) in enumerate(zip(left.columns, right.columns, strict=True)):
            if a != b:
                return Difference(1 << bit, left.at(1 << bit), right.at(1 << bit))
        return None
    if left.is_affine and right.is_affine:
        return _affine_difference(left, right)
    unequal = np.nonzero(left.table != right.table)[0]
    if not unequal.size:
        return None
    index = int(unequal[0])
    return Difference(index, left.at(index), right.at(index))


def equal(left: IndexMap, right: IndexMap) -> bool:
    """Whether the layouts are the same function of the flat index; names and nesting do not count."""
    return left.size == right.size and difference(left, right) is None


def collision(layout: IndexMap) -> Collision | None:
    """Two indices that share a value, or None for an injective layout."""
    if layout.columns is not None:
        kernel = f2.eliminate(layout.columns).kernel
        return Collision(0, kernel[0], layout.origin) if kernel else None
    place = 1
    for size, stride in layout.digits:
        if stride == 0 and size > 1:
            return Collision(0, place, layout.origin)
        place *= size
    if layout.is_affine or _post_is_injective(layout):
        # Sorted by stride, each digit steps over everything the smaller ones reach: no two sums meet.
        reach = 0
        digits = sorted((abs(stride), size) for size, stride in layout.digits if size > 1)
        for stride, size in digits:
            if stride <= reach:
                break
            reach += stride * (size - 1)
        else:
            return None
    order = np.argsort(layout.table, kind="stable")
    values = layout.table[order]
    repeated = np.nonzero(values[1:] == values[:-1])[0]
    if not repeated.size:
        return None
    at = int(repeated[0])
    return Collision(int(order[at]), int(order[at + 1]), int(values[at]))


def is_injective(layout: IndexMap) -> bool:
    """Whether no two indices share a value."""
    return collision(layout) is None


def uncovered(layout: IndexMap, codomain: int | None = None) -> int | None:
    """A value in [0, codomain) that no index reaches (the lowest, where enumerated), or None when all are covered.

    `codomain` defaults to the product of the output sizes; LayoutError when an output is unbounded.
    """
    total = layout.codomain if codomain is None else codomain
    if total is None:
        raise LayoutError("coverage needs a bounded output; give the codomain")
    if layout.columns is not None and f2.is_power_of_two(total):
        elimination = f2.eliminate(layout.columns)
        for value in (0, *(1 << bit for bit in range(f2.log2_exact(total)))):
            if elimination.solve(value ^ layout.origin) is None:
                return value
        return None
    if total > layout.size:
        # Fewer indices than values: something within the first size + 1 values is free.
        total = layout.size + 1
    reached = layout.table[(layout.table >= 0) & (layout.table < total)]
    seen = np.zeros(total, dtype=bool)
    seen[reached] = True
    free = np.nonzero(~seen)[0]
    return int(free[0]) if free.size else None


def is_surjective(layout: IndexMap, codomain: int | None = None) -> bool:
    """Whether every value in [0, codomain) is reached."""
    return uncovered(layout, codomain) is None


def _same_digits(left: IndexMap, right: IndexMap) -> bool:
    keep = [[digit for digit in layout.digits if digit[0] > 1] for layout in (left, right)]
    return keep[0] == keep[1] and left.offset == right.offset and left.post == right.post


def _affine_difference(left: IndexMap, right: IndexMap) -> Difference | None:
    """Affine maps with a common refinement of digits agree when they do at its places; others are enumerated."""
    if left.offset != right.offset:
        return Difference(0, left.offset, right.offset)
    boundaries = sorted(_boundaries(left) | _boundaries(right))
    nested = all(upper % lower == 0 for lower, upper in pairwise(boundaries))
    if nested:
        # On a common refinement both are sums of digit * stride, so they agree when they do at each unit digit.
        for place in boundaries[:-1]:
            if left.at(place) != right.at(place):
                return Difference(place, left.at(place), right.at(place))
        return None
    unequal = np.nonzero(left.table != right.table)[0]
    if not unequal.size:
        return None
    index = int(unequal[0])
    return Difference(index, left.at(index), right.at(index))


def _boundaries(layout: IndexMap) -> set[int]:
    """Place values of the digits, from 1 to the size."""
    places, place = {1}, 1
    for size, _ in layout.digits:
        place *= size
        places.add(place)
    return places


def _post_is_injective(layout: IndexMap) -> bool:
    return layout.post is not None and not f2.eliminate(layout.post).kernel
