"""TW305: a tensor is accumulated into that nothing initializes.

An atomic update builds on what is there. If the launch does not fill the tensor with zeros (`tw.zeroed`), and the
caller is not said to (`tw.initialized`), the result is old memory plus the sum. A maximum that begins with zeros is
one of numbers and 0: it is right only if none of them is negative, and likewise a minimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import nodes as ir
from tilewright.problem import Fix
from tilewright.source import Span

from ...context import KernelContext, Site, view_span
from ...report import Obligation
from ..outcome import call_prefix, counterexample, first_line_fix, proved, refuted, unknown
from ..tags.flow import Flow, Tiles
from ..tags.lanes import INSIDE
from ..tags.numbers import ANYTHING, NOTHING, Number

CODE = "TW305"
# What a maximum or minimum with 0 does not see, and on which side of 0 that is.
_LOST: Mapping[str, tuple[frozenset[str], str]] = {
    "max": (frozenset(("-", "-inf")), "below"),
    "min": (frozenset(("+", "inf")), "above"),
}


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each tensor that is accumulated into."""
    seen: set[str] = set()
    for site, tensor, span in _updates(context):
        if tensor in seen:
            continue
        seen.add(tensor)
        what = f"{tensor} is initialized before programs accumulate into it"
        given = context.kernel.param(tensor).given
        if given == "zeros" and (lost := _beyond_zero(context, tensor)):
            yield unknown(context, CODE, "grid", what, span, lost)
            continue
        if given:
            yield proved(CODE, "grid", what, span, "filled by the launch" if given == "zeros" else "said to be given")
            continue
        sizes = context.decider.complete({}, context.kernel.sizes, context.assumptions)
        text = (
            f"Nothing initializes {tensor} before programs accumulate into it: the result is what was in memory "
            f"before, and the sum. Let the launch fill it with tw.zeroed({tensor}), or say with "
            f"tw.initialized({tensor}) that the caller does."
        )
        example = counterexample(context, site, sizes)
        yield refuted(context, CODE, "grid", what, span, text, example=example, fixes=_fixes(context, tensor))


class _Updates(Flow):
    """Also follows what goes into maxima and minima in memory."""

    def __init__(self, context: KernelContext) -> None:
        super().__init__(context)
        self.values: dict[tuple[str, str], Number] = {}

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        if isinstance(stmt, ir.Atomic | ir.Scatter) and stmt.op in _LOST:
            at = stmt.view.tensor if isinstance(stmt, ir.Atomic) else stmt.tensor, stmt.op
            tile = tiles.get(stmt.src)
            value = ANYTHING if tile is None else tile.anywhere if tile.lost else tile.at(INSIDE)
            self.values[at] = self.values.get(at, NOTHING) | value
        super()._statement(stmt, tiles)


def _beyond_zero(context: KernelContext, tensor: str) -> str:
    """Which of the numbers have no part in a maximum or minimum that begins with zeros; empty if there are none."""
    kinds = {
        site.stmt.op
        for site, name, _ in _updates(context)
        if name == tensor and isinstance(site.stmt, ir.Atomic | ir.Scatter)
    }
    if not kinds & _LOST.keys():
        return ""
    updates = _Updates(context)
    updates.run()
    for (name, op), value in updates.values.items():
        lost, side = _LOST[op]
        if name == tensor and value.kinds & lost:
            return (
                f"the launch fills {tensor} with zeros, so values {side} 0 have no part in what atomic_{op} leaves "
                f"there, and there may be some: fill {tensor} with another value before the launch, and say so with "
                f"tw.initialized({tensor})"
            )
    return ""


def _updates(context: KernelContext) -> Iterator[tuple[Site, str, Span]]:
    """Atomic updates, with their tensors and places."""
    for site in context.sites:
        match site.stmt:
            case ir.Atomic(view=view) as stmt:
                yield site, view.tensor, view_span(stmt, view)
            case ir.Scatter(tensor=tensor, op="add" | "max" | "min"):
                yield site, tensor, site.stmt.span
            case _:
                pass


def _fixes(context: KernelContext, tensor: str) -> tuple[Fix, ...]:
    prefix = call_prefix(context)
    found = first_line_fix(context, f"Fill {tensor} with zeros", f"{prefix}zeroed({tensor})")
    return () if found is None else (found,)
