"""Layouts that an operation or an instruction prescribes."""

from __future__ import annotations

from tilewright.dtypes import DType
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.layout import Blocked, DotOperand, LayoutError, Mfma, MmaV2, Wgmma
from tilewright.matrix import mfma_depth, problem
from tilewright.source import Span
from tilewright.targets import TARGETS, TENSOR_MEMORY_ROWS

_WIDEST_SHARED_ACCESS = 16


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
    # Triton 3.6 aborts on a wgmma of i8 with more than 224 columns, so wide tiles take two of 128.
    widest = 128 if element_bits == 8 and n > 224 else 256
    return Wgmma((4 * rows, columns), (16, min(n, widest), 256 // element_bits))


def wgmma_operand(parent: Wgmma, element: DType) -> DotOperand:
    """The layout of operand A of wgmma in registers: 4 bytes along K in a register (PTX ISA, fragments of matrix A)."""
    return DotOperand(0, parent, max(1, 32 // element.bits))


def tensor_memory_layout(shape: tuple[int, ...], warps: int, span: Span) -> Blocked:
    """What a load from tensor memory gives: the 4 warps of a warpgroup share the rows, warpgroups the columns.

    Of 128 rows a lane has one (PTX ISA, tcgen05.ld with shape .32x32b: warp i of a warpgroup reads lanes 32 i …). Of 64
    rows a warp has 16, and each half of its lanes half of the columns (shape .16x32bx2).
    """
    groups = warps // 4
    if warps % 4 or shape[0] not in TENSOR_MEMORY_ROWS or shape[1] < 2 * groups:
        raise InferenceError(
            f"tensor memory is read by whole warpgroups of 4 warps, 64 or 128 rows at a time; {warps} warps "
            f"cannot read {shape[0]}×{shape[1]}",
            span,
        )
    if shape[0] == 64:
        return Blocked((1, shape[1] // (2 * groups)), (16, 2), (4, groups), (0, 1))
    return Blocked((1, shape[1] // groups), (32, 1), (4, groups), (0, 1))


def mma_layout(shape: tuple[int, ...], warps: int) -> MmaV2:
    """The accumulator of mma_v2 of `shape`: warps where the most 16×8 instructions are left, rows first."""
    return MmaV2(_spread(shape, (16, 8), warps))


def mfma_layout(shape: tuple[int, ...], element: DType, warps: int, cdna: int, span: Span) -> Mfma:
    """The accumulator of mfma of `shape`: 32×32 instructions where each warp gets one, else 16×16, rows first."""
    large = shape[0] % 32 == 0 and shape[1] % 32 == 0 and shape[0] * shape[1] >= 32 * 32 * warps
    size = 32 if large else 16
    depth = mfma_depth(cdna, size, element)
    if depth is None:
        raise InferenceError(f"mfma does not multiply {element} on CDNA{cdna}", span)
    return Mfma(_spread(shape, (size, size), warps), (size, size, depth), cdna)


def mma_operand(index: int, parent: MmaV2 | Mfma, element: DType, depth: int) -> DotOperand:
    """The layout of operand A (0) or B (1) with `depth` elements along K.

    For mfma a lane holds as much of K as one access to shared memory brings, which is one or several instructions.
    """
    if isinstance(parent, MmaV2):
        return DotOperand(index, parent, max(1, 32 // element.bits))
    lanes = 64 // parent.instr[0]
    width = max(1, parent.instr[2] // lanes)
    while 2 * width * element.bytes <= _WIDEST_SHARED_ACCESS and 2 * width * lanes <= depth:
        width *= 2
    return DotOperand(index, parent, width)


def accumulator_layout(
    kernel: ir.Kernel, stmt: ir.Mma, shape: tuple[int, ...], element: DType, warps: int
) -> MmaV2 | Mfma:
    """The accumulator of a matrix instruction on registers, `shape` elements by `warps` warps."""
    if stmt.instr != "mfma":
        return mma_layout(shape, warps)
    target = TARGETS[kernel.target]
    if not target.cdna:
        raise InferenceError(f"{target.name} has no mfma", stmt.span)
    left, right, into = (kernel.types[n] for n in (stmt.a, stmt.b, stmt.dst))
    assert isinstance(left, TileType) and isinstance(right, TileType) and isinstance(into, TileType)
    if wrong := problem("mfma", target, left.dtype, right.dtype, into.dtype):
        raise InferenceError(wrong, stmt.span)
    return mfma_layout(shape, element, warps, target.cdna, stmt.span)


def warp_size(kernel: ir.Kernel) -> int:
    """Lanes of a warp of the kernel's target."""
    return TARGETS[kernel.target].warp_size


def _spread(shape: tuple[int, ...], unit: tuple[int, int], warps: int) -> tuple[int, int]:
    """Warps along each dimension: doubled where the most instructions of `unit` are left."""
    grid = [1, 1]
    while grid[0] * grid[1] < warps:
        left = (shape[0] // (unit[0] * grid[0]), shape[1] // (unit[1] * grid[1]))
        grid[1 if left[1] > left[0] else 0] *= 2
    return grid[0], grid[1]
