"""A loop that leaves out elements which its mask lets count: shown by running it over all of the dimension."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tilewright.expand import ExpansionError, expand_policies
from tilewright.interpret.numeric import Array
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext
from ...plain import plain
from ...report import Counterexample
from ..outcome import situation
from .counterfactual import first_difference, trial_sizes
from .rest import Rest

_SECONDS = 3.0
_RUNS = 40
# One element of a few thousand shows; the roundings of sums in another order do not.
_ROUNDING = 1e-3


def shortened(context: KernelContext, parts: Iterable[Rest]) -> tuple[str, Counterexample] | None:
    """What a run says of elements that a loop leaves out, and where; None if none shows that they count.

    Only where a mask says which elements count: else a loop may go over a part of a dimension on purpose.
    """
    open_ = [p for p in parts if not p.adds_nothing]
    if not open_ or not all(p.limited for p in open_):
        return None
    kernel = plain(context.written)
    one = open_[0]
    loops = [s for s in ir.walk(kernel.body) if isinstance(s, ir.For) and s.span == one.loop.span]
    if len(loops) != 1:
        return None
    (loop,) = loops
    lo, hi = loop.lo, loop.hi
    if any(p.before for p in open_):
        lo = ex.Int(0)
    if any(not p.before for p in open_):
        hi = one.extent

    def extended(stmt: ir.Stmt) -> ir.Block | None:
        same = isinstance(stmt, ir.For) and (stmt.span, stmt.var) == (loop.span, loop.var)
        return (replace(stmt, lo=lo, hi=hi),) if same else None

    longer = kernel.with_body(ir.rewrite(kernel.body, extended))
    seconds = min(_SECONDS, context.seconds_left())
    try:
        kernel, longer = expand_policies(kernel), expand_policies(longer)
    except ExpansionError:
        return None
    found = first_difference(kernel, longer, trial_sizes(kernel), seconds, _differ, most=_RUNS)
    if found is None:
        return None
    dim = ex.show(one.extent)
    example = Counterexample(
        sizes=dict(found.sizes),
        element=found.element,
        values={
            f"{found.where} as it stands": f"{found.got:.6g}",
            f"{found.where} with all of [0, {dim})": f"{found.repaired:.6g}",
        },
        replayed=True,
    )
    sides = " and ".join("begins too late" if p.before else "ends too early" for p in open_)
    text = (
        f"The loop over {loop.var} {sides}: it leaves out elements of [0, {dim}) that the mask lets count. "
        f"{found.where} becomes {found.got:.6g}, and {found.repaired:.6g} when the loop goes over all of them. "
        f"{situation(example)}"
    )
    return text, example


def _differ(got: Array, want: Array) -> Array:
    """Elements that are not about the same; what the longer loop makes no number says nothing."""
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= _ROUNDING * (1.0 + np.abs(want))
    return ~near & ~np.isnan(want) & (got != want)
