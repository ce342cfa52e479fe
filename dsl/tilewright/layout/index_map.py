"""The representation behind every layout: named inputs, mixed-radix digits, strides, an offset, an F2 matrix.

A map takes the flat index of its inputs to the flat index of its outputs::

    value = post(offset + sum of digit * stride)

where the digits are those of the input index in the mixed radix of the input sizes, and `post` is a matrix over
F2 on the bits of the value (identity when absent). Everything is *colexicographic*, as in CuTe: the first axis
is the fastest, for inputs and for outputs. So the flat output of one map is the flat input of the next, and the
names of both sides are labels on the same integers.

CuTe layouts (`cute.py`) are maps with nested axes and one unbounded output `offset`; linear layouts
(`linear.py`) are maps whose digits are all bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import f2
from .errors import LayoutError
from .swizzle import as_swizzle

IntTree: TypeAlias = "int | tuple[IntTree, ...]"
Table: TypeAlias = NDArray[np.int64]

# The largest domain that proofs enumerate: 4 Mi entries of 8 bytes take about 10 ms.
ENUMERATION_LIMIT = 1 << 22


@dataclass(frozen=True)
class Axis:
    """One named input: a nested size and a congruent nested stride, as in one mode of a CuTe layout."""

    name: str
    size: IntTree
    stride: IntTree

    def __post_init__(self) -> None:
        check_congruent(self.size, self.stride)
        for size in leaves(self.size):
            if size < 1:
                raise LayoutError(f"axis {self.name}: size {size} is not positive")

    @property
    def extent(self) -> int:
        """Number of index values."""
        return prod(leaves(self.size))

    @property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """The (size, stride) pairs, fastest first."""
        return tuple(zip(leaves(self.size), leaves(self.stride), strict=True))


@dataclass(frozen=True)
class Output:
    """One named output; `size` None is unbounded, which only the last output may be."""

    name: str
    size: int | None = None


OFFSET = (Output("offset"),)


@dataclass(frozen=True)
class IndexMap:
    """A layout; see the module docstring. Values compare by structure, `equal` in `compare.py` by function."""

    inputs: tuple[Axis, ...]
    outputs: tuple[Output, ...] = OFFSET
    offset: int = 0
    post: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.outputs or any(output.size is None for output in self.outputs[:-1]):
            raise LayoutError("only the last output of a layout may be unbounded")
        if self.post is not None:
            low, high = self.affine_range
            widens = any(column >> len(self.post) for column in self.post)
            if low < 0 or (widens and high >> len(self.post)):
                raise LayoutError(
                    f"a swizzle acts on {len(self.post)}-bit values, but the layout under it spans [{low}, {high}]"
                )

    @cached_property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """The (size, stride) pairs of all axes, fastest first."""
        return tuple(digit for axis in self.inputs for digit in axis.digits)

    @cached_property
    def digits_without_units(self) -> tuple[tuple[int, int], ...]:
        """The digits of more than one value; (1, 0) when there is none."""
        return tuple(digit for digit in self.digits if digit[0] > 1) or ((1, 0),)

    @cached_property
    def size(self) -> int:
        """Number of input indices."""
        return prod(axis.extent for axis in self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each input."""
        return tuple(axis.extent for axis in self.inputs)

    @property
    def affine_range(self) -> tuple[int, int]:
        """Smallest and largest value before `post`."""
        spans = [(size - 1) * stride for size, stride in self.digits]
        return self.offset + sum(s for s in spans if s < 0), self.offset + sum(s for s in spans if s > 0)

    @property
    def is_affine(self) -> bool:
        """Whether there is no swizzle."""
        return self.post is None

    def at(self, index: int) -> int:
        """Flat output of a flat input index. The last digit of more than one value is unbounded, as in CuTe."""
        value = self.offset
        digits = self.digits_without_units
        for size, stride in digits[:-1]:
            value += index % size * stride
            index //= size
        value += index * digits[-1][1]
        return value if self.post is None else f2.apply(self.post, value)

    def __call__(self, *coordinate: IntTree) -> int:
        """Flat output: of one flat index, or of one coordinate (flat or nested) for each input."""
        if len(coordinate) == 1 and isinstance(coordinate[0], int):
            return self.at(coordinate[0])
        if len(coordinate) != len(self.inputs):
            raise LayoutError(f"{len(self.inputs)} coordinates expected, got {len(coordinate)}")
        index, scale = 0, 1
        for axis, value in zip(self.inputs, coordinate, strict=True):
            index += scale * flat_index(value, axis.size)
            scale *= axis.extent
        return self.at(index)

    def apply(self, **coordinates: int) -> dict[str, int]:
        """Named outputs of named inputs; inputs not given are 0. LayoutError when one is out of range."""
        for name in coordinates.keys() - {axis.name for axis in self.inputs}:
            raise LayoutError(f"the layout has no input {name!r}; it has {', '.join(a.name for a in self.inputs)}")
        index, scale = 0, 1
        for axis in self.inputs:
            value = coordinates.get(axis.name, 0)
            if not 0 <= value < axis.extent:
                raise LayoutError(f"{axis.name} = {value} is outside [0, {axis.extent})")
            index += scale * value
            scale *= axis.extent
        return dict(zip((o.name for o in self.outputs), self.unpack(self.at(index)), strict=True))

    def unpack(self, value: int) -> tuple[int, ...]:
        """Coordinates, one for each output, of a flat output."""
        result: list[int] = []
        for output in self.outputs[:-1]:
            assert output.size is not None
            result.append(value % output.size)
            value //= output.size
        return (*result, value)

    def pack(self, coordinate: Sequence[int]) -> int:
        """Flat output of coordinates, one for each output. LayoutError when one is out of range."""
        if len(coordinate) != len(self.outputs):
            raise LayoutError(f"{len(self.outputs)} coordinates expected, got {len(coordinate)}")
        value, scale = 0, 1
        for output, part in zip(self.outputs, coordinate, strict=True):
            if part < 0 or (output.size is not None and part >= output.size):
                raise LayoutError(f"{output.name} = {part} is outside [0, {output.size})")
            value += scale * part
            scale *= output.size or 1
        return value

    def split(self, index: int) -> tuple[int, ...]:
        """Coordinates, one for each input, of a flat input index."""
        result: list[int] = []
        for axis in self.inputs:
            result.append(index % axis.extent)
            index //= axis.extent
        return tuple(result)

    @cached_property
    def table(self) -> Table:
        """Flat outputs of all flat inputs, in order. LayoutError above `ENUMERATION_LIMIT`."""
        if self.size > ENUMERATION_LIMIT:
            raise LayoutError(f"{self.size} entries are too many to enumerate (limit {ENUMERATION_LIMIT})")
        values = np.array([self.offset], dtype=np.int64)
        for size, stride in self.digits:
            steps = np.arange(size, dtype=np.int64) * stride
            values = (steps[:, None] + values[None, :]).reshape(-1)
        if self.post is not None:
            result = values >> len(self.post) << len(self.post)
            for bit, column in enumerate(self.post):
                result ^= (values >> bit & 1) * column
            values = result
        values.flags.writeable = False
        return values

    @property
    def cosize(self) -> int:
        """One more than the largest value; by enumeration when there is a swizzle."""
        if self.post is None:
            return self.affine_range[1] + 1
        return int(self.table.max()) + 1

    @property
    def codomain(self) -> int | None:
        """Number of output values, None when unbounded."""
        total = 1
        for output in self.outputs:
            if output.size is None:
                return None
            total *= output.size
        return total

    def named(self, inputs: Sequence[str] = (), outputs: Sequence[tuple[str, int | None]] = ()) -> IndexMap:
        """The same map under other names; an empty sequence keeps a side."""
        axes = self.inputs
        if inputs:
            axes = tuple(replace(axis, name=name) for axis, name in zip(axes, inputs, strict=True))
        results = tuple(Output(name, size) for name, size in outputs) if outputs else self.outputs
        return replace(self, inputs=axes, outputs=results)

    @cached_property
    def columns(self) -> tuple[int, ...] | None:
        """The image of each input bit when the map is linear over F2 up to an xor with `origin`, else None.

        A map with digits of power-of-two size is linear exactly when the values 2^k * stride, and the offset,
        have pairwise disjoint bits: then no addition carries and + is xor.
        """
        columns: list[int] = []
        for size, stride in self.digits:
            if not f2.is_power_of_two(size):
                return None
            columns.extend(stride << bit for bit in range(f2.log2_exact(size)))
        if self.offset < 0 or not f2.have_disjoint_bits([*columns, self.offset]):
            return None
        if self.post is None:
            return tuple(columns)
        return tuple(f2.apply(self.post, column) for column in columns)

    @property
    def origin(self) -> int:
        """Value at index 0."""
        return self.offset if self.post is None else f2.apply(self.post, self.offset)

    def __str__(self) -> str:
        text = f"{_text([a.size for a in self.inputs])}:{_text([a.stride for a in self.inputs])}"
        if self.post is not None:
            swizzle = as_swizzle(self.post)
            matrix = "F2<{}>".format(",".join(map(str, self.post)))
            name = matrix if swizzle is None else "Sw<{},{},{}>".format(*swizzle)
            return f"{name} o {self.offset} o {text}"
        return f"{self.offset} + {text}" if self.offset else text


