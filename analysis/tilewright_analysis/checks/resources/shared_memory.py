"""TW601: more shared memory than a block may have.

Rings, single tiles and barriers live for the whole kernel, so their bytes add up; swizzled buffers start at multiples
of 1024 bytes, others of 16. The compiler accepts a kernel that is over the limit and the launch fails, so the sum is
checked here, and so are the 512 columns of tensor memory (sm_100a). Layout conversions need scratch memory on top, at
most the bytes of the converted tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType
from tilewright.layout import Padded, Swizzled
from tilewright.problem import Related
from tilewright.targets import TARGETS, TENSOR_MEMORY_COLUMNS

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted, unknown

CODE = "TW601"
_MBARRIER_BYTES = 8


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for the kernel if it allocates anything, and one for its tensor memory."""
    yield from _tensor_memory(context)
    target = TARGETS.get(context.kernel.target)
    parts = allocations(context)
    if target is None or not parts:
        return
    total, limit = sum(parts.values()), target.shared_per_block
    what = f"shared memory is at most {limit} bytes"
    name = max(parts, key=lambda n: parts[n])
    span = context.alloc_span(name)
    if total > limit:
        listing = ", ".join(f"{n} {size}" for n, size in sorted(parts.items(), key=lambda p: -p[1]))
        text = (
            f"The kernel needs {total} bytes of shared memory, {total - limit} more than the {limit} that "
            f"{target.name} gives a block: "
            f"{listing}. Use fewer stages or smaller tiles."
        )
        related = tuple(Related(context.alloc_span(n), f"{n}: {size} bytes") for n, size in parts.items() if n != name)
        yield refuted(context, CODE, "resources", what, span, text, related=related)
        return
    scratch = _scratch(context)
    if total + scratch > limit:
        missing = (
            f"the buffers take {total} bytes, and a layout conversion may take up to {scratch} more, "
            f"{total + scratch - limit} over the limit"
        )
        yield unknown(context, CODE, "resources", what, span, missing)
    else:
        yield proved(CODE, "resources", what, span, f"{total} bytes")


def _tensor_memory(context: KernelContext) -> Iterator[Obligation]:
    columns = {n: t.columns for n, t in context.kernel.types.items() if isinstance(t, TensorMemoryType)}
    if not columns:
        return
    used, limit = sum(columns.values()), TENSOR_MEMORY_COLUMNS
    what = f"tensor memory is at most {limit} columns"
    name = max(columns, key=lambda n: columns[n])
    span = context.alloc_span(name)
    if used <= limit:
        yield proved(CODE, "resources", what, span, f"{used} columns")
        return
    text = f"The accumulators take {used} columns of tensor memory; a block has {limit}. Use fewer stages or tiles."
    yield refuted(context, CODE, "resources", what, span, text)


def allocations(context: KernelContext) -> dict[str, int]:
    """Bytes of each shared buffer and barrier array, rounded up to its alignment, by name."""
    found: dict[str, int] = {}
    for stmt in ir.walk(context.kernel.body):
        if isinstance(stmt, ir.AllocShared | ir.AllocBarrier):
            match context.kernel.types.get(stmt.dst):
                case SharedType() as buffer:
                    found[stmt.dst] = _bytes(buffer)
                case BarrierType(slots=slots):
                    found[stmt.dst] = -(-_MBARRIER_BYTES * slots // 16) * 16
                case _:
                    pass
    return found


def _bytes(buffer: SharedType) -> int:
    size = buffer.stage_bytes
    align = 16
    if isinstance(buffer.layout, Padded):
        size += prod(buffer.shape) // buffer.layout.interval * buffer.layout.padding * buffer.dtype.bytes
    elif isinstance(buffer.layout, Swizzled) and buffer.layout.bytes:
        align = 1024
    return -(-size * buffer.stages // align) * align


def _scratch(context: KernelContext) -> int:
    most = 0
    for stmt in ir.walk(context.kernel.body):
        if isinstance(stmt, ir.Compute) and stmt.op in ("convert_layout", "reshape"):
            tile = context.tile(stmt.dst)
            if tile is not None:
                most = max(most, prod(tile.shape) * tile.dtype.bytes)
    return most
