"""TW501: rows of a tensor do not start where a copy instruction needs them.

A bulk copy (TMA) reads whole rows through a tensor map: the last dimension must be contiguous and every other stride
a multiple of 16 bytes (CUDA driver API, cuTensorMapEncodeTiled). cp.async copies 4, 8 or 16 bytes at addresses that
are multiples of their size (PTX ISA, cp.async), so for elements smaller than 4 bytes each row must hold a multiple of
4 bytes and start at one. When a stride is a size, that is a property of the arguments: state it with `tw.assume`, and
launching checks it. The address of the tensor itself is also checked at launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import GlobalType
from tilewright.problem import Fix

from ...context import KernelContext, Site, view_span
from ...integers import Question
from ...report import Obligation
from ..outcome import assume_fix, fixes_of, settle

CODE = "TW501"
_TMA_BYTES = 16
_CP_ASYNC_BYTES = 4


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each copied tensor and stride, and for each origin of a narrow cp.async."""
    done: set[tuple[str, bool]] = set()
    for site, view in context.views():
        tma = isinstance(site.stmt, ir.TmaLoad | ir.TmaStore)
        if not tma and not isinstance(site.stmt, ir.CpAsync):
            continue
        if (view.tensor, tma) not in done:
            done.add((view.tensor, tma))
            yield from _strides(context, site, view, tma)
        if not tma:
            yield from _origin(context, site, view)


def _strides(context: KernelContext, site: Site, view: ir.View, tma: bool) -> Iterator[Obligation]:
    tensor = context.kernel.param(view.tensor).type
    copy = "A bulk copy (TMA)" if tma else "cp.async"
    for dim, stride in enumerate(tensor.strides):
        last = dim == len(tensor.strides) - 1
        unit = max(1, (_TMA_BYTES if tma else _CP_ASYNC_BYTES) // tensor.dtype.bytes)
        if last:
            claim = ex.Bin("==", stride, ex.Int(1))
            what = f"the last dimension of {view.tensor} is contiguous"
        elif unit == 1:
            continue
        else:
            claim = ex.Bin("==", ex.Bin("%", stride, ex.Int(unit)), ex.Int(0))
            what = f"stride {dim} of {view.tensor} is a multiple of {unit * tensor.dtype.bytes} bytes"
        decision = context.decider.decide(Question(claim, context.assumptions))

        def message(
            m: Mapping[str, int], stride: ex.Expr = stride, dim: int = dim, last: bool = last, unit: int = unit
        ) -> str:
            value = ex.evaluate(stride, m)
            if last:
                return (
                    f"{copy} needs neighbours of the last dimension of {view.tensor} side by side, but its stride is "
                    f"{value}."
                )
            size = tensor.dtype.bytes
            return (
                f"{copy} needs stride {dim} of {view.tensor} to be a multiple of {unit * size} bytes; it is "
                f"{ex.show(stride)} elements "
                f"of {tensor.dtype}, here {value * size} bytes."
            )

        yield settle(
            context, site, CODE, "layout", what, decision, message, span=view_span(site.stmt, view),
            fixes=fixes_of(None if last else _multiple(context, _row_length(tensor, stride), tensor.dtype.bytes)),
        )  # fmt: skip
    if not tma and tensor.dtype.bytes < _CP_ASYNC_BYTES and tensor.shape[-1] not in tensor.strides:
        yield _row(context, site, view)


def _row_length(tensor: GlobalType, stride: ex.Expr) -> ex.Expr:
    """What has to be a multiple for a stride to be one: a declared stride itself, else the length of a row."""
    return stride if isinstance(stride, ex.Size | ex.Int) else tensor.shape[-1]


def _row(context: KernelContext, site: Site, view: ir.View) -> Obligation:
    """A copy that crosses the end of a row would be half inside: the row length must be a multiple of the copy."""
    tensor = context.kernel.param(view.tensor).type
    size, length = tensor.dtype.bytes, tensor.shape[-1]
    unit = _CP_ASYNC_BYTES // size
    claim = ex.Bin("==", ex.Bin("%", length, ex.Int(unit)), ex.Int(0))
    decision = context.decider.decide(Question(claim, context.assumptions))

    def message(m: Mapping[str, int]) -> str:
        return (
            f"cp.async copies at least {_CP_ASYNC_BYTES} bytes, but a row of {view.tensor} holds "
            f"{ex.evaluate(length, m)} elements of "
            f"{tensor.dtype}: its last copy would be half outside."
        )

    return settle(
        context, site, CODE, "layout", f"rows of {view.tensor} hold whole copies of {_CP_ASYNC_BYTES} bytes", decision,
        message, span=view_span(site.stmt, view), fixes=fixes_of(_multiple(context, length, size)),
    )  # fmt: skip


def _origin(context: KernelContext, site: Site, view: ir.View) -> Iterator[Obligation]:
    tensor = context.kernel.param(view.tensor).type
    unit = _CP_ASYNC_BYTES // tensor.dtype.bytes
    if unit <= 1:
        return
    origin = site.value(view.origin[-1])
    claim = ex.Bin("==", ex.Bin("%", origin, ex.Int(unit)), ex.Int(0))
    decision = context.decider.decide(site.question(claim))

    def message(m: Mapping[str, int]) -> str:
        return (
            f"cp.async copies at multiples of {_CP_ASYNC_BYTES} bytes, but this tile of {view.tensor} starts at "
            f"element "
            f"{ex.evaluate(origin, m)} of a row, at byte {ex.evaluate(origin, m) * tensor.dtype.bytes}."
        )

    what = f"the tile of {view.tensor} starts at a multiple of {_CP_ASYNC_BYTES} bytes in its row"
    yield settle(context, site, CODE, "layout", what, decision, message, span=view_span(site.stmt, view))


def _multiple(context: KernelContext, extent: ex.Expr, element_bytes: int) -> Fix | None:
    """Assume that rows are multiples of 16 bytes: enough for every copy, and the widest one is then possible."""
    if isinstance(extent, ex.Int):
        return None
    unit = ex.Int(max(1, _TMA_BYTES // element_bytes))
    return assume_fix(context, ex.Bin("==", ex.Bin("%", extent, unit), ex.Int(0)))
