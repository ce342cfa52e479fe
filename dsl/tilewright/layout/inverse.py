"""Inverses of layouts, and the owners of an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from . import f2
from .algebra import coalesce, complement, compose, concatenate
from .compare import collision, uncovered
from .errors import LayoutError
from .index_map import Axis, IndexMap, Output
from .linear import from_columns

# More owners than this of one element are not listed.
OWNER_LIMIT = 1 << 16


def right_inverse(layout: IndexMap) -> IndexMap:
    """R with layout(R(v)) = v for all v below R's size, which is as large as digits or bits allow.

    CuTe's `right_inverse`. The outputs of R are the inputs of `layout`.
    LayoutError for an offset, or for a swizzle over digits that are no powers of two.
    """
    outputs = tuple(Output(axis.name, axis.extent) for axis in layout.inputs)
    if layout.post is not None:
        columns = layout.columns
        if columns is None or layout.origin:
            raise LayoutError(f"{layout} is not linear over F2 from 0, so its inverse is no layout")
        elimination = f2.eliminate(columns)
        images: list[int] = []
        while (image := elimination.solve(1 << len(images))) is not None:
            images.append(image)
        return from_columns({"value": images}, outputs)
    if layout.offset:
        raise LayoutError(f"{layout} never gives 0 at index 0; take the offset off first")
    place = 1
    candidates: list[tuple[int, int, int]] = []
    for size, stride in coalesce(layout).digits:
        if size > 1 and stride > 0:
            candidates.append((stride, size, place))
        place *= size
    sizes: list[int] = []
    strides: list[int] = []
    reach = 1
    for stride, size, index in sorted(candidates):
        # The digit continues what the smaller ones cover, or it repeats or skips values: then it is of no use.
        if stride == reach:
            sizes.append(size)
            strides.append(index)
            reach = stride * size
    if not sizes:
        return IndexMap((Axis("value", 1, 0),), outputs)
    flat = IndexMap((Axis("value", tuple(sizes), tuple(strides)),), outputs)
    return coalesce(flat).named(inputs=["value"])


def left_inverse(layout: IndexMap) -> IndexMap:
    """L with L(layout(i)) = i for all i; CuTe's `left_inverse`.

    LayoutError with the two indices that share a value when the layout is not injective.
    """
    clash = collision(layout)
    if clash is not None:
        raise LayoutError(
            f"{layout} has no left inverse: indices {clash.first} and {clash.second} both give {clash.value}",
            coordinate=clash.first,
            left=clash.first,
            right=clash.second,
        )
    outputs = tuple(Output(axis.name, axis.extent) for axis in layout.inputs)
    columns = layout.columns
    if columns is not None:
        return _linear_left_inverse(layout, columns, outputs)
    if not layout.is_affine or layout.offset:
        raise LayoutError(f"{layout} is not linear over F2 and not affine from 0, so its inverse is no layout")
    plain = replace(layout, outputs=(Output("offset"),))
    reach = max(stride * size for size, stride in plain.digits_without_units) if plain.size > 1 else 1
    whole = right_inverse(concatenate(plain, complement(plain, reach)))
    # The complement's digits are the slowest, so they only add multiples of the size: not wanted, but harmless
    # on the image. The last output stays unbounded to admit them.
    return replace(whole, outputs=(*outputs[:-1], Output(outputs[-1].name)))


def inverse(layout: IndexMap) -> IndexMap:
    """The inverse of a bijection onto bounded outputs: inputs and outputs change places, names included.

    LayoutError with the collision or the value not reached when the layout is no bijection.
    """
    free = uncovered(layout)
    if free is not None:
        raise LayoutError(f"{layout} has no inverse: {layout.unpack(free)} is not reached", coordinate=free)
    outputs = tuple(Output(axis.name, axis.extent) for axis in layout.inputs)
    flat = replace(left_inverse(layout), outputs=outputs)
    names = [(output.name, output.size or 1) for output in layout.outputs]
    axes: list[Axis] = []
    scale = 1
    for name, size in names:
        axes.append(Axis(name, size, scale))
        scale *= size
    return compose(flat, IndexMap(tuple(axes), (Output("value", scale),)))


def owners(layout: IndexMap, coordinate: Sequence[int]) -> list[dict[str, int]]:
    """All inputs, for example (register, lane, warp), that hold the element at `coordinate`; none when empty.

    Args:
        layout: a distributed layout, as `Blocked(...).linear(shape)`.
        coordinate: one index for each output.
    """
    return [_named(layout, index) for index in owner_indices(layout, coordinate)]


def owner(layout: IndexMap, coordinate: Sequence[int]) -> dict[str, int]:
    """The first holder of an element: lowest register, then lane, then warp; LayoutError when there is none."""
    indices = owner_indices(layout, coordinate)
    if not indices:
        raise LayoutError(f"no owner holds the element at {tuple(coordinate)}", coordinate=tuple(coordinate))
    return _named(layout, indices[0])


def owner_indices(layout: IndexMap, coordinate: Sequence[int]) -> list[int]:
    """Flat input indices that give `coordinate`, ascending."""
    value = layout.pack(coordinate)
    if layout.columns is None:
        return [int(index) for index in np.nonzero(layout.table == value)[0]]
    elimination = f2.eliminate(layout.columns)
    first = elimination.solve(value ^ layout.origin)
    if first is None:
        return []
    if len(elimination.kernel) >= OWNER_LIMIT.bit_length():
        raise LayoutError(f"the element at {tuple(coordinate)} has more than {OWNER_LIMIT} owners")
    found = [first]
    for direction in elimination.kernel:
        found.extend([index ^ direction for index in found])
    # Ascending: each direction's highest bit is one that no earlier direction, nor the first solution, has set.
    return found


def _named(layout: IndexMap, index: int) -> dict[str, int]:
    return dict(zip((axis.name for axis in layout.inputs), layout.split(index), strict=True))


def _linear_left_inverse(layout: IndexMap, columns: tuple[int, ...], outputs: tuple[Output, ...]) -> IndexMap:
    """Complete the columns to a basis with unit vectors, invert, and drop what belongs to the unit vectors."""
    codomain = layout.codomain
    width = max(column.bit_length() for column in (*columns, layout.origin))
    if codomain is not None:
        width = max(width, (codomain - 1).bit_length())
    units = [1 << bit for bit in range(width)]
    elimination = f2.eliminate([*columns, *units])
    mask = (1 << len(columns)) - 1
    images: list[int] = []
    for unit in units:
        combination = elimination.solve(unit)
        assert combination is not None
        images.append(combination & mask)
    origin = elimination.solve(layout.origin)
    assert origin is not None
    return from_columns({"value": images}, outputs, origin & mask)
