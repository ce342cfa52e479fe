"""Layouts that an operation or an instruction prescribes."""

from __future__ import annotations

from tilewright.layout import Blocked, LayoutError, MmaV2, Wgmma
from tilewright.source import Span

# Elements along K of one wgmma, by element bits (PTX ISA, wgmma.mma_async: 32 bytes of K).
_WGMMA_DEPTH = {8: 32, 16: 16, 32: 8}


class InferenceError(LayoutError):
    """No layout fits; `span` is the statement that asks for the impossible."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.span = span


def wgmma_layout(shape: tuple[int, ...], element_bits: int, warps: int, span: Span) -> Wgmma:
    """The accumulator of a wgmma of `shape` by `warps` warps: warpgroups side by side down the rows, then along N."""
    if warps % 4:
        raise InferenceError(f"wgmma needs whole warpgroups of 4 warps, but the role has {warps}; give it 4 or 8", span)
    if len(shape) != 2 or shape[0] % 64:
        raise InferenceError(
            f"wgmma writes 64 rows a warpgroup, so the accumulator needs a multiple of 64 rows, not {shape[0]}", span
        )
    rows = 1
    while rows * 2 <= warps // 4 and shape[0] % (64 * rows * 2) == 0:
        rows *= 2
    columns = warps // 4 // rows
    n = shape[1] // columns
    if n < 8:
        raise InferenceError(
            f"wgmma multiplies at least 8 columns a warpgroup, but {shape[1]} columns over {columns} warpgroups "
            f"leave {n}; use fewer warps",
            span,
        )
    return Wgmma((4 * rows, columns), (16, min(n, 256), _WGMMA_DEPTH[element_bits]))


def mma_layout(shape: tuple[int, ...], warps: int) -> MmaV2:
    """The accumulator of mma_v2 of `shape`: warps where the most 16×8 instructions are left, rows first."""
    grid = [1, 1]
    while grid[0] * grid[1] < warps:
        left = (shape[0] // (16 * grid[0]), shape[1] // (8 * grid[1]))
        grid[1 if left[1] > left[0] else 0] *= 2
    return MmaV2((grid[0], grid[1]))


def transposed(layout: Blocked) -> Blocked:
    """The blocked layout of the transposed tile."""
    rank = len(layout.order)
    return Blocked(
        layout.size_per_thread[::-1], layout.threads_per_warp[::-1], layout.warps_per_cta[::-1],
        tuple(rank - 1 - dim for dim in layout.order),
    )  # fmt: skip
