"""TW305: a tensor is accumulated into that nothing initializes.

An atomic update builds on what is there. If the launch does not fill the tensor with zeros (`tw.zeroed`), and the
caller is not said to (`tw.initialized`), the result is old memory plus the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright.problem import Fix
from tilewright.source import Span

from ...context import KernelContext, Site, view_span
from ...report import Obligation
from ..outcome import call_prefix, counterexample, first_line_fix, proved, refuted

CODE = "TW305"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each tensor that is accumulated into."""
    seen: set[str] = set()
    for site, tensor, span in _updates(context):
        if tensor in seen:
            continue
        seen.add(tensor)
        what = f"{tensor} is initialized before programs accumulate into it"
        given = context.kernel.param(tensor).given
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
