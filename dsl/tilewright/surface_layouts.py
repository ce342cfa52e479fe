"""Layouts that a kernel can write, with types and documentation; as in `surface`, nothing here has a body."""

from __future__ import annotations

from typing import Any, Literal

from tilewright.surface_values import RegisterLayoutSpec, SharedLayoutSpec, Tile, in_kernel


def swizzled(bytes: Literal[0, 32, 64, 128]) -> SharedLayoutSpec:
    """The layout of TMA and wgmma: 16-byte vectors of a row xor-ed with the row number, in rows of `bytes` bytes.

    `layout=tw.swizzled(128)`.
    """
    in_kernel("swizzled")


def swizzled_shared(vec: int, per_phase: int, max_phase: int) -> SharedLayoutSpec:
    """The layout of cp.async and ldmatrix: vectors of `vec` elements xor-ed with (row // per_phase) % max_phase.

    `layout=tw.swizzled_shared(8, 1, 8)`.
    """
    in_kernel("swizzled_shared")


def convert_layout(x: Tile, layout: RegisterLayoutSpec) -> Tile:
    """The tile `x` in this layout of registers, which is obeyed; conversions go through shared memory.

    A tile that `tw.load`, `tw.load_shared`, `tw.zeros`, `tw.full` or `tw.arange` makes for this call alone is made in
    the layout, at no cost. A variable keeps the layout it has been given. Refused where the layout does not fit the
    shape or the number of warps, or where an instruction needs another one. Not for loads that a pipeline stages in
    shared memory.

    `x = tw.convert_layout(tw.load(A.tile((0, 0), (64, 64))), tw.blocked((1, 8), (4, 8), (4, 1), (1, 0)))`.
    """
    in_kernel("convert_layout")


def blocked(size_per_thread: Any, threads_per_warp: Any, warps: Any, order: Any) -> RegisterLayoutSpec:
    """A block of elements for each thread, threads side by side in a warp, warps side by side; then repeated.

    Each is a tuple with one power of two for each dimension; `order` names the dimensions, the fastest first. A warp
    has 32 threads, on AMD GPUs 64. `tw.blocked((1, 8), (4, 8), (4, 1), (1, 0))`.
    """
    in_kernel("blocked")


def sliced(dim: int, parent: RegisterLayoutSpec) -> RegisterLayoutSpec:
    """The layout `parent` without its dimension `dim`: what a sum over that dimension has.

    `tw.sliced(1, tw.blocked((1, 8), (4, 8), (4, 1), (1, 0)))` for the rows.
    """
    in_kernel("sliced")


def accumulator(
    instr: Literal["mma_v2", "wgmma", "mfma"],
    warps: tuple[int, int],
    shape: Any = None,
    *,
    generation: Literal[3, 4] = 3,
) -> RegisterLayoutSpec:
    """The accumulator of a matrix instruction whose `warps` are spread over (rows, columns).

    `shape` is (M, N, K) of one wgmma or mfma; that of mma_v2 is 16 x 8. `generation` is that of CDNA for mfma.
    `tw.accumulator("mma_v2", (2, 2))`, `tw.accumulator("wgmma", (4, 1), (64, 128, 16))`.
    """
    in_kernel("accumulator")


def dot_operand(index: Literal[0, 1], parent: RegisterLayoutSpec, k_width: int) -> RegisterLayoutSpec:
    """Operand A (index 0) or B (1) in registers, for an accumulator; `k_width` elements along K lie in one thread.

    `k_width` is 32 bits in elements for mma_v2. `tw.dot_operand(0, tw.accumulator("mma_v2", (2, 2)), 2)`.
    """
    in_kernel("dot_operand")
