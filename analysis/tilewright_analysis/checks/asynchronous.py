"""TW101–TW103, TW106, TW203, TW204, TW401–TW407: what the asynchronous engine decides, as obligations.

The engine (`tilewright_analysis.async_`) follows asynchronous copies, barriers, fences and coordinate tags through
one canonical schedule that stands for all, for all trip counts. Each of its verdicts becomes an obligation here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewright.ir import nodes as ir
from tilewright_analysis.async_.alike import explore_alike
from tilewright_analysis.async_.model import AsyncOutcome, AsyncResult, Budget

from ..context import KernelContext
from ..replay import broken_expectation, replayed
from ..report import Family, Obligation
from .grid import sums
from .outcome import indented, proved, refuted, situation, unknown

CODES = (
    "TW101", "TW102", "TW103", "TW106", "TW203", "TW204", "TW401", "TW402", "TW403", "TW404", "TW405", "TW406", "TW407",
)  # fmt: skip
_FAMILIES: dict[str, Family] = {"1": "tags", "2": "memory", "4": "async"}
# What the engine says of obligations that it left open because of a violation it reports elsewhere.
_CONSEQUENCE = "not decided"
_SECONDS = 10.0


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each outcome of the engine."""
    said: set[str] = set()
    # Tags last: where the order of accesses is wrong, they follow from it.
    result = explored(context)
    for outcome in sorted(result.outcomes, key=lambda o: _FAMILIES[o.code[2]] == "tags"):
        decided = None
        if outcome.verdict == "unknown":
            decided = _stops(context, result, outcome) or _made_of_neighbours(context, outcome)
        if decided is not None:
            yield decided
            continue
        yield _obligation(context, outcome, said)


def _stops(context: KernelContext, result: AsyncResult, o: AsyncOutcome) -> Obligation | None:
    """An open contraction that stops at ends of loops: proved if the rest is masked, refuted if a mask shows some of
    it and a run that it counts.
    """
    from .tags.partition import in_parts
    from .tags.rest import left_out  # the flow of lanes reads what the engine found
    from .tags.shortened import shortened

    found = [end for store, ends in result.ends.items() if o.subject == f"statement {store}" for end in ends]
    if o.code != "TW102" or not found:
        return None
    if len(found) == 1 and (parts := in_parts(context, o, *found[0])) is not None:
        return parts
    if o.subject in _added(context.kernel):
        return None
    rests = [left_out(context, result, end, extent) for end, extent in found]
    if all(rests) and all(p.adds_nothing for rest in rests for p in rest):
        return proved(o.code, "tags", o.what, o.span, "exploration of all trip counts; the rest is masked")
    for text, example in filter(None, (shortened(context, rest) for rest in rests)):
        return refuted(context, o.code, "tags", o.what, o.span, text, example=example, how="a run over all of it")
    return None


def _added(kernel: ir.Kernel) -> set[str]:
    """Statements that add to what is there: all programs together are the sum."""
    return {f"statement {id(s)}" for s in ir.walk(kernel.body) if isinstance(s, ir.Atomic | ir.Scatter) and s.op}


def _made_of_neighbours(context: KernelContext, o: AsyncOutcome) -> Obligation | None:
    """A store of what was made of several places of a tensor, if these lie at known distances from where it goes."""
    from .tags.neighbours import placed

    if o.code != "TW103":
        return None
    stores = (s for s in ir.walk(context.kernel.body) if f"statement {id(s)}" == o.subject)
    return next((placed(context, o.what, s) for s in stores), None)


def explored(context: KernelContext) -> AsyncResult:
    """What the engine found, computed once for a kernel."""
    if context.exploration is None:
        budget = Budget(seconds=max(0.5, min(_SECONDS, context.seconds_left())))
        context.exploration = explore_alike(context.tagged, budget, context.decider.cancelled)
    return context.exploration


def stays_inside(context: KernelContext) -> bool:
    """True when the engine has seen every state of the kernel, and in none an index outside its ring or array."""
    outcomes = explored(context).outcomes
    return bool(outcomes) and all(o.verdict == "proved" for o in outcomes)


def _obligation(context: KernelContext, o: AsyncOutcome, said: set[str]) -> Obligation:
    """The outcome as an obligation; a reason that holds for many is given in words once (`said`)."""
    family = _FAMILIES[o.code[2]]
    if o.verdict == "proved" and o.code == "TW102" and o.subject in explored(context).summands:
        return sums.whole(context, o, explored(context).summands[o.subject])
    if o.verdict == "proved":
        return proved(o.code, family, o.what, o.span, "exploration of all trip counts")
    if o.verdict == "unknown":
        repeated = o.missing in said and o.message in ("", o.missing)
        said.add(o.missing)
        if repeated or o.missing.startswith(_CONSEQUENCE):
            return Obligation(o.code, family, o.what, o.span, "unknown", how=o.missing)
        if o.counterexample is not None:
            tried = replayed(context.tagged, _refuted(context, o, family), context.decider, context.refuted)
            example = tried.finding.counterexample if tried.finding is not None else None
            if tried.verdict == "refuted" and example is not None and example.replayed:
                return tried
        if o.tried and (broken := broken_expectation(context.tagged, o.span)) is not None:
            message, example = broken
            text = f"{_sentence(message)} {situation(example)}"
            return refuted(context, o.code, family, o.what, o.span, text, example=example, how="small sizes")
        return unknown(context, o.code, family, o.what, o.span, _reason(o), related=o.related)
    if ("uses stage" in o.message or "uses slot" in o.message) and context.refuted & {"TW201", "TW202"}:
        how = f"{_CONSEQUENCE} because of an index outside its ring"
        return Obligation(o.code, family, o.what, o.span, "unknown", how=how)
    return _refuted(context, o, family)


def _refuted(context: KernelContext, o: AsyncOutcome, family: Family) -> Obligation:
    text = _sentence(o.message)
    if o.counterexample is not None:
        text = f"{text} {situation(o.counterexample)}".rstrip()
    return refuted(
        context, o.code, family, o.what, o.span, text, example=o.counterexample, related=o.related,
        fixes=tuple(indented(context, f) for f in o.fixes), how="exploration of all trip counts",
    )  # fmt: skip


def _sentence(text: str) -> str:
    """`text` as a sentence; names of the kernel keep their spelling."""
    if re.match(r"(the|role|an|a|no|deadlock:|stage \d+|buffer \w+) ", text):
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _reason(o: AsyncOutcome) -> str:
    if o.message and o.message != o.missing:
        return f"{o.message}. Missing: {o.missing}"
    return o.missing
