"""Layouts across operations that move axes: what Gluon gives the result for a blocked operand."""

from __future__ import annotations

from tilewright.ir import nodes as ir
from tilewright.layout import Blocked, DistributedLayout

DERIVED = frozenset(("transpose", "permute", "join", "half"))


def derived(stmt: ir.Compute, source: DistributedLayout | None) -> Blocked | None:
    """The layout of the result of an operation of `DERIVED`; None for an operand in a layout it cannot take."""
    if not isinstance(source, Blocked):
        return None
    match stmt.op:
        case "transpose":
            return permuted(source, tuple(reversed(range(len(source.order)))))
        case "permute":
            return permuted(source, stmt.order)
        case "join":
            return joined(source)
        case "half":
            return _halved(source)
        case _:
            return None


def permuted(layout: Blocked, order: tuple[int, ...]) -> Blocked:
    """The layout of a tile whose axis i was axis `order[i]`."""
    return Blocked(
        tuple(layout.size_per_thread[d] for d in order), tuple(layout.threads_per_warp[d] for d in order),
        tuple(layout.warps_per_cta[d] for d in order), tuple(order.index(d) for d in layout.order),
    )  # fmt: skip


def joined(layout: Blocked) -> Blocked:
    """The layout with a new last axis of two elements, both in one thread."""
    return Blocked(
        (*layout.size_per_thread, 2), (*layout.threads_per_warp, 1), (*layout.warps_per_cta, 1),
        (len(layout.order), *layout.order),
    )  # fmt: skip


def _halved(layout: Blocked) -> Blocked | None:
    """The layout without its last axis, if a thread holds both elements along it."""
    last = len(layout.order) - 1
    if (layout.size_per_thread[last], layout.threads_per_warp[last], layout.warps_per_cta[last]) != (2, 1, 1):
        return None
    return Blocked(
        layout.size_per_thread[:-1], layout.threads_per_warp[:-1], layout.warps_per_cta[:-1],
        tuple(d for d in layout.order if d != last),
    )  # fmt: skip
