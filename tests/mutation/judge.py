"""What becomes of a mutant: refused, refuted, equivalent, or a survivor that the verifier should have caught."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mutation.cases import CASES, Case
from mutation.operators import mutants
from reading import read
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation
from tilewright.interpret.arguments import check_assumptions
from tilewright.interpret.execution import compile_kernel
from tilewright.interpret.replaying import attempt
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright_analysis import KernelReport, check_unit
from tilewright_analysis.driver import Budget
from tilewright_analysis.replay import REPLAYED

Outcome = Literal["clean", "refused", "refuted", "equivalent", "survivor", "false alarm"]
KILLED: frozenset[Outcome] = frozenset(("refused", "refuted"))
# Sizes at which a mutant that is not killed is run, and orders of execution tried at each of the first of them.
SIZES, ORDERS, ORDERED_SIZES = 24, 4, 6
# Said of the map of tiles or of the protocol, with no effect on results: programs without work, groups never waited for.
_WITHOUT_EFFECT = frozenset(("TW301", "TW406"))


@dataclass(frozen=True)
class Judged:
    """One mutant, or a clean kernel (operator empty): what the verifier said and what became of it.

    `runs` counts the sizes at which it was executed; `failure` says what went wrong there.
    """

    kernel: str
    level: str
    operator: str
    line: int
    outcome: Outcome
    verdict: str
    codes: tuple[str, ...] = ()
    runs: int = 0
    failure: str = ""
    text: str = ""


def judge(kernel: str, level: str, operator: str, line: int, text: str) -> Judged:
    """Check one text of the kernel called `kernel`, and execute it where that must settle the matter."""
    case = next(c for c in CASES if c.kernel == kernel)

    def said(outcome: Outcome, verdict: str, codes: Any = (), runs: int = 0, failure: str = "") -> Judged:
        shown = text if outcome in ("survivor", "false alarm") else ""
        return Judged(kernel, level, operator, line, outcome, verdict, tuple(sorted(set(codes))), runs, failure, shown)

    module = read(text)
    errors = [p.code for p in module.all_problems if p.severity == "error"]
    if errors or len(module.units) != 1:
        return said("refused" if operator else "false alarm", "refused", errors)
    (unit,) = module.units
    report = check_unit(unit, budget=Budget(seconds=10.0))
    refuted = [o.code for o in report.obligations if o.verdict == "refuted"]
    if report.verdict == "refuted":
        if not operator:
            return said("false alarm", "refuted", refuted)
        if not must_show(report):
            return said("refuted", "refuted", refuted)
        runs, failure = run(unit.kernel, case)
        return said("refuted" if failure else "false alarm", "refuted", refuted, runs, failure)
    missing = [o.code for o in report.obligations if o.verdict == "unknown"]
    if not operator:
        return said("clean" if report.verdict == "proved" else "survivor", report.verdict, missing)
    runs, failure = run(unit.kernel, case)
    return said("survivor" if failure else "equivalent", report.verdict, missing, runs, failure)


def must_show(report: KernelReport) -> bool:
    """True when nothing but execution can confirm that a refuted kernel is wrong: no counterexample was replayed."""
    for o in report.obligations:
        if o.verdict != "refuted":
            continue
        example = o.finding.counterexample if o.finding is not None else None
        if o.family not in REPLAYED or o.code in _WITHOUT_EFFECT or (example is not None and example.replayed):
            return False
    return not report.problems


def run(kernel: ir.Kernel | None, case: Case) -> tuple[int, str]:
    """(sizes at which the kernel was executed, what went wrong at the last of them)."""
    assert kernel is not None
    explicit = expand(kernel)
    compiled = compile_kernel(explicit, Limits(events=2_000_000))
    done = 0
    for sizes in case.sizes():
        if done == SIZES:
            break
        try:
            check_assumptions(explicit, sizes)
        except ArgumentError:
            continue
        done += 1
        schedules = [Schedule(happens_before=True, tags=True)]
        if done <= ORDERED_SIZES and is_asynchronous(explicit):
            schedules += [Schedule(seed, adversarial=True, tags=True) for seed in range(ORDERS)]
        for schedule in schedules:
            for programs in (1, 3):
                failure = failure_of(compiled, sizes, schedule, programs, case)
                if failure:
                    return done, f"{failure} at {sizes}"
    return done, ""


def failure_of(compiled: Any, sizes: Mapping[str, int], schedule: Schedule, programs: int, case: Case) -> str:
    """What goes wrong in one run on random numbers; empty if nothing does."""
    try:
        with np.errstate(all="ignore"):
            found = attempt(compiled, sizes, schedule, programs, case.meaning)
    except (ArgumentError, EvaluationError, IndexError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return str(found) if isinstance(found, Violation) else ""


def is_asynchronous(kernel: ir.Kernel) -> bool:
    """True when the order of execution can matter."""
    return any(isinstance(s, ir.AllocShared | ir.AllocBarrier) for s in ir.walk(kernel.body))


def jobs(only: str = "") -> list[tuple[str, str, str, int, str]]:
    """Arguments of `judge` for the clean kernels and every mutant of them."""
    found: list[tuple[str, str, str, int, str]] = []
    for case in CASES:
        if only and only not in case.kernel:
            continue
        for level, text in case.texts().items():
            found.append((case.kernel, level, "", 0, text))
            found += [(case.kernel, level, m.operator, m.line, m.text) for m in mutants(text, case.kernel)]
    return found
