"""TW503: operands that a matrix instruction does not take.

wgmma (sm_90a): each warpgroup of 4 warps computes 64 rows; N is a multiple of 8; K a multiple of 32 bytes (PTX ISA,
wgmma.mma_async). mma_v2 (sm_80 and up): fragments of 16×8, K a multiple of 16 for 16-bit types and of 8 for f32 as
tf32 (PTX ISA, mma.sync). mfma (AMD): 16×16 or 32×32, K as the instruction of the accumulator's layout (CDNA3 and CDNA4
ISA, "Matrix Arithmetic Instructions"). tcgen05 (sm_100a): 64 or 128 rows, N a multiple of 16 up to 256, K of 16 (PTX
ISA, tcgen05.mma, kind::f16 and one block). Element types are those of `tilewright.matrix`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilewright import matrix
from tilewright.dtypes import DType
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TensorMemoryType, TileType
from tilewright.layout import Mfma, Swizzled, Wgmma
from tilewright.targets import TARGETS, TENSOR_MEMORY_ROWS, Feature

from ...context import KernelContext, Site
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW503"
_WARPGROUP = 4
_WGMMA_ROWS = 64


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each matrix instruction."""
    for site in context.sites:
        match site.stmt:
            case ir.Wgmma(dst=dst, a=a, b=b):
                left = context.tile(a.name) if isinstance(a, ir.TileRef) else context.stage(a)
                name, problem = "wgmma", _wgmma(context, site, left, context.stage(b), dst)
            case ir.Tcgen05(acc=acc, a=a, b=b):
                name, problem = "tcgen05", _tcgen05(context, acc, context.stage(a), context.stage(b))
            case ir.Mma(dst=dst, a=a, b=b, instr=("mma_v2" | "mfma") as name, precision=precision):
                left = context.tile(a)
                problem = _mma(context, name, left, context.tile(b), dst)
                if left is not None and not problem:
                    problem = matrix.precision_problem(name, left.dtype, precision)
            case _:
                continue
        what = f"the operands have shapes and types that {name} takes"
        if problem:
            yield refuted(context, CODE, "layout", what, site.stmt.span, problem)
        else:
            yield proved(CODE, "layout", what, site.stmt.span, "instruction table")


def _wgmma(context: KernelContext, site: Site, a: SharedType | TileType | None, b: SharedType | None, dst: str) -> str:
    acc = context.tile(dst)
    if a is None or b is None or acc is None:
        return "wgmma reads b from shared memory, a from there or from registers, and writes a register tile."
    common = _target(context, "wgmma") or _common(
        context, "wgmma", a.dtype, b.dtype, acc.dtype, a.shape, b.shape, acc.shape
    )
    if common:
        return common
    (m, k), n = a.shape, b.shape[1]
    warps = context.role_warps[site.role]
    if warps % _WARPGROUP:
        return ""  # TW603 says it
    # Without a layout, warpgroups stand below each other, as layout inference places them while rows last.
    groups = acc.layout.warps_per_cta[0] // _WARPGROUP if isinstance(acc.layout, Wgmma) else 1
    if m % (_WGMMA_ROWS * groups):
        return (
            f"wgmma computes {_WGMMA_ROWS} rows a warpgroup, so M must be a multiple of {_WGMMA_ROWS * groups} for "
            f"{groups} "
            f"warpgroup{'s' if groups > 1 else ''} down the rows; here M = {m}."
        )
    depth = matrix.nvidia_depth(a.dtype)
    if n % 8:
        return f"wgmma computes 8 to 256 columns in steps of 8; here N = {n}."
    if k % depth:
        return f"wgmma multiplies {depth} elements of {a.dtype} along K at a time; here K = {k}."
    refs = (site.stmt.a, site.stmt.b) if isinstance(site.stmt, ir.Wgmma) else ()
    for ref, operand, along in zip(refs, (a, b), (False, True), strict=True):
        if not isinstance(ref, ir.BufRef) or not isinstance(operand, SharedType):
            continue
        layout = operand.layout
        if not isinstance(layout, Swizzled):
            continue  # TW505 says it
        if not layout.bytes:
            return f"wgmma reads rows of at least 32 bytes in a swizzle; those of {ref.buffer} have none."
        if matrix.both_along_k(a.dtype) and layout.transposed != along:
            return matrix.K_CONTIGUOUS.format(name=ref.buffer, dtype=operand.dtype) + "."
    return ""


def _tcgen05(context: KernelContext, ref: ir.BufRef, a: SharedType | None, b: SharedType | None) -> str:
    acc = context.kernel.types.get(ref.buffer)
    if a is None or b is None or not isinstance(acc, TensorMemoryType):
        return "tcgen05 reads both operands from shared memory and writes tensor memory."
    common = _target(context, "tcgen05") or _common(
        context, "tcgen05", a.dtype, b.dtype, acc.dtype, a.shape, b.shape, acc.shape
    )
    if common:
        return common
    (m, k), n = a.shape, b.shape[1]
    if m not in TENSOR_MEMORY_ROWS:
        return f"tcgen05 computes 64 or 128 rows in a block; here M = {m}."
    for axis, extent, unit in (("N", n, 16), ("K", k, 16)):
        if extent % unit:
            return f"tcgen05 on {a.dtype} needs {axis} to be a multiple of {unit}; here {axis} = {extent}."
    return f"tcgen05 computes at most 256 columns; here N = {n}." if n > 256 else ""


def _mma(
    context: KernelContext, name: Literal["mma_v2", "mfma"], a: TileType | None, b: TileType | None, dst: str
) -> str:
    acc = context.tile(dst)
    if a is None or b is None or acc is None:
        return f"{name} reads both operands from register tiles and writes one."
    common = _target(context, name) or _common(context, name, a.dtype, b.dtype, acc.dtype, a.shape, b.shape, acc.shape)
    if common:
        return common
    (m, k), n = a.shape, b.shape[1]
    units = (16, 8, matrix.nvidia_depth(a.dtype)) if name == "mma_v2" else (16, 16, 1)
    if isinstance(acc.layout, Mfma):
        units = acc.layout.instr
    for axis, extent, unit in zip("MNK", (m, n, k), units, strict=True):
        if extent % unit:
            return f"{name} on {a.dtype} needs {axis} to be a multiple of {unit}; here {axis} = {extent}."
    return ""


def _target(context: KernelContext, feature: Feature) -> str:
    target = TARGETS.get(context.kernel.target)
    if target is None or target.has(feature):
        return ""
    having = ", ".join(t.name for t in TARGETS.values() if t.has(feature))
    return f"{target.name} has no {feature}; targets that do: {having}."


def _common(
    context: KernelContext,
    name: matrix.Instruction,
    a: DType,
    b: DType,
    acc: DType,
    left: tuple[int, ...],
    right: tuple[int, ...],
    result: tuple[int, ...],
) -> str:
    if problem := matrix.problem(name, TARGETS[context.kernel.target], a, b, acc):
        return problem + "."
    if len(left) != 2 or len(right) != 2 or left[1] != right[0] or result != (left[0], right[1]):
        return f"{name} multiplies (M, K) by (K, N) into (M, N), not {left} by {right} into {result}."
    return ""