def _text(trees: Sequence[IntTree]) -> str:
    """CuTe's form of a nested tuple: no blanks, no parentheses around a single mode."""
    parts = [str(tree) if isinstance(tree, int) else _group(tree) for tree in trees]
    return parts[0] if len(parts) == 1 else f"({','.join(parts)})"


def _group(tree: tuple[IntTree, ...]) -> str:
    return "(" + ",".join(str(part) if isinstance(part, int) else _group(part) for part in tree) + ")"


def leaves(tree: IntTree) -> tuple[int, ...]:
    """The integers of a nested tuple, left to right."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(leaf for branch in tree for leaf in leaves(branch))


def check_congruent(size: IntTree, stride: IntTree) -> None:
    """LayoutError unless size and stride nest alike."""
    if isinstance(size, int) and isinstance(stride, int):
        return
    if isinstance(size, int) or isinstance(stride, int) or len(size) != len(stride):
        raise LayoutError(f"shape {size} and stride {stride} do not nest alike")
    for inner_size, inner_stride in zip(size, stride, strict=True):
        check_congruent(inner_size, inner_stride)


def flat_index(coordinate: IntTree, size: IntTree) -> int:
    """Colexicographic index of a coordinate that is flat (an int) at any level of the nesting of `size`."""
    if isinstance(coordinate, int):
        if not 0 <= coordinate < prod(leaves(size)):
            raise LayoutError(f"coordinate {coordinate} is outside the {prod(leaves(size))} values of {size}")
        return coordinate
    if isinstance(size, int) or len(coordinate) != len(size):
        raise LayoutError(f"coordinate {coordinate} does not fit shape {size}")
    index, scale = 0, 1
    for part, extent in zip(coordinate, size, strict=True):
        index += scale * flat_index(part, extent)
        scale *= prod(leaves(extent))
    return index


def bits_of(layout: IndexMap) -> Iterator[tuple[str, int]]:
    """(input name, image column) of each input bit of a linear map; LayoutError when it is not linear."""
    columns = layout.columns
    if columns is None:
        raise LayoutError(f"{layout} is not linear over F2: a digit is no power of two, or an addition carries")
    position = 0
    for axis in layout.inputs:
        for _ in range(f2.log2_exact(axis.extent)):
            yield axis.name, columns[position]
            position += 1
