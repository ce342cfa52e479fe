"""TW102 for sums over programs: what all programs add to a tile covers a contraction exactly once.

The engine says what one program adds: all of a contraction, or part i of it, elements from `i * L` to `i * L + L`. The
parts of a tile are complete together if the map from programs to (part, tile) is one to one onto the parts and tiles,
which is the question of TW301 to TW303 for an output with one more dimension. What lies past the end of the dimension
adds nothing, as copies and operands are zero there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...async_.model import Addend, AsyncOutcome
from ...async_.sizes import PROGRAM
from ...context import KernelContext, Site
from ...report import Obligation
from ..outcome import proved, refuted, situation, unknown
from .tile_map import one_to_one
from .writes import Write

CODE = "TW102"
# What the faults of a map from programs to parts and tiles mean for a sum.
WRONG = {
    "TW301": "a program adds what is no part of it, or to no tile",
    "TW302": "the same part is added twice",
    "TW303": "a part is never added",
}


def whole(context: KernelContext, o: AsyncOutcome, addends: Collection[Addend]) -> Obligation:
    """The outcome for a statement that adds, once the parts of all programs are put together."""
    site = next(s for s in context.sites if f"statement {id(s.stmt)}" == o.subject)
    stmt = site.stmt
    assert isinstance(stmt, ir.Atomic)
    if len({a.extent for a in addends}) < len(addends):
        missing = "iterations of one statement add different parts of a contraction"
        return unknown(context, CODE, "tags", o.what, o.span, missing)
    if missing := left_open(context, stmt):
        return unknown(context, CODE, "tags", o.what, o.span, missing)
    for addend in addends:
        claim = first_open(context, _write(context, site, stmt, addend))
        if claim is None:
            continue
        extent = ex.show(addend.extent)
        if claim.verdict == "unknown" or claim.finding is None:
            missing = f"whether the programs add all parts of [0, {extent}) once to each tile"
            return unknown(context, CODE, "tags", o.what, o.span, missing)
        example = claim.finding.counterexample
        if claim.code == "TW303" and example is not None:
            # The interpreter cannot tell what nobody adds from what need not be added.
            example = replace(example, values={**example.values, "contracted": "nothing"})
        text = (
            f"What the programs add to a tile of {stmt.view.tensor} does not cover [0, {extent}) exactly once: "
            f"{WRONG[claim.code]}. {situation(example) if example is not None else ''}"
        ).rstrip()
        return refuted(context, CODE, "tags", o.what, o.span, text, example=example, how=claim.how)
    return proved(CODE, "tags", o.what, o.span, "exploration of all trip counts, and one part a program")


def left_open(context: KernelContext, stmt: ir.Atomic) -> str:
    """Why the parts that a statement adds to a tensor cannot be put together with all others; empty if they can."""
    tensor = stmt.view.tensor
    if sum(isinstance(s.stmt, ir.Atomic) and s.stmt.view.tensor == tensor for s in context.sites) > 1:
        return f"several statements add to {tensor}, and which parts each adds is not put together"
    return "which elements a mask leaves out is not followed" if stmt.mask is not None else ""


def first_open(context: KernelContext, write: Write) -> Obligation | None:
    """The first question about a map from programs to parts and tiles that is not proved; None if all are."""
    return next((claim for claim in one_to_one(context, write) if claim.verdict != "proved"), None)


def _write(context: KernelContext, site: Site, stmt: ir.Atomic, addend: Addend) -> Write:
    """The update as a store to an output whose first dimension, if there are parts, numbers them."""
    view = stmt.view
    origin = tuple(site.value(e) for e in view.origin)
    extents = context.kernel.param(view.tensor).type.shape
    if addend.index is None:
        return Write(site, view, origin, extents)
    program = next((ex.Var(b.name) for b in site.loops if b.kind == "program"), None)
    index = addend.index if program is None else ex.substitute(addend.index, {PROGRAM: program})
    parts = ex.cdiv(addend.extent, ex.Int(addend.length))
    first = replace(view, origin=(index, *view.origin), shape=(1, *view.shape), lead=view.lead + 1)
    return Write(site, first, (index, *origin), (parts, *extents))
