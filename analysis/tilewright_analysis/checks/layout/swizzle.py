"""TW505: the layout of a shared buffer does not fit its tile, or not what reads and writes it.

A swizzle of 128, 64 or 32 bytes needs rows at least that wide and 8 rows; its element width is that of the buffer.
Bulk copies (TMA) and wgmma address shared memory through descriptors that know only these swizzles, so both need
`tw.swizzled(...)`; a buffer in another layout would be read in the wrong order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType
from tilewright.layout import LayoutError, Swizzled, default_swizzle, transposed_view
from tilewright.problem import Related
from tilewright.source import Span

from ...context import KernelContext
from ...report import Obligation
from ..outcome import proved, refuted

CODE = "TW505"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each shared buffer, and one for each bulk copy and wgmma operand."""
    for stmt in ir.walk(context.kernel.body):
        match stmt:
            case ir.AllocShared(dst=name):
                buffer = context.shared(name)
                if buffer is not None:
                    yield _fits(context, name, buffer, stmt.span)
            case ir.TmaLoad(dst=ref) | ir.TmaStore(src=ref):
                yield from _descriptor(context, ref.buffer, stmt.span, "a bulk copy", rows_only=True)
            case ir.SharedLoad(src=ref) if ref.transposed:
                yield from _transposed(context, ref, stmt.span)
            case ir.Wgmma(a=a, b=b) | ir.Tcgen05(a=a, b=b):
                refs = tuple(ref for ref in dict.fromkeys((a, b)) if isinstance(ref, ir.BufRef))
                for ref in refs:
                    yield from _transposed(context, ref, stmt.span)
                if isinstance(stmt, ir.Tcgen05):
                    continue
                for name in dict.fromkeys(ref.buffer for ref in refs):
                    yield from _descriptor(context, name, stmt.span, "wgmma", rows_only=False)
            case _:
                pass


def _fits(context: KernelContext, name: str, buffer: SharedType, span: Span) -> Obligation:
    what = f"the layout of {name} fits its tile"
    problem = ""
    try:
        buffer.layout.linear(buffer.shape)
    except LayoutError as error:
        problem = f"The layout of {name} does not fit {buffer}: {error}."
    if isinstance(buffer.layout, Swizzled) and buffer.layout.element_bits != buffer.dtype.bits:
        problem = (
            f"The layout of {name} is for {buffer.layout.element_bits}-bit elements, but its elements are "
            f"{buffer.dtype} with "
            f"{buffer.dtype.bits} bits."
        )
    if not problem:
        return proved(CODE, "layout", what, span, "layout algebra")
    if isinstance(buffer.layout, Swizzled) and len(buffer.shape) == buffer.layout.rank:
        best = default_swizzle(buffer.shape, buffer.dtype.bits, transposed=buffer.layout.transposed)
        problem += f" The widest swizzle that fits is {best.bytes} bytes."
    return refuted(context, CODE, "layout", what, span, problem)


def _transposed(context: KernelContext, ref: ir.BufRef, span: Span) -> Iterator[Obligation]:
    buffer = context.shared(ref.buffer)
    if buffer is None or not ref.transposed:
        return
    what = f"{ref.buffer} can be seen transposed"
    try:
        transposed_view(buffer.layout, buffer.shape)
    except LayoutError as error:
        text = f"{ref.buffer} cannot be seen transposed: {error}."
        related = (Related(context.alloc_span(ref.buffer), f"the layout of {ref.buffer}"),)
        yield refuted(context, CODE, "layout", what, span, text, related=related)
        return
    yield proved(CODE, "layout", what, span, "layout algebra")


def _descriptor(context: KernelContext, name: str, span: Span, user: str, *, rows_only: bool) -> Iterator[Obligation]:
    buffer = context.shared(name)
    if buffer is None:
        return
    what = f"{name} has a layout that {user} can address"
    layout = buffer.layout
    if isinstance(layout, Swizzled) and not (rows_only and layout.transposed):
        yield proved(CODE, "layout", what, span, "swizzle of TMA and wgmma")
        return
    need = "tw.swizzled(...)" + (", not transposed" if rows_only and isinstance(layout, Swizzled) else "")
    text = f"{user[:1].upper()}{user[1:]} needs {name} in the layout {need}; it is {layout}."
    related = (Related(context.alloc_span(name), f"the layout of {name}"),)
    yield refuted(context, CODE, "layout", what, span, text, related=related)
