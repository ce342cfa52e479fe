"""Linear notation: for each input (register, lane, warp, block) the images of its bits, as coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import f2
from .errors import LayoutError
from .index_map import Axis, IndexMap, IntTree, Output, bits_of


def from_bases(
    bases: Mapping[str, Sequence[Sequence[int]]], outputs: Sequence[tuple[str, int]], origin: int = 0
) -> IndexMap:
    """The layout whose input bit k of axis `name` contributes `bases[name][k]` (xor) to the coordinates.

    Args:
        bases: for each input, one coordinate (an int for each output) for each bit, lowest bit first.
        outputs: name and size, a power of two, of each output.
        origin: flat output of index 0.
    """
    for name, size in outputs:
        if not f2.is_power_of_two(size):
            raise LayoutError(f"output {name} has size {size}; a linear layout needs powers of two")
    columns: dict[str, list[int]] = {}
    for axis, vectors in bases.items():
        columns[axis] = []
        for vector in vectors:
            if len(vector) != len(outputs):
                raise LayoutError(f"basis {list(vector)} of {axis} has {len(vector)} entries, not {len(outputs)}")
            flat, shift = 0, 0
            for part, (name, size) in zip(vector, outputs, strict=True):
                if not 0 <= part < size:
                    raise LayoutError(f"basis {list(vector)} of {axis} leaves {name}, which has size {size}")
                flat |= part << shift
                shift += f2.log2_exact(size)
            columns[axis].append(flat)
    return from_columns(columns, tuple(Output(name, size) for name, size in outputs), origin)


def from_columns(columns: Mapping[str, Sequence[int]], outputs: tuple[Output, ...], origin: int = 0) -> IndexMap:
    """The layout whose input bits have the given flat images; affine without `post` whenever it can be."""
    everything = [column for values in columns.values() for column in values]
    if f2.have_disjoint_bits([*everything, origin]):
        axes = tuple(_axis(name, values) for name, values in columns.items())
        return IndexMap(axes, outputs, origin)
    # Index bits go through unchanged, one further bit carries the origin, and the matrix does the rest.
    position = 0
    axes_list: list[Axis] = []
    for name, values in columns.items():
        axes_list.append(_axis(name, [1 << position + bit for bit in range(len(values))]))
        position += len(values)
    if origin:
        return IndexMap(tuple(axes_list), outputs, 1 << position, (*everything, origin))
    return IndexMap(tuple(axes_list), outputs, 0, tuple(everything))


def bases_of(layout: IndexMap) -> dict[str, list[tuple[int, ...]]]:
    """Linear notation of a layout; LayoutError when it is not linear over F2."""
    result: dict[str, list[tuple[int, ...]]] = {axis.name: [] for axis in layout.inputs}
    for name, column in bits_of(layout):
        result[name].append(layout.unpack(column))
    return result


def format_bases(layout: IndexMap) -> str:
    """Linear notation as text: `register [0,1] [8,0]; lane …; warp …`."""
    parts: list[str] = []
    for name, vectors in bases_of(layout).items():
        texts = ["[" + ",".join(map(str, vector)) + "]" for vector in vectors]
        parts.append(" ".join([name, *(texts or ["-"])]))
    return "; ".join(parts)


def _axis(name: str, columns: Sequence[int]) -> Axis:
    """An axis of 2^len(columns) values, with neighbouring bits merged into one digit where strides double."""
    digits: list[tuple[int, int]] = []
    for column in columns:
        if digits:
            size, stride = digits[-1]
            if column == size * stride:
                digits[-1] = (2 * size, stride)
                continue
        digits.append((2, column))
    if not digits:
        return Axis(name, 1, 0)
    sizes: tuple[IntTree, ...] = tuple(size for size, _ in digits)
    strides: tuple[IntTree, ...] = tuple(stride for _, stride in digits)
    if len(digits) == 1:
        return Axis(name, sizes[0], strides[0])
    return Axis(name, sizes, strides)
