"""Named families of distributed layouts: which register of which lane of which warp owns an element.

Each family is a small description. `linear(shape)` gives the map (register, lane, warp) -> coordinates
`dim0, dim1, …`; `gluon()` the constructor as Gluon source; `str()` a short text. The construction follows the
PTX ISA (fragment tables of mma.m16n8k16 and wgmma.m64nNk16), the CDNA3 and CDNA4 ISA manuals (section "Matrix
Arithmetic Instructions") and Triton's `LinearLayoutConversions.cpp`, and is tested against Triton. Warps have 32 lanes
on NVIDIA GPUs and 64 on AMD's (which call them waves).

All tile extents are powers of two. A tile smaller than the layout is broadcast: several owners hold one element.
A larger one is repeated in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from . import f2
from .errors import LayoutError
from .index_map import IndexMap
from .linear import bases_of, from_bases

WARP_SIZE = 32
WARP_SIZES = (32, 64)


@dataclass(frozen=True)
class Blocked:
    """Contiguous blocks for each thread, threads of a warp and warps tiling the rest; `order[0]` is fastest."""

    size_per_thread: tuple[int, ...]
    threads_per_warp: tuple[int, ...]
    warps_per_cta: tuple[int, ...]
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        rank = len(self.size_per_thread)
        if sorted(self.order) != list(range(rank)):
            raise LayoutError(f"order {list(self.order)} is not a permutation of the {rank} dimensions")
        for name in ("size_per_thread", "threads_per_warp", "warps_per_cta"):
            _check_powers(name, getattr(self, name), rank)
        if self.warp_size not in WARP_SIZES:
            raise LayoutError(
                f"threads_per_warp {list(self.threads_per_warp)} has {self.warp_size} threads; a warp has 32 (NVIDIA) "
                "or 64 (AMD)"
            )

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return prod(self.threads_per_warp)

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return prod(self.warps_per_cta)

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> coordinates."""
        tile = _Tile(len(self.order))
        for axis, sizes in (
            ("register", self.size_per_thread),
            ("lane", self.threads_per_warp),
            ("warp", self.warps_per_cta),
        ):
            tile.grow_all(axis, sizes, self.order)
        return tile.fit(shape, self.order)

    def gluon(self) -> str:
        """Gluon constructor."""
        parts = (self.size_per_thread, self.threads_per_warp, self.warps_per_cta, self.order)
        return f"gl.BlockedLayout({', '.join(_list(part) for part in parts)})"

    def __str__(self) -> str:
        return (
            f"blocked {_by(self.size_per_thread)} per thread, {_by(self.threads_per_warp)} threads, "
            f"{_by(self.warps_per_cta)} warps, order {_list(self.order)}"
        )


@dataclass(frozen=True)
class MmaV2:
    """Accumulator of mma.sync m16n8 (sm_80 and up)."""

    warps_per_cta: tuple[int, int]
    instr: tuple[int, int] = (16, 8)

    def __post_init__(self) -> None:
        _check_powers("warps_per_cta", self.warps_per_cta, 2)
        if self.instr != (16, 8):
            raise LayoutError(f"mma.sync has a 16×8 accumulator, not {_by(self.instr)}")

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return WARP_SIZE

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return prod(self.warps_per_cta)

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> (row, column)."""
        tile = _mma_tile(*self.instr, k_width=2, order=(1, 0))
        tile.grow_all("warp", self.warps_per_cta, (1, 0))
        return tile.fit(shape, (1, 0))

    def gluon(self) -> str:
        """Gluon constructor."""
        return f"gl.NVMMADistributedLayout([2, 0], {_list(self.warps_per_cta)}, {_list(self.instr)})"

    def __str__(self) -> str:
        return f"mma_v2 accumulator {_by(self.instr)}, {_by(self.warps_per_cta)} warps"


@dataclass(frozen=True)
class Wgmma:
    """Accumulator of wgmma m64nN (sm_90a): `instr` is (rows of one warp, N, elements of K)."""

    warps_per_cta: tuple[int, int]
    instr: tuple[int, int, int]

    def __post_init__(self) -> None:
        _check_powers("warps_per_cta", self.warps_per_cta, 2)
        rows, columns, depth = self.instr
        if rows != 16 or columns not in range(8, 257, 8) or depth not in (4, 8, 16, 32):
            raise LayoutError(
                f"wgmma instruction {list(self.instr)}: the rows of a warp are 16, N is a multiple of 8 up to 256, "
                "K is 8 (tf32), 16 (f16, bf16) or 32 (8 bits)"
            )
        if self.warps_per_cta[0] % 4:
            raise LayoutError(
                f"wgmma spans a warpgroup of 4 warps along the rows, but warps_per_cta is {list(self.warps_per_cta)}"
            )

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return WARP_SIZE

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return prod(self.warps_per_cta)

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> (row, column). N must be a power of two."""
        rows, columns, _ = self.instr
        if not f2.is_power_of_two(columns):
            raise LayoutError(f"N = {columns} is not a power of two, so the accumulator is no linear layout")
        tile = _mma_tile(rows, columns, k_width=2, order=(1, 0))
        # Warps of a warpgroup follow each other down the rows: %warpid % 4 selects 16 rows (PTX ISA, wgmma).
        tile.grow_all("warp", self.warps_per_cta, (0, 1))
        return tile.fit(shape, (1, 0))

    def gluon(self) -> str:
        """Gluon constructor."""
        return f"gl.NVMMADistributedLayout([3, 0], {_list(self.warps_per_cta)}, {_list(self.instr)})"

    def __str__(self) -> str:
        return f"wgmma accumulator m64n{self.instr[1]}k{self.instr[2]}, {_by(self.warps_per_cta)} warps"


