"""CuTe's layout algebra: coalesce, compose, complement, divide, product; each result is proved or refused.

Definitions follow "CuTe Layout Representation and Algebra" (NVIDIA) and cute/layout.hpp. The conditions under which
composition is right are complete only with the third one below, which CuTe and pycute do not check:

1. each stride of B divides, or is divided by, the digits of A that it steps over;
2. what is left of B's digit after filling a digit of A divides evenly;
3. B's digits never carry: for each digit of A (the last, unbounded one aside) the largest contributions of all
   digits of B, and of B's offset, sum to less than its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from . import f2
from .errors import LayoutError
from .index_map import ENUMERATION_LIMIT, OFFSET, Axis, IndexMap, IntTree, Table
from .linear import from_columns

Digits: TypeAlias = "list[tuple[int, int]]"


def coalesce(layout: IndexMap) -> IndexMap:
    """The same function with one axis and as few digits as possible; LayoutError never, swizzles are kept."""
    digits = _coalesced(layout.digits)
    return replace(layout, inputs=(_axis("index", digits),))


def coalesce_each(layout: IndexMap) -> IndexMap:
    """The same function with each axis coalesced on its own."""
    return replace(layout, inputs=tuple(_axis(a.name, _coalesced(a.digits)) for a in layout.inputs))


def compose(outer: IndexMap, inner: IndexMap) -> IndexMap:
    """The map index -> outer(inner(index)), with the inputs of `inner` and the outputs of `outer`.

    The flat output of `inner` is the flat input of `outer`, whose last digit is unbounded, as in CuTe.

    Raises:
        LayoutError: with the flat index and both values where the stride-wise result would be wrong, or where
            `inner` leaves the domain of `outer`.
    """
    _check_names(outer, inner)
    if inner.post is not None:
        return _compose_linear(outer, inner)
    low, high = inner.affine_range
    if outer.codomain is not None and high >= outer.size:
        raise LayoutError(f"{inner} reaches {high}, but {outer} has {outer.size} elements", right=high)
    if low < 0:
        raise LayoutError(f"{inner} gives {low}, but {outer} has no negative indices", right=low)
    radix = _coalesced(outer.digits)
    axes: list[Axis] = []
    problem: str | None = None
    for axis in inner.inputs:
        tree, trouble = _compose_tree(radix, axis.size, axis.stride)
        problem = problem or trouble
        axes.append(Axis(axis.name, *tree))
    offset = outer.offset + _weigh(radix, inner.offset)
    if problem is None:
        problem = _carry(radix, inner)
    if problem is None:
        return IndexMap(tuple(axes), outer.outputs, offset, outer.post)
    if outer.columns is not None and inner.columns is not None and inner.cosize <= outer.size:
        return _compose_linear(outer, inner)
    candidate = IndexMap(tuple(axes), outer.outputs, offset)
    affine = replace(outer, post=None)
    index = _breaking_index(affine, inner, candidate)
    if index is None:
        # The conditions are sufficient, not necessary: enumeration has shown the result right.
        return replace(candidate, post=outer.post)
    right, wrong = affine.at(inner.at(index)), candidate.at(index)
    raise LayoutError(
        f"{outer} o {inner} is not a layout: {problem}. At index {_where(inner, index)} the composition is {right}, "
        f"but the stride-wise result {candidate} gives {wrong}",
        coordinate=index,
        left=right,
        right=wrong,
    )


def complement(layout: IndexMap, size: int | None = None) -> IndexMap:
    """The layout A* such that (A, A*) covers [0, size) exactly once, broadcast digits of A left out.

    `size` defaults to the smallest for which there is one.

    Raises:
        LayoutError: with the stride at which the sorted digits leave a gap that no digit fills evenly.
    """
    if layout.post is not None or layout.offset:
        raise LayoutError(f"{layout} has an offset or a swizzle; only plain layouts have a complement")
    digits = sorted((stride, extent) for extent, stride in layout.digits if stride != 0 and extent != 1)
    result: Digits = []
    reach = 1
    for stride, extent in digits:
        if stride < 0 or stride % reach:
            raise LayoutError(
                f"{layout} has no complement: stride {stride} is not a multiple of {reach}, "
                f"which the smaller digits fill",
                coordinate=stride,
                left=stride,
                right=reach,
            )
        result.append((stride // reach, reach))
        reach = stride * extent
    size = reach if size is None else size
    if size % reach:
        raise LayoutError(
            f"{layout} has no complement in {size} elements: it repeats every {reach}, which does not divide {size}",
            coordinate=size,
            left=size,
            right=reach,
        )
    result.append((size // reach, reach))
    return IndexMap((_axis("rest", _coalesced(result)),), OFFSET)


def concatenate(*layouts: IndexMap) -> IndexMap:
    """The layout whose modes are the given plain layouts: index sums, one axis for each."""
    axes: list[Axis] = []
    for position, layout in enumerate(layouts):
        if layout.post is not None:
            raise LayoutError(f"{layout} has a swizzle and cannot be one mode among others")
        axes.append(_as_mode(layout, str(position)))
    return IndexMap(tuple(axes), layouts[0].outputs, sum(layout.offset for layout in layouts))


def logical_divide(layout: IndexMap, tiler: IndexMap | Sequence[IndexMap]) -> IndexMap:
    """CuTe's layout ∘ (tiler, complement of tiler): mode 0 runs inside a tile, mode 1 over the tiles.

    A sequence of tilers divides axis by axis, and each axis gets both modes.
    """
    if isinstance(tiler, IndexMap):
        return compose(layout, concatenate(tiler, complement(tiler, layout.size)))
    if len(tiler) > len(layout.inputs):
        raise LayoutError(f"{len(tiler)} tilers for the {len(layout.inputs)} axes of {layout}")
    axes: list[Axis] = []
    for axis, part in zip(layout.inputs, tiler, strict=False):
        divided = logical_divide(IndexMap((axis,), OFFSET), part)
        axes.append(replace(_as_mode(divided, axis.name)))
    return replace(layout, inputs=(*axes, *layout.inputs[len(tiler) :]))


def zipped_divide(layout: IndexMap, tiler: Sequence[IndexMap]) -> IndexMap:
    """`logical_divide` by axis, regrouped to two axes: `tile` (inside) and `rest` (which tile)."""
    divided = logical_divide(layout, tiler)
    sizes: tuple[list[IntTree], list[IntTree]] = ([], [])
    strides: tuple[list[IntTree], list[IntTree]] = ([], [])
    for position, axis in enumerate(divided.inputs):
        if position < len(tiler):
            assert isinstance(axis.size, tuple) and isinstance(axis.stride, tuple)
            for part in (0, 1):
                sizes[part].append(axis.size[part])
                strides[part].append(axis.stride[part])
        else:
            sizes[1].append(axis.size)
            strides[1].append(axis.stride)
    axes = tuple(Axis(name, tuple(sizes[part]), tuple(strides[part])) for part, name in enumerate(("tile", "rest")))
    return replace(divided, inputs=axes)


def logical_product(layout: IndexMap, tiler: IndexMap) -> IndexMap:
    """(layout, complement(layout) ∘ tiler): copies of `layout` placed as `tiler` says."""
    # Room for the copies, rounded up to whole periods of a layout with gaps.
    period = max((size * stride for size, stride in layout.digits if size > 1), default=1) or 1
    room = -(-layout.size * tiler.cosize // period) * period
    return concatenate(layout, compose(complement(layout, room), tiler))


def _where(layout: IndexMap, index: int) -> str:
    return str(index) if len(layout.inputs) == 1 else f"{index} = {layout.split(index)}"


def _check_names(outer: IndexMap, inner: IndexMap) -> None:
    """Where both sides have several coordinates they must be the same ones, or the flat indices mean nothing."""
    if len(inner.outputs) == 1:
        size = inner.outputs[0].size
        if size is not None and size > outer.size:
            raise LayoutError(f"{inner} has {size} values, but {outer} only {outer.size} elements")
        return
    have = tuple((output.name, output.size) for output in inner.outputs)
    want = tuple((axis.name, axis.extent) for axis in outer.inputs)
    if have != want:
        raise LayoutError(f"the inner layout gives {_list(have)}, but the outer one takes {_list(want)}")


def _list(sides: Sequence[tuple[str, int | None]]) -> str:
    return ", ".join(f"{name}: {size}" for name, size in sides)


def _coalesced(digits: Sequence[tuple[int, int]]) -> Digits:
    result: Digits = []
    for size, stride in digits:
        if size == 1:
            continue
        if result and stride == result[-1][0] * result[-1][1]:
            result[-1] = (result[-1][0] * size, result[-1][1])
        else:
            result.append((size, stride))
    return result or [(1, 0)]


def _axis(name: str, digits: Sequence[tuple[int, int]]) -> Axis:
    size, stride = _tree(digits)
    return Axis(name, size, stride)


def _tree(digits: Sequence[tuple[int, int]]) -> tuple[IntTree, IntTree]:
    if not digits:
        return 1, 0
    if len(digits) == 1:
        return digits[0]
    return tuple(size for size, _ in digits), tuple(stride for _, stride in digits)


def _as_mode(layout: IndexMap, name: str) -> Axis:
    """All axes of a layout as one mode."""
    if len(layout.inputs) == 1:
        return replace(layout.inputs[0], name=name)
    return Axis(name, tuple(axis.size for axis in layout.inputs), tuple(axis.stride for axis in layout.inputs))


def _compose_tree(radix: Digits, size: IntTree, stride: IntTree) -> tuple[tuple[IntTree, IntTree], str | None]:
    """Composition of A's coalesced digits with one mode, keeping its nesting; and the first condition it breaks."""
    if isinstance(size, int) and isinstance(stride, int):
        digits, problem = _compose_digit(radix, size, stride)
        return _tree(digits), problem
    assert isinstance(size, tuple) and isinstance(stride, tuple)
    sizes: list[IntTree] = []
    strides: list[IntTree] = []
    problem: str | None = None
    for inner_size, inner_stride in zip(size, stride, strict=True):
        tree, trouble = _compose_tree(radix, inner_size, inner_stride)
        sizes.append(tree[0])
        strides.append(tree[1])
        problem = problem or trouble
    return (tuple(sizes), tuple(strides)), problem


