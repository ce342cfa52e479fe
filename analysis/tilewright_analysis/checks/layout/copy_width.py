"""TW504: a cp.async that would have to copy fewer than 4 bytes at a time.

cp.async copies 4, 8 or 16 bytes that are contiguous in global and in shared memory (PTX ISA). The layout of the stage
decides how many elements stay together there: `vec` of a swizzle, or the interval of a padded layout.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.divisibility import kernel_divisors
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType
from tilewright.layout import Padded, Swizzled, SwizzledShared
from tilewright.lines import copied_at_once
from tilewright.problem import Related

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW504"
_LEAST_BYTES = 4


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each cp.async."""
    for site in context.sites_of(ir.CpAsync, ir.CpGather):
        if not isinstance(site.stmt, ir.CpAsync | ir.CpGather):
            continue
        name = site.stmt.dst.buffer
        buffer = context.shared(name)
        if buffer is None:
            continue
        run = contiguous_run(buffer)
        what = f"the copy to {name} moves at least {_LEAST_BYTES} contiguous bytes"
        if isinstance(site.stmt, ir.CpGather) and (wrong := apart(context.kernel, site.stmt)):
            yield refuted(context, CODE, "layout", what, site.stmt.span, wrong)
            continue
        if run * buffer.dtype.bytes >= _LEAST_BYTES:
            yield proved(CODE, "layout", what, site.stmt.span, f"runs of {run} elements")
            continue
        text = (
            f"cp.async copies at least {_LEAST_BYTES} contiguous bytes, but the layout of {name} ({buffer.layout}) "
            f"keeps only {run} "
            f"element{'s' if run != 1 else ''} of {buffer.dtype} together, {run * buffer.dtype.bytes} bytes. "
            f"Use vec={16 // buffer.dtype.bytes}, the widest copy."
        )
        related = (Related(context.alloc_span(name), f"the layout of {name}"),)
        yield refuted(context, CODE, "layout", what, site.stmt.span, text, related=related)


def apart(kernel: ir.Kernel, stmt: ir.CpGather) -> str:
    """Why the elements that one copy of a gather would take do not lie together in memory; empty if they do."""
    size = kernel.param(stmt.tensor).type.dtype.bytes
    if copied_at_once(kernel, stmt, kernel_divisors(kernel)) * size >= _LEAST_BYTES:
        return ""
    unit = 16 // size
    return (
        f"cp.async copies at least {_LEAST_BYTES} contiguous bytes, all of them or none, but two neighbours of the "
        f"tile of {stmt.tensor} ({8 * size}-bit elements) are not known to lie together: the index of the last "
        f"dimension must count along the last axis of the tile from a multiple of {unit}, rows of {stmt.tensor} and "
        f"what a mask compares that index with must be multiples of {unit} (assume it of a size); or load with "
        'via="direct".'
    )


def contiguous_run(buffer: SharedType) -> int:
    """Elements of a row that lie side by side in shared memory."""
    row = buffer.shape[-1] if buffer.shape else 1
    last = len(buffer.shape) - 1
    match buffer.layout:
        case Swizzled(transposed=transposed):
            return 1 if transposed else min(row, 16 // buffer.dtype.bytes)
        case SwizzledShared(vec=vec, max_phase=phases, order=order):
            return (row if phases == 1 else min(row, vec)) if order[0] == last else 1
        case Padded(interval=interval, order=order):
            return min(row, interval) if order[0] == last else 1
