"""TW105: exponentials relative to different maxima are added, or one is stored.

An online softmax keeps a running maximum m, and sums of exp(x - m). When m grows, what was summed before is relative to
the old one and must be multiplied by exp(m_old - m_new), once. Every value carries what it is relative to
(`references`); where values are added it must be equal, and what is stored must not be relative to anything, unless the
maximum is stored beside it.

A right kernel gives the same result whatever number is subtracted in place of the maximum. So a finding is shown by
running the kernel as it stands, and with other maxima: the message names an output that differs, or that is not finite
although all arguments are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

import numpy as np

from tilewright.interpret.numeric import Array
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import Type

from ...context import KernelContext, Site
from ...report import Obligation
from ..outcome import proved, refuted, situation, unknown
from .counterfactual import Difference, first_difference, trial_sizes
from .references import offset, words
from .scaling import Meeting, Scaling

CODE = "TW105"
_SECONDS = 4.0
_HOW = "scales of exponentials"
_SUMS = "what is added here is relative to the same maximum"
_STORES = "what is stored here depends on no maximum that was subtracted"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each sum of exponentials relative to a maximum, and each store of what came of them."""
    scaling = Scaling(context).run()
    broken = any(not m.agree and m.right is not None for m in scaling.meetings)
    for meeting in scaling.meetings:
        what = _STORES if meeting.right is None else _SUMS
        span = meeting.stmt.span
        if broken and (meeting.lost or (meeting.right is None and not meeting.agree)):
            how = "not decided because of the mismatch before it"
            yield Obligation(CODE, "tags", what, span, "unknown", how=how)
        elif meeting.lost:
            yield unknown(context, CODE, "tags", what, span, f"the scale is not known: {meeting.lost}")
        elif meeting.agree:
            yield proved(CODE, "tags", what, span, _HOW)
        else:
            yield _mismatch(context, scaling, meeting, what)


def _mismatch(context: KernelContext, scaling: Scaling, meeting: Meeting, what: str) -> Obligation:
    stmt = meeting.stmt
    site = next(s for s in context.sites if s.stmt is stmt)
    if meeting.logarithm:
        text = (
            f"A logarithm of exponentials that are relative to a maximum is stored, and is off by "
            f"{offset(meeting.left)}: add the maximum to it, once, or store the maximum."
        )
    elif meeting.right is None:
        text = f"What is stored is still {words(meeting.left)}: divide it by a sum that is, too, or store the maximum."
    else:
        text = (
            f"Values are added of which one is {words(meeting.left)} and the other {words(meeting.right)}: multiply "
            "what was summed before by exp(old maximum - new maximum), once."
        )
    shown = _shown(context, scaling)
    if shown is None:
        missing = f"{text} But no sizes were found at which another maximum changes what is stored"
        return unknown(context, CODE, "tags", what, stmt.span, missing)
    found, how = shown
    example = found.example("with other maxima", site.role)
    if isfinite(found.got):
        numbers = f"is {found.got:.6g}, and {found.repaired:.6g} {how}, which a right kernel does not notice"
    else:
        numbers = f"becomes {found.got:g} although all arguments are finite"
    text = f"{text} {found.where} {numbers}. {situation(example)}"
    return refuted(context, CODE, "tags", what, stmt.span, text, example=example, how=_HOW)


def _shown(context: KernelContext, scaling: Scaling) -> tuple[Difference, str] | None:
    """A run in which other references change an output that contains none, and what was changed."""
    added = "with 1 added to some maxima"
    variants = (
        (_shifted(context, scaling, 1), added),
        (_shifted(context, scaling, 0), added),
        (_restarted(context.kernel), "with a running maximum that starts from 0"),
    )
    for changed, how in variants:
        seconds = min(_SECONDS, context.seconds_left())
        found = first_difference(
            context.kernel, changed, trial_sizes(context.kernel), seconds, _noticeable, without=scaling.exposed
        )
        if found is not None:
            return found, how
    return None


def _noticeable(got: Array, want: Array) -> Array:
    """More than rounding makes of it, or what is not finite although arguments are."""
    with np.errstate(all="ignore"):
        room = 1e-3 + 2e-2 * np.maximum(np.abs(got), np.abs(want))
        return ~np.isfinite(got) | (np.isfinite(want) & (np.abs(got - want) > room))


def _shifted(context: KernelContext, scaling: Scaling, first: int) -> ir.Kernel:
    """The kernel with 1 added to the references of every other iteration, beginning with the first if `first` is 1."""
    sites = {id(s.stmt): s for s in context.sites}
    types: dict[str, Type] = dict(context.kernel.types)

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if id(stmt) not in scaling.references or not isinstance(stmt, ir.Compute):
            return None
        plain = f"%reference{len(types)}"
        types[plain] = types[stmt.dst]
        made = ir.Compute(plain, stmt.op, stmt.args, stmt.axis, stmt.keep, span=stmt.span)
        return made, ir.Compute(stmt.dst, "add", (ir.TileRef(plain), _odd(sites[id(stmt)], first)), span=stmt.span)

    body = ir.rewrite(context.kernel.body, change)
    return context.kernel.with_body(body, types)


def _restarted(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with 0 in place of the minus infinity that running maxima start from."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Compute) and stmt.op == "full" and stmt.args == (-inf,):
            return (ir.Compute(stmt.dst, "full", (0.0,), span=stmt.span),)
        return None

    return kernel.with_body(ir.rewrite(kernel.body, change))


def _odd(site: Site, first: int) -> ex.Expr:
    """`first` in the first iteration, then 0 and 1 in turn. Outside of loops 1, or 2."""
    loops = [b for b in site.loops if b.kind == "loop"]
    if not loops:
        return ex.Int(2 - first)
    turns: ex.Expr = ex.Int(first)
    for b in loops:
        turns = ex.add(turns, ex.floordiv(ex.Var(b.label), ex.Int(b.step)))
    return ex.mod(turns, ex.Int(2))
