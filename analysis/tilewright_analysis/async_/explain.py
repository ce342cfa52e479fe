"""Counterexamples for people: sizes, place, numbers, and the statements that led there."""

from __future__ import annotations

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.model import AsyncOutcome
from tilewright_analysis.async_.reporter import Found
from tilewright_analysis.async_.sizes import Sizes
from tilewright_analysis.async_.words import describe, touched, words
from tilewright_analysis.report import Counterexample, TraceStep

TRACE_LENGTH = 12


def refuted(program: c.Program, found: Found, sizes: Sizes) -> AsyncOutcome:
    """The refuted outcome of an issue at concrete sizes."""
    issue = found.issue
    message = issue.message
    if sizes.numbers is not None:
        message += f" ({sizes.numbers[0]} and {sizes.numbers[1]} at these sizes)"
    return AsyncOutcome(
        issue.code, "", issue.span, "refuted", message, example(program, found, sizes), issue.related, issue.fixes
    )  # fmt: skip


def example(program: c.Program, found: Found, sizes: Sizes) -> Counterexample:
    """The counterexample of an issue at concrete sizes."""
    issue = found.issue
    values = dict(issue.values)
    if sizes.numbers is not None and len(values) == 2:
        values = {k: f"{v} = {n}" for (k, v), n in zip(values.items(), sizes.numbers, strict=True)}
    if sizes.tiles is not None:
        values["tiles per program"] = str(sizes.tiles)
        values["programs"] = str(sizes.programs)
    iteration = dict(issue.iteration)
    for role in program.roles:
        for loop in role.loops:
            if loop.oracle is not None and program.oracles[loop.oracle].is_programs and loop.var in iteration:
                iteration[loop.var] = sizes.program + issue.iteration[loop.var] * sizes.programs
    return Counterexample(
        sizes=sizes.sizes, program=sizes.program, iteration=iteration, role=issue.role, thread=issue.thread,
        element=issue.element, values=values, trace=trace(found),
    )  # fmt: skip


def trace(found: Found) -> tuple[TraceStep, ...]:
    """The last statements, in execution order, that touch what the issue is about."""
    steps: list[TraceStep] = []
    event = found.events
    about = found.issue.touches | {"*"}
    while event is not None and len(steps) < TRACE_LENGTH:
        if touched(event.instr) & about:
            text = describe(event.instr) + words(event.iteration)
            steps.append(TraceStep(event.instr.stmt.span, text, event.role))
        event = event.previous
    return tuple(reversed(steps))
