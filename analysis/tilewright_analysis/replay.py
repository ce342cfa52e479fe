"""Runs counterexamples in the interpreter before anyone sees them.

A refutation of the integers was already evaluated; running the kernel at those sizes shows in addition that the
situation is reached. If nothing goes wrong there, the verifier was wrong, and the obligation becomes unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tilewright.interpret import KINDS_OF_CODE, ArgumentError, replay
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError, evaluate

from .integers import Decider
from .report import Family, Finding, Obligation

REPLAYED: frozenset[Family] = frozenset(("tags", "memory", "grid", "async"))
# Orders of execution tried for faults that need an unlucky one; the others show in the first run.
_ASYNC_TRIES = 20
_MOST_ELEMENTS = 1 << 22
_MOST_PRODUCTS = 1 << 31


def replayed(kernel: ir.Kernel, obligation: Obligation, decider: Decider) -> Obligation:
    """`obligation` with its counterexample marked as replayed, or as unknown if it does not show.

    Left as it is when there is nothing to run: not refuted, no sizes, a family that the interpreter has no notion of,
    or sizes too large for it.
    """
    finding = obligation.finding
    if obligation.verdict != "refuted" or obligation.family not in REPLAYED or finding is None:
        return obligation
    example = finding.counterexample
    if example is not None and any(v < 1 for v in example.sizes.values()):
        # Trip counts alone decided; the smallest sizes that may be launched give the same ones or more.
        kept = {n: v for n, v in example.sizes.items() if v >= 1}
        sizes = decider.complete(kept, kernel.sizes, tuple(a.expr for a in kernel.assumptions))
        example = replace(example, sizes=sizes)
    if example is None or example.replayed or not feasible(kernel, example.sizes):
        return obligation
    tries = _ASYNC_TRIES if obligation.family in ("async", "tags") else 0
    try:
        violation = replay(kernel, example.sizes, tries=tries, code=obligation.code)
        if violation is None:
            # A persistent grid on a device with room for one program: counters run furthest there.
            violation = replay(kernel, example.sizes, tries=tries, programs=1, code=obligation.code)
    except (ArgumentError, EvaluationError) as error:
        return _doubtful(obligation, finding, f"its sizes cannot be run: {error}")
    if violation is None:
        return _doubtful(obligation, finding, "the interpreter runs it at those sizes without a fault")
    shown = violation.kind in KINDS_OF_CODE.get(obligation.code, frozenset())
    return replace(obligation, finding=replace(finding, counterexample=replace(example, replayed=shown)))


def feasible(kernel: ir.Kernel, sizes: Mapping[str, int]) -> bool:
    """True when running the kernel at these sizes takes a moment, not minutes."""
    if not set(kernel.sizes) <= sizes.keys():
        return False
    elements = [prod(evaluate(e, sizes) for e in p.type.shape) for p in kernel.params]
    # Each element of the largest tensor meets every size at most once.
    work = max(elements, default=0) * max((sizes[s] for s in kernel.sizes), default=1)
    return all(0 <= e <= _MOST_ELEMENTS for e in elements) and work <= _MOST_PRODUCTS


def _doubtful(obligation: Obligation, finding: Finding, why: str) -> Obligation:
    text = f"Not proved: {obligation.what}. A counterexample was found, but did not replay: {why}. {finding.message}"
    unknown = replace(finding, message=text, verdict="unknown", severity="information", fixes=())
    return replace(obligation, verdict="unknown", finding=unknown)