@dataclass(frozen=True)
class Mfma:
    """Accumulator of v_mfma (CDNA), transposed: a lane holds 4 consecutive columns of a row.

    `instr` is (M, N, K) of the instruction. `generation` is that of CDNA: 3 (gfx942) or 4 (gfx950).
    """

    warps_per_cta: tuple[int, int]
    instr: tuple[int, int, int]
    generation: int

    def __post_init__(self) -> None:
        _check_powers("warps_per_cta", self.warps_per_cta, 2)
        if self.instr[:2] not in ((16, 16), (32, 32)) or self.generation not in (3, 4):
            raise LayoutError(
                f"mfma instruction {list(self.instr)} of CDNA{self.generation}: the accumulator is 16×16 or 32×32, the "
                "generation 3 or 4"
            )
        _check_powers("instr", self.instr, 3)

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return 64

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return prod(self.warps_per_cta)

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> (row, column)."""
        rows = self.instr[0]
        tile = _Tile(2)
        tile.grow("register", 1, 4)
        tile.grow("lane", 0, rows)
        tile.grow("lane", 1, 64 // rows)
        tile.grow("register", 1, rows * rows // 256)
        tile.grow_all("warp", self.warps_per_cta, (1, 0))
        return tile.fit(shape, (1, 0))

    def gluon(self) -> str:
        """Gluon constructor."""
        instr, warps = _list(self.instr), _list(self.warps_per_cta)
        return f"gl.amd.AMDMFMALayout({self.generation}, {instr}, True, {warps})"

    def __str__(self) -> str:
        return f"mfma accumulator {_by(self.instr)}, {_by(self.warps_per_cta)} warps"


@dataclass(frozen=True)
class DotOperand:
    """Operand A (index 0) or B (index 1) in registers; `k_width` consecutive elements along K in a lane.

    `k_width` is 32 / element bits for mma_v2. For mfma it is what a lane gives one instruction, K * M / 64 of its
    shape, or a multiple of that (the instructions then split K among them).
    """

    index: int
    parent: MmaV2 | Wgmma | Mfma
    k_width: int

    def __post_init__(self) -> None:
        if self.index not in (0, 1):
            raise LayoutError(f"operand index {self.index}: A is 0, B is 1")
        if isinstance(self.parent, Wgmma) and self.index == 1:
            raise LayoutError("wgmma reads B from shared memory; only A may be in registers")
        _check_powers("k_width", (self.k_width,), 1)

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return self.parent.warp_size

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return self.parent.warps

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> (row, column); warps along the other operand's dimension hold copies."""
        depth = 8 * self.k_width
        contraction = 1 - self.index
        order = (contraction, self.index)
        if isinstance(self.parent, Mfma):
            rows = self.parent.instr[0]
            tile = _Tile(2)
            tile.grow("register", contraction, self.k_width)
            tile.grow("lane", self.index, rows)
            tile.grow("lane", contraction, 64 // rows)
        else:
            tile = _mma_tile((16, 8)[self.index], depth, k_width=self.k_width, order=order)
        for dim in (0, 1) if isinstance(self.parent, Wgmma) else (1, 0):
            count = self.parent.warps_per_cta[dim]
            if dim == contraction:
                tile.repeat("warp", count)
            else:
                tile.grow("warp", dim, count)
        return tile.fit(shape, order)

    def gluon(self) -> str:
        """Gluon constructor."""
        return f"gl.DotOperandLayout({self.index}, {self.parent.gluon()}, {self.k_width})"

    def __str__(self) -> str:
        return f"operand {'AB'[self.index]} (k width {self.k_width}) of {self.parent}"


@dataclass(frozen=True)
class Slice:
    """The parent's layout with dimension `dim` reduced away: owners along it hold copies."""

    dim: int
    parent: DistributedLayout

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return self.parent.warp_size

    @property
    def warps(self) -> int:
        """Warps that share the tile."""
        return self.parent.warps

    def linear(self, shape: Sequence[int]) -> IndexMap:
        """(register, lane, warp) -> coordinates of the remaining dimensions."""
        if not 0 <= self.dim <= len(shape):
            raise LayoutError(f"dimension {self.dim} cannot be sliced off: the parent has rank {len(shape) + 1}")
        whole = self.parent.linear((*shape[: self.dim], 1, *shape[self.dim :]))
        bases = {
            name: [(*vector[: self.dim], *vector[self.dim + 1 :]) for vector in vectors]
            for name, vectors in bases_of(whole).items()
        }
        bases["register"] = [vector for vector in bases["register"] if any(vector)]
        return from_bases(bases, _outputs(shape))

    def gluon(self) -> str:
        """Gluon constructor."""
        return f"gl.SliceLayout({self.dim}, {self.parent.gluon()})"

    def __str__(self) -> str:
        return f"slice along dim {self.dim} of ({self.parent})"


DistributedLayout: TypeAlias = Blocked | MmaV2 | Wgmma | Mfma | DotOperand | Slice


def default_blocked(
    shape: Sequence[int],
    element_bits: int,
    warps: int,
    order: Sequence[int] | None = None,
    *,
    warp_size: int = WARP_SIZE,
) -> Blocked:
    """A coalesced layout: 16-byte vectors along the fastest dimension, never wider than the tile leaves each thread.

    Args:
        shape: tile extents, powers of two.
        element_bits: bits of an element.
        warps: warps that share the tile, a power of two.
        order: dimensions, fastest first; the last dimension is fastest by default.
        warp_size: lanes of a warp, 32 or 64.
    """
    rank = len(shape)
    order = tuple(reversed(range(rank))) if order is None else tuple(order)
    _check_powers("shape", tuple(shape), rank)
    # Booleans take a byte in memory.
    element_bits = max(8, element_bits)
    share = max(1, prod(shape) // (warp_size * warps))
    vector = max(1, min(128 // element_bits, shape[order[0]], share))
    sizes, threads, groups = [1] * rank, [1] * rank, [1] * rank
    sizes[order[0]] = vector
    lanes_left, warps_left = warp_size, warps
    for dim in order:
        threads[dim] = min(lanes_left, max(1, shape[dim] // sizes[dim]))
        lanes_left //= threads[dim]
        groups[dim] = min(warps_left, max(1, shape[dim] // (sizes[dim] * threads[dim])))
        warps_left //= groups[dim]
    # A tile smaller than the block of threads: the slowest dimension takes the rest and broadcasts.
    threads[order[-1]] *= lanes_left
    groups[order[-1]] *= warps_left
    return Blocked(tuple(sizes), tuple(threads), tuple(groups), order)


class _Tile:
    """Bases under construction: `extent` is what the axes cover so far in each dimension."""

    def __init__(self, rank: int) -> None:
        self.extent = [1] * rank
        self.bases: dict[str, list[list[int]]] = {"register": [], "lane": [], "warp": []}

    def grow(self, axis: str, dim: int, count: int) -> None:
        """`count` positions of `axis` side by side along `dim`."""
        for _ in range(f2.log2_exact(count)):
            basis = [0] * len(self.extent)
            basis[dim] = self.extent[dim]
            self.bases[axis].append(basis)
            self.extent[dim] *= 2

    def grow_all(self, axis: str, counts: Sequence[int], order: Sequence[int]) -> None:
        for dim in order:
            self.grow(axis, dim, counts[dim])

    def repeat(self, axis: str, count: int) -> None:
        """`count` positions of `axis` that hold the same elements."""
        self.bases[axis].extend([0] * len(self.extent) for _ in range(f2.log2_exact(count)))

    def fit(self, shape: Sequence[int], order: Sequence[int]) -> IndexMap:
        """Registers fill what is left of the tile, fastest dimension first; what sticks out is broadcast."""
        if len(shape) != len(self.extent):
            raise LayoutError(f"the layout has rank {len(self.extent)}, the tile {_by(shape)} rank {len(shape)}")
        _check_powers("tile shape", tuple(shape), len(shape))
        for dim in order:
            if self.extent[dim] < shape[dim]:
                self.grow("register", dim, shape[dim] // self.extent[dim])
        for vectors in self.bases.values():
            for basis in vectors:
                for dim, size in enumerate(shape):
                    if basis[dim] >= size:
                        basis[dim] = 0
        return from_bases(self.bases, _outputs(shape))


def _mma_tile(outer: int, inner: int, *, k_width: int, order: tuple[int, int]) -> _Tile:
    """The fragment of one warp: groups of four lanes share a row of `k_width` elements each (PTX ISA, mma.sync)."""
    fast, slow = order
    tile = _Tile(2)
    tile.grow("register", fast, k_width)
    tile.grow("lane", fast, 4)
    tile.grow("lane", slow, 8)
    tile.grow("register", slow, outer // 8)
    tile.grow("register", fast, inner // (4 * k_width))
    return tile


def _outputs(shape: Sequence[int]) -> list[tuple[str, int]]:
    return [(f"dim{dim}", size) for dim, size in enumerate(shape)]


def _check_powers(what: str, sizes: Sequence[int], rank: int) -> None:
    if len(sizes) != rank:
        raise LayoutError(f"{what} {list(sizes)} has {len(sizes)} entries, not {rank}")
    for size in sizes:
        if not f2.is_power_of_two(size):
            raise LayoutError(f"{what} {list(sizes)}: {size} is not a power of two")


def _list(values: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def _by(values: Sequence[int]) -> str:
    return "×".join(map(str, values))
