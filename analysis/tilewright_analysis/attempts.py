"""What no check could decide is tried: the kernel runs at many small sizes, and a violation that shows up refutes.

A run proves nothing; but a fault that nobody could derive is still a fault, and here it comes with a counterexample
that has been executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from time import thread_time

from tilewright.interpret import KINDS_OF_CODE, ArgumentError, Limits, Schedule, Violation
from tilewright.interpret.execution import compile_kernel
from tilewright.interpret.replaying import attempt
from tilewright.ir.expr import EvaluationError
from tilewright.source import NO_SPAN

from .checks.outcome import situation
from .checks.tags.counterfactual import trial_sizes
from .context import KernelContext
from .replay import feasible, larger_sizes
from .report import Counterexample, Finding, Obligation

_SECONDS = 1.5
_SIZES = 40
# A contraction may leave out on purpose what a mask makes zero; and one program may store the same element again.
_NEVER = frozenset(("completeness", "rewritten"))


def tried(context: KernelContext, obligation: Obligation) -> Obligation:
    """`obligation`; refuted if it was open and a run shows what it denies."""
    kinds = KINDS_OF_CODE.get(obligation.code, frozenset()) - _NEVER
    finding = obligation.finding
    if obligation.verdict != "unknown" or finding is None or not kinds or context.refuted:
        return obligation
    if context.shown is None:
        context.shown = _shown(context)
    sizes, violation = context.shown
    if violation is None or violation.kind not in kinds:
        return obligation
    return replace(
        obligation, verdict="refuted", finding=_finding(finding, sizes, violation), how="runs at small sizes"
    )


def _shown(context: KernelContext) -> tuple[Mapping[str, int], Violation | None]:
    """The first violation of the kernel at small sizes."""
    begin, limit = thread_time(), min(_SECONDS, context.seconds_left())
    try:
        compiled = compile_kernel(context.kernel, Limits(events=500_000))
        for sizes in islice(_sizes(context), _SIZES):
            for programs in (1, 3):
                if thread_time() - begin > limit or context.decider.cancelled():
                    return {}, None
                found = attempt(compiled, sizes, Schedule(happens_before=True, tags=True), programs)
                if found is not None and found.kind not in _NEVER and not _of_two_dimensions(found):
                    return sizes, found
    except (ArgumentError, EvaluationError, ArithmeticError, ValueError):
        pass
    return {}, None


def _of_two_dimensions(found: Violation) -> bool:
    """True where coordinates of dimensions with different names meet, which may well be one dimension."""
    names = {value.partition(" = ")[0] for value in found.values.values() if " = " in value}
    return found.kind in ("alignment", "placement") and len(names) > 1


def _sizes(context: KernelContext) -> Iterator[Mapping[str, int]]:
    seen: list[Mapping[str, int]] = []
    for sizes in chain(islice(trial_sizes(context.kernel), 8), larger_sizes(context.kernel, {})):
        if sizes not in seen and feasible(context.kernel, sizes):
            seen.append(sizes)
            yield sizes


def _finding(finding: Finding, sizes: Mapping[str, int], violation: Violation) -> Finding:
    example = Counterexample(
        sizes=dict(sizes),
        program=violation.program,
        iteration=dict(violation.iteration),
        role=violation.role,
        element=violation.element,
        values=dict(violation.values),
        replayed=True,
    )
    text = f"{violation.message[:1].upper()}{violation.message[1:]}. {situation(example)}"
    return Finding(
        finding.code,
        text,
        violation.span if violation.span != NO_SPAN else finding.span,
        finding.kernel,
        "refuted",
        "error",
        example,
        (*violation.related, *finding.related),
    )
