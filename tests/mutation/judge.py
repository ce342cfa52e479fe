"""What becomes of a mutant: refused, refuted, equivalent, or a survivor that the verifier should have caught."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import perf_counter
from typing import Any, Literal

import numpy as np

from mutation.cases import CASES, Case
from mutation.operators import mutants
from reading import read
from tilewright.arguments import check_assumptions
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation, random_arguments
from tilewright.interpret.execution import Compiled, compile_kernel, execute_compiled
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright_analysis import KernelReport, Obligation, check_unit
from tilewright_analysis.checks.tags.counterfactual import trial_sizes
from tilewright_analysis.driver import Budget
from tilewright_analysis.replay import REPLAYED, feasible, larger_sizes

Outcome = Literal["clean", "refused", "refuted", "equivalent", "not judged", "survivor", "false alarm", "undecided"]
KILLED: frozenset[Outcome] = frozenset(("refused", "refuted"))
# Sizes at which a mutant that is not killed is run, and orders of execution tried at each of the first of them.
SIZES, ORDERS, ORDERED_SIZES = 24, 4, 6
# For the checks, whatever else the machine does; and for running what they leave, once it ran at LEAST_SIZES sizes.
SECONDS, RUN_SECONDS, LEAST_SIZES = 40.0, 8.0, 8
# Rules that a kernel may break without an effect on its results here: programs without work, groups never waited for,
# roles that are distributed differently.
_WITHOUT_EFFECT = frozenset(("TW301", "TW304", "TW406"))


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
    decisive: list[Obligation] = []

    def seen(o: Obligation) -> None:
        if operator and o.verdict == "refuted" and not _must_show(o, unit.kernel):
            decisive.append(o)

    # One refutation that needs no confirmation settles the matter.
    budget = Budget(seconds=SECONDS)
    report = check_unit(unit, on_obligation=seen, cancelled=lambda: bool(decisive), budget=budget)
    refuted = [o.code for o in report.obligations if o.verdict == "refuted"]
    if report.verdict == "refuted":
        if not operator:
            return said("false alarm", "refuted", refuted)
        if not must_show(report, unit.kernel):
            return said("refuted", "refuted", refuted)
        runs, failure = run(unit.kernel, case, examples(report))
        return said("refuted" if failure else "false alarm", "refuted", refuted, runs, failure)
    missing = [o.code for o in report.obligations if o.verdict == "unknown"]
    if not operator:
        return said("clean" if report.verdict == "proved" else "survivor", report.verdict, missing)
    runs, failure = run(unit.kernel, case)
    outcome = "survivor" if failure else "equivalent" if runs else "not judged"
    return said(outcome, report.verdict, missing, runs, failure)


def must_show(report: KernelReport, kernel: ir.Kernel | None) -> bool:
    """True when nothing but execution can confirm that a refuted kernel is wrong: no counterexample was replayed.

    What fails at sizes too large to run, such as an index that does not fit 32 bits, was evaluated.
    """
    refuted = (o for o in report.obligations if o.verdict == "refuted")
    return all(_must_show(o, kernel) for o in refuted) and not report.problems


def _must_show(o: Obligation, kernel: ir.Kernel | None) -> bool:
    example = o.finding.counterexample if o.finding is not None else None
    if o.family not in REPLAYED or o.code in _WITHOUT_EFFECT or (example is not None and example.replayed):
        return False
    return kernel is None or example is None or feasible(kernel, example.sizes)


def examples(report: KernelReport) -> list[dict[str, int]]:
    """The sizes of the counterexamples."""
    found = [o.finding.counterexample for o in report.obligations if o.verdict == "refuted" and o.finding is not None]
    return [dict(e.sizes) for e in found if e is not None]


def run(kernel: ir.Kernel | None, case: Case, first: Sequence[Mapping[str, int]] = ()) -> tuple[int, str]:
    """(sizes at which the kernel was executed, what went wrong at the last of them); `first` at these sizes.

    Where an edit leaves none of the sizes of the case, or no data, others are looked for: first those that the kernel
    takes as well that it stems from.
    """
    assert kernel is not None
    explicit = expand(kernel)
    done, failure = _run(explicit, case, explicit, (*first, *case.sizes()))
    if done:
        return done, failure
    before = case.before()
    both = replace(
        explicit,
        assumptions=(*explicit.assumptions, *before.assumptions),
        contracts=(*explicit.contracts, *before.contracts),
    )
    for taker in (both, explicit):
        every = chain(trial_sizes(taker), larger_sizes(taker, {}))
        own = [sizes for sizes in islice(every, SIZES) if feasible(taker, sizes)]
        done, failure = _run(explicit, case, taker, own)
        if done:
            break
    return done, failure


def _run(kernel: ir.Kernel, case: Case, taker: ir.Kernel, every: Iterable[Mapping[str, int]]) -> tuple[int, str]:
    """As `run`, with data that `taker` takes."""
    compiled = compile_kernel(kernel, Limits(events=2_000_000))
    done, end = 0, perf_counter() + RUN_SECONDS
    for sizes in every:
        if done == SIZES or (done >= LEAST_SIZES and perf_counter() > end):
            break
        try:
            check_assumptions(taker, sizes)
            given = random_arguments(taker, sizes, 0)
            with np.errstate(all="ignore"):
                case.meaning(given)
        except (ArgumentError, IndexError):
            continue  # of sizes or data that the edited kernel or the one it stems from does not take
        done += 1
        schedules = [Schedule(happens_before=True)]
        if done <= ORDERED_SIZES and is_asynchronous(kernel):
            schedules += [Schedule(seed, adversarial=True) for seed in range(ORDERS)]
        for schedule in schedules:
            for programs in (1, 3):
                failure = failure_of(compiled, sizes, schedule, programs, case, taker)
                if failure:
                    return done, f"{failure} at {sizes}"
    return done, ""


def failure_of(
    compiled: Compiled, sizes: Mapping[str, int], schedule: Schedule, programs: int, case: Case, taker: ir.Kernel
) -> str:
    """What goes wrong in one run on random numbers that `taker` takes; empty if nothing does.

    Outputs begin poisoned, so an element that is not stored differs from what it should be. One program may store an
    element again; two programs must not.
    """
    kernel = compiled.kernel
    try:
        given = random_arguments(taker, sizes, schedule.seed)
    except ArgumentError:
        return ""
    arguments = [a.copy() for a in given]
    try:
        with np.errstate(all="ignore"):
            report = execute_compiled(compiled, arguments, schedule, programs)
    except (Violation, ArgumentError, EvaluationError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    try:
        with np.errstate(all="ignore"):
            expected = case.meaning(given)
    except ArgumentError:
        return ""  # the kernel that it stems from takes no such data
    for twice in report.rewritten:
        if twice.first != twice.second:
            return f"{twice.tensor}{list(twice.element)} is stored by programs {twice.first} and {twice.second}"
    results = case.results or [p.name for p in kernel.params][-len(expected) :]
    for name, want in zip(results, expected, strict=True):
        got = arguments[[p.name for p in kernel.params].index(name)].astype(np.float64)
        with np.errstate(all="ignore"):
            close = np.isclose(got, want.astype(np.float64), rtol=2e-3, atol=1e-3, equal_nan=True)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            return f"{name}{list(at)} is {got[at]}, and should be {want[at]}"
    return ""


def is_asynchronous(kernel: ir.Kernel) -> bool:
    """True when the order of execution can matter."""
    return any(isinstance(s, ir.AllocShared | ir.AllocBarrier) for s in ir.walk(kernel.body))


def jobs(kernel: str) -> list[tuple[str, str, str, int, str]]:
    """Arguments of `judge` for a kernel as it stands and every mutant of it."""
    found: list[tuple[str, str, str, int, str]] = []
    for level, text in next(c for c in CASES if c.kernel == kernel).texts().items():
        found.append((kernel, level, "", 0, text))
        found += [(kernel, level, m.operator, m.line, m.text) for m in mutants(text, kernel)]
    return found