def _compose_digit(radix: Digits, size: int, stride: int) -> tuple[Digits, str | None]:
    """A ∘ (size:stride). When a condition breaks, the digits are what a stride-wise rule would answer."""
    if size == 1 or stride == 0:
        return [(size, 0)], None
    if stride < 0:
        return [(size, -_weigh(radix, -stride))], f"stride {stride} is negative (condition 1)"
    result: Digits = []
    left, step = size, stride
    problem: str | None = None
    for extent, weight in radix[:-1]:
        if step % extent == 0:
            step //= extent
            continue
        if extent % step:
            problem = f"stride {stride} neither divides nor is divided by digit {extent}:{weight} (condition 1)"
            break
        room = extent // step
        if left <= room:
            result.append((left, step * weight))
            return _merged(result), None
        if left % room:
            problem = f"{size}:{stride} does not fill digit {extent}:{weight} evenly (condition 2)"
            break
        result.append((room, step * weight))
        left //= room
        step = 1
    if problem is not None:
        return [(size, _weigh(radix, stride))], problem
    if left > 1 or not result:
        result.append((left, step * radix[-1][1]))
    return _merged(result), None


def _merged(digits: Digits) -> Digits:
    return _coalesced(digits) if len(digits) > 1 else digits


def _weigh(radix: Digits, index: int) -> int:
    """Value of a flat index in the given digits."""
    value = 0
    for extent, weight in radix[:-1]:
        value += index % extent * weight
        index //= extent
    return value + index * radix[-1][1]


