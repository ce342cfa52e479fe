"""Named families of shared-memory layouts: at which offset (in elements) an element of the tile lies.

`linear(shape)` gives the map (dim0, dim1, …) -> `offset`; `gluon()` the constructor as Gluon source; `str()` a
short text. Swizzles follow the PTX ISA (tensor map swizzle modes, wgmma matrix descriptors) and are tested
against Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from . import f2
from .errors import LayoutError
from .index_map import OFFSET, Axis, IndexMap, IntTree
from .linear import from_columns
from .swizzle import swizzle_columns

# The largest extent of a TMA box (CUDA driver API, cuTensorMapEncodeTiled: boxDim <= 256).
TMA_BOX = 256


@dataclass(frozen=True)
class Swizzled:
    """The layout of TMA and wgmma: rows of `bytes` bytes, their 16-byte vectors xor-ed with the row number.

    `bytes` is 128, 64 or 32, or 0 for no swizzle.
    `transposed` makes the first dimension the contiguous one. `rank` is that of the tile.
    """

    bytes: int
    element_bits: int
    rank: int = 2
    transposed: bool = False

    def __post_init__(self) -> None:
        if self.bytes not in (0, 32, 64, 128):
            raise LayoutError(f"swizzle of {self.bytes} bytes: 128, 64, 32 or 0 exist")
        if self.element_bits not in (8, 16, 32, 64):
            raise LayoutError(f"elements of {self.element_bits} bits cannot be swizzled: 8, 16, 32 or 64")

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(dim0, …) -> offset.

        A tile wider than a swizzle row, or with a side over 256, is cut into TMA boxes, box after box.
        """
        _check_shape(shape)
        if len(shape) != self.rank:
            raise LayoutError(f"the layout has rank {self.rank}, the tile {list(shape)} rank {len(shape)}")
        if not self.bytes:
            return self._plain(shape)
        # The contiguous dimension last; all others are flattened to rows.
        dims = (*range(1, self.rank), 0) if self.transposed else tuple(range(self.rank))
        rows = prod(shape[dim] for dim in dims[:-1])
        width = shape[dims[-1]]
        vector = 128 // self.element_bits
        row = self.bytes * 8 // self.element_bits
        if width < row:
            raise LayoutError(
                f"a row of the tile has {width * self.element_bits // 8} bytes, fewer than the {self.bytes} "
                "that the swizzle permutes; take the widest one that fits (default_swizzle)"
            )
        if rows < 8:
            raise LayoutError(f"the tile has {rows} rows, but the swizzle pattern repeats every 8")
        if self.transposed and self.rank > 2 and max(shape) > TMA_BOX:
            raise LayoutError(f"a transposed tile of rank {self.rank} with a side over {TMA_BOX} has no known layout")
        columns: dict[int, list[int]] = {dim: [] for dim in range(self.rank)}
        columns[dims[-1]].extend(1 << bit for bit in range(f2.log2_exact(row)))
        scale = row
        boxes = [(dim, min(shape[dim], TMA_BOX)) for dim in reversed(dims[:-1])]
        boxes += [(dim, max(1, shape[dim] // (row if dim == dims[-1] else TMA_BOX))) for dim in range(self.rank)]
        for dim, size in boxes:
            columns[dim].extend(scale << bit for bit in range(f2.log2_exact(size)))
            scale *= size
        plain = from_columns({f"dim{dim}": columns[dim] for dim in range(self.rank)}, OFFSET)
        # The number of the 128-byte line, mod bytes / 16, is xor-ed onto that of the 16-byte vector.
        bits = f2.log2_exact(self.bytes // 16)
        return replace(plain, post=swizzle_columns(bits, f2.log2_exact(vector), 3))

    def _plain(self, shape: Sequence[int]) -> IndexMap:
        """Row-major in TMA boxes of at most 256 elements a side; Triton ignores `transposed` here."""
        columns: dict[int, list[int]] = {dim: [] for dim in range(self.rank)}
        scale = 1
        inside = [(dim, min(shape[dim], TMA_BOX)) for dim in reversed(range(self.rank))]
        outside = [(dim, max(1, shape[dim] // TMA_BOX)) for dim in reversed(range(self.rank))]
        for dim, size in (*inside, *outside):
            columns[dim].extend(scale << bit for bit in range(f2.log2_exact(size)))
            scale *= size
        return from_columns({f"dim{dim}": columns[dim] for dim in range(self.rank)}, OFFSET)

    def gluon(self) -> str:
        """Gluon constructor."""
        transposed = ", transposed=True" if self.transposed else ""
        return (
            f"gl.NVMMASharedLayout(swizzle_byte_width={self.bytes}, element_bitwidth={self.element_bits}, "
            f"rank={self.rank}{transposed})"
        )

    def __str__(self) -> str:
        text = f"{self.bytes}-byte swizzle" if self.bytes else "no swizzle"
        return f"{text}, {self.element_bits}-bit elements{', transposed' if self.transposed else ''}"


@dataclass(frozen=True)
class SwizzledShared:
    """Rows one after the other, vectors of `vec` elements xor-ed with (row / per_phase) mod max_phase.

    The layout for cp.async and ldmatrix. `order[0]` is the contiguous dimension.
    """

    vec: int
    per_phase: int
    max_phase: int
    order: tuple[int, ...] = (1, 0)

    def __post_init__(self) -> None:
        for name in ("vec", "per_phase", "max_phase"):
            if not f2.is_power_of_two(getattr(self, name)):
                raise LayoutError(f"{name} = {getattr(self, name)} is not a power of two")
        if sorted(self.order) != list(range(len(self.order))):
            raise LayoutError(f"order {list(self.order)} is not a permutation of the {len(self.order)} dimensions")

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(dim0, …) -> offset."""
        _check_shape(shape)
        if len(shape) != len(self.order):
            raise LayoutError(f"the layout has rank {len(self.order)}, the tile {list(shape)} rank {len(shape)}")
        width = shape[self.order[0]]
        columns: dict[int, list[int]] = {}
        scale = 1
        for dim in self.order:
            columns[dim] = [scale << bit for bit in range(f2.log2_exact(shape[dim]))]
            scale *= shape[dim]
        fits = self.vec * self.max_phase <= width
        if not fits and len(self.order) > 1:
            # Phases past the end of a short row wrap around in it, which is no CuTe swizzle.
            for bit in range(len(columns[self.order[1]])):
                phase = (1 << bit) // self.per_phase % self.max_phase
                columns[self.order[1]][bit] ^= self.vec * phase % width
        plain = from_columns({f"dim{dim}": columns[dim] for dim in range(len(shape))}, OFFSET)
        # Only the second-fastest dimension counts phases: the swizzle must not read the bits of slower ones.
        rows = shape[self.order[1]] if len(self.order) > 1 else 1
        phases = min(self.max_phase, max(1, rows // self.per_phase))
        if not fits or phases == 1:
            return plain
        vec = f2.log2_exact(self.vec)
        shift = f2.log2_exact(width * self.per_phase) - vec
        return replace(plain, post=swizzle_columns(f2.log2_exact(phases), vec, shift))

    def gluon(self) -> str:
        """Gluon constructor."""
        order = ", ".join(map(str, self.order))
        return (
            f"gl.SwizzledSharedLayout(vec={self.vec}, per_phase={self.per_phase}, "
            f"max_phase={self.max_phase}, order=[{order}])"
        )

    def __str__(self) -> str:
        return f"swizzled (vec {self.vec}, per phase {self.per_phase}, max phase {self.max_phase})"


@dataclass(frozen=True)
class Padded:
    """A tile in order, with `padding` elements inserted after every `interval` elements. `order[0]` is contiguous."""

    interval: int
    padding: int
    shape: tuple[int, ...]
    order: tuple[int, ...] = (1, 0)

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        for name in ("interval", "padding"):
            if not f2.is_power_of_two(getattr(self, name)):
                raise LayoutError(f"{name} = {getattr(self, name)} is not a power of two")
        if sorted(self.order) != list(range(len(self.shape))):
            raise LayoutError(f"order {list(self.order)} is not a permutation of the {len(self.shape)} dimensions")

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(dim0, …) -> offset; affine, not linear over F2."""
        if tuple(shape) != self.shape:
            raise LayoutError(f"the layout is for a tile of {list(self.shape)}, not {list(shape)}")
        axes: dict[int, Axis] = {}
        scale = 1
        for dim in self.order:
            sizes: list[IntTree] = []
            strides: list[IntTree] = []
            # One digit below the interval, one above it: padding only follows the upper one.
            below = min(shape[dim], max(1, self.interval // scale))
            for size, start in ((below, scale), (shape[dim] // below, scale * below)):
                if size > 1:
                    sizes.append(size)
                    strides.append(start + start // self.interval * self.padding)
            if len(sizes) == 2:
                axes[dim] = Axis(f"dim{dim}", tuple(sizes), tuple(strides))
            else:
                axes[dim] = Axis(f"dim{dim}", sizes[0] if sizes else 1, strides[0] if strides else 0)
            scale *= shape[dim]
        return IndexMap(tuple(axes[dim] for dim in range(len(shape))), OFFSET)

    def gluon(self) -> str:
        """Gluon constructor."""
        return (
            f"gl.PaddedSharedLayout.with_identity_for([[{self.interval}, {self.padding}]], "
            f"{list(self.shape)}, {list(self.order)})"
        )

    def __str__(self) -> str:
        return f"padded by {self.padding} every {self.interval} elements"


SharedLayout: TypeAlias = Swizzled | SwizzledShared | Padded


def default_swizzle(shape: Sequence[int], element_bits: int, *, transposed: bool = False) -> Swizzled:
    """The widest TMA swizzle that the contiguous dimension fills, as Gluon's `NVMMASharedLayout.get_default_for`.

    No swizzle below 32 bytes, for fewer than 8 rows, or for rank 1.
    """
    ordered = (*shape[1:], shape[0]) if transposed else tuple(shape)
    row_bytes = ordered[-1] * element_bits // 8
    width = next((size for size in (128, 64, 32) if row_bytes % size == 0), 0)
    if len(shape) < 2 or prod(ordered[:-1]) < 8:
        width = 0
    return Swizzled(width, element_bits, len(shape), transposed)


def transposed_view(layout: SharedLayout, shape: Sequence[int]) -> SharedLayout:
    """The layout of the transposed tile over the same memory, for a tile of `shape` (two dimensions) in `layout`.

    Raises LayoutError for a tile that has none: of another rank, without a swizzle of TMA (Triton 3.6 takes the
    transposed one for the plain one), or cut into boxes along both dimensions, whose order would change.
    """
    if len(shape) != 2:
        raise LayoutError(f"a tile of {len(shape)} dimensions has no transposed view, one of two has")
    match layout:
        case Swizzled():
            row = layout.bytes * 8 // layout.element_bits
            if not layout.bytes:
                raise LayoutError(
                    "a tile without a swizzle has no transposed view; rows of at least 32 bytes and 8 rows have one"
                )
            rows, width = (shape[1], shape[0]) if layout.transposed else (shape[0], shape[1])
            if rows > TMA_BOX and width > row:
                raise LayoutError(
                    f"a tile of {rows} rows of {width} elements is cut into boxes along both dimensions, which has no "
                    f"transposed view; use at most {TMA_BOX} rows"
                )
            return replace(layout, transposed=not layout.transposed)
        case SwizzledShared(order=order):
            return replace(layout, order=tuple(1 - dim for dim in order))
        case Padded():
            return replace(layout, shape=layout.shape[::-1], order=tuple(1 - dim for dim in layout.order))


def _check_shape(shape: Sequence[int]) -> None:
    for size in shape:
        if not f2.is_power_of_two(size):
            raise LayoutError(f"tile shape {list(shape)}: {size} is not a power of two")
