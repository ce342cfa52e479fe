"""TW102 for sums that programs add up: the parts of all programs cover the dimension, each element once.

A program that adds the sum of elements `start` to `start + length` of a dimension to a tile of the output does with
both what a store does with a tile of an output of one more dimension, so the questions are those of TW301 to TW303.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext
from ...report import Obligation
from ..grid import sums
from ..grid.writes import Write
from ..outcome import proved, situation, unknown
from .reduced import Stored
from .stretches import Reduction


def added(context: KernelContext, stored: Stored, reduction: Reduction) -> Obligation:
    """What becomes of a sum over a part of a dimension that every program adds to the output."""
    site, stretch = stored.site, reduction.stretch
    stmt = site.stmt
    assert isinstance(stmt, ir.Atomic)
    dim, span = ex.show(stretch.dim), stmt.span
    what = f"what programs add to {stored.tensor} of the sum over {dim} of {stretch.tensor} covers [0, {dim}) once"

    def open_(missing: str) -> Obligation:
        return unknown(context, "TW102", "tags", what, span, missing)

    if missing := sums.left_open(context, stmt):
        return open_(missing)
    if stretch.sometimes or stretch.steps or not isinstance(stretch.length, ex.Int):
        return open_(f"the part of {dim} that a program adds is not a tile at one place")
    origin = tuple(site.value(e) for e in stmt.view.origin)
    extents = context.kernel.param(stmt.view.tensor).type.shape
    shape = (stretch.length.value, *stmt.view.shape)
    view = replace(stmt.view, origin=(stretch.start, *stmt.view.origin), shape=shape)
    claim = sums.first_open(context, Write(site, view, (stretch.start, *origin), (stretch.dim, *extents)))
    if claim is not None:
        # The interpreter adds what it is told to, so a fault of the grid cannot be replayed and is not called refuted.
        example = claim.finding.counterexample if claim.finding is not None else None
        shown = f": {sums.WRONG[claim.code]}. {situation(example)}".rstrip() if example is not None else ""
        return open_(f"whether the programs add all parts of [0, {dim}) once to each tile{shown}")
    return proved("TW102", "tags", what, span, "one part a program")