def _carry(radix: Digits, inner: IndexMap) -> str | None:
    """Condition 3, digit by digit of A: a text when contributions can sum to the digit's size, else None."""
    total = [0] * len(radix)
    # Under conditions 1 and 2 the digits of A that k * stride reaches are all largest at k = size - 1.
    for number in [inner.offset, *((size - 1) * stride for size, stride in inner.digits)]:
        for position, (extent, _) in enumerate(radix[:-1]):
            total[position] += number % extent
            number //= extent
    for (extent, weight), reached in zip(radix[:-1], total, strict=False):
        if reached >= extent:
            return (
                f"the digits of {inner} add up to {reached} in digit {extent}:{weight}, "
                "so an addition carries (condition 3)"
            )
    return None


def _breaking_index(outer: IndexMap, inner: IndexMap, candidate: IndexMap) -> int | None:
    """The first index at which the candidate is wrong; None when it is right everywhere.

    LayoutError when the domain is too large to enumerate and no corner of it shows the difference.
    """
    if inner.size <= ENUMERATION_LIMIT:
        wrong = np.nonzero(_lookup(outer, inner.table) != candidate.table)[0]
        return int(wrong[0]) if wrong.size else None
    places = [1]
    for size, _ in inner.digits:
        places.append(places[-1] * size)
    corners = [(size - 1) * place for (size, _), place in zip(inner.digits, places, strict=False)]
    partial = 0
    for corner in corners:
        for index in (corner, partial + corner):
            if outer.at(inner.at(index)) != candidate.at(index):
                return index
        partial += corner
    raise LayoutError(f"{outer} o {inner}: not proved, and {inner.size} elements are too many to enumerate")


def _lookup(outer: IndexMap, values: Table) -> Table:
    """`outer.at` of many indices, for an affine map."""
    result = np.full(values.shape, outer.offset, dtype=np.int64)
    digits = outer.digits_without_units
    for size, stride in digits[:-1]:
        result += values % size * stride
        values = values // size
    return result + values * digits[-1][1]


def _compose_linear(outer: IndexMap, inner: IndexMap) -> IndexMap:
    """Composition as a product of F2 matrices."""
    columns, matrix = inner.columns, outer.columns
    if columns is None or matrix is None:
        plain = inner if columns is None else outer
        raise LayoutError(
            f"{outer} o {inner}: the inner layout is swizzled, so both must be linear over F2, but {plain} is not"
        )
    reach = inner.origin
    for column in columns:
        reach |= column
    if reach >= outer.size:
        raise LayoutError(f"{inner} leaves the {outer.size} elements of {outer}", right=reach)
    product: dict[str, list[int]] = {}
    position = 0
    for axis in inner.inputs:
        count = f2.log2_exact(axis.extent)
        product[axis.name] = [f2.apply(matrix, column) for column in columns[position : position + count]]
        position += count
    return from_columns(product, outer.outputs, f2.apply(matrix, inner.origin) ^ outer.origin)
