"""Types of the names in a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, Int, mul

if TYPE_CHECKING:
    from tilewright.layout import DistributedLayout, SharedLayout


# Why a tile has a layout that the kernel writes.
GIVEN = "given in the kernel"


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile in registers: `shape` in elements, all extents powers of two.

    `layout` says which register of which lane of which warp owns an element; None until layouts are inferred. `why`
    says in words where the layout comes from.
    """

    dtype: DType
    shape: tuple[int, ...]
    layout: DistributedLayout | None = None
    why: str = ""

    def with_layout(self, layout: DistributedLayout, why: str) -> TileType:
        """The same tile with a layout and its reason."""
        return replace(self, layout=layout, why=why)

    @property
    def bare(self) -> TileType:
        """The same tile, whatever its layout."""
        return self if self.layout is None else TileType(self.dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SharedType:
    """A ring of `stages` tiles in shared memory. `ring` is False for a single tile, which is used without an index."""

    dtype: DType
    shape: tuple[int, ...]
    stages: int
    ring: bool
    layout: SharedLayout

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage."""
        size = self.dtype.bytes
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        shape = ", ".join(map(str, ((self.stages,) if self.ring else ()) + self.shape))
        return f"shared {self.dtype}[{shape}]"


@dataclass(frozen=True, slots=True)
class TensorMemoryType:
    """A ring of `stages` accumulators in tensor memory (sm_100a): 64 or 128 rows, and one column for each of theirs.

    `ring` is False for a single one, which is used without an index.
    """

    dtype: DType
    shape: tuple[int, ...]
    stages: int
    ring: bool

    @property
    def columns(self) -> int:
        """Columns of 32 bits that all stages take; a block has 512."""
        return self.stages * self.shape[1]

    def __str__(self) -> str:
        shape = ", ".join(map(str, ((self.stages,) if self.ring else ()) + self.shape))
        return f"tensor memory {self.dtype}[{shape}]"


@dataclass(frozen=True, slots=True)
class BarrierType:
    """`slots` mbarriers, each of whose phases ends after `arrivals` arrivals and all announced bytes."""

    slots: int
    arrivals: int

    def __str__(self) -> str:
        return f"barrier[{self.slots}], {self.arrivals} arrival{'s' if self.arrivals != 1 else ''} a phase"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A 32-bit integer scalar, equal in all threads of the program."""

    def __str__(self) -> str:
        return "i32 scalar"


@dataclass(frozen=True, slots=True)
class GlobalType:
    """A tensor in global memory. Extents and strides are in elements; the default strides are row-major."""

    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @property
    def contiguous(self) -> int | None:
        """The dimension whose neighbours lie side by side; None where elements are apart along each."""
        return next((d for d in reversed(range(len(self.strides))) if self.strides[d] == Int(1)), None)


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The default strides: the last dimension is contiguous, and rows follow each other."""
    strides: list[Expr] = [Int(1)]
    for extent in reversed(shape[1:]):
        strides.insert(0, mul(strides[0], extent))
    return tuple(strides)


Type = TileType | SharedType | TensorMemoryType | BarrierType | ScalarType
