"""The long tasks that editor and command line share; the editor runs them in a worker process.

Each takes a text and the name of a kernel in it, tells of its progress, and returns plain values that the protocol
carries. All raise UsageError with what the person has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

from tilewright.frontend import KernelUnit
from tilewright.source import SourceText
from tilewright_server import engine, stages
from tilewright_server.errors import UsageError
from tilewright_server.runners import runner_command

if TYPE_CHECKING:
    from tilewright_agent import runner as runners
    from tilewright_agent.rewrite import Point


_OF_RUNNER = ("connection", "protocol", "unsupported")  # failures that are not the kernel's


class RunResult(TypedDict):
    """What became of a run; times are in milliseconds, and null unless a GPU was timed.

    `notes` say what else a person should know, such as that the history could not be written. `profile` is null unless
    one was asked for. `cases` have the figures of each shape: see `output.case_json`.
    """

    device: str
    label: str
    correct: bool | None
    max_error: float | None
    median_ms: float | None
    baseline_ms: float | None
    shapes: list[dict[str, int]]
    message: str
    notes: list[str]
    profile: dict[str, object] | None
    cases: list[dict[str, object]]


class Variant(TypedDict):
    """One variant that was looked at; predicted by the model in microseconds, measured in milliseconds."""

    title: str
    verdict: str
    predicted_us: float | None
    measured_ms: float | None


class OptimizeResult(TypedDict):
    """The best verified variant. `original` and `proposed` are whole documents; `summary` is Markdown."""

    kernel: str
    original: str
    proposed: str
    verdict: str
    summary: str
    variants: list[Variant]


class CompiledFacts(TypedDict):
    """What the compiler made of a kernel: registers a thread, bytes spilled, bytes of shared memory of a block."""

    target: str
    registers: int
    spills: int
    shared: int


class OnProgress(Protocol):
    """Told of each step."""

    def __call__(self, message: str, percent: int | None = None) -> None:
        """`percent` is 0 to 100, or None when it cannot be told."""
        ...


def run(
    *, source: SourceText, kernel: str, target: str, runner: str, progress: OnProgress, profile: bool = False
) -> RunResult:
    """Run a kernel on the default problem sizes, compare it with its reference, and, where wished, count."""
    return run_unit(_unit(source, kernel, target), runner, None, progress, profile=profile)


def run_unit(
    unit: KernelUnit,
    runner: str,
    shapes: Sequence[Mapping[str, int]] | None,
    progress: OnProgress,
    *,
    profile: bool = False,
) -> RunResult:
    """The same for a unit, at the given problem sizes (None: some that the tiles divide, some with remainders)."""
    from tilewright_agent import history
    from tilewright_agent import runner as runners
    from tilewright_agent.profiles import profile_json
    from tilewright_agent.runner_check import advice_for
    from tilewright_server.output.case_json import case_json

    engine.healthy_kernel(unit)
    result = runners.run_unit(
        unit,
        runner_command(runner, unit.path),
        shapes,
        lambda message, share: progress(message, round(100 * share)),
        profile=profile,
    )
    trouble = history.note(history.record_of("run", unit, unit.path, result))
    if result.status != "ok":
        advice = f"\n{advice_for(result.message, result.failure)}" if result.failure in _OF_RUNNER else ""
        raise UsageError(f"{unit.name} was not run: {result.message}{advice}")
    return {
        "device": result.device,
        "label": result.label,
        "correct": result.correct,
        "max_error": result.max_error,
        "median_ms": result.median_ms,
        "baseline_ms": result.baseline_ms,
        "shapes": [dict(shape) for shape in result.shapes],
        "message": result.message,
        "notes": [trouble] if trouble else [],
        "profile": profile_json(result.profile) if result.profile is not None else None,
        "cases": [case_json(case) for case in result.cases],
    }


def optimize(*, source: SourceText, kernel: str, target: str, runner: str, progress: OnProgress) -> OptimizeResult:
    """Look for a faster variant of a kernel that is proved; measured where the runner has a GPU, else predicted."""
    from tilewright_agent import history
    from tilewright_agent.optimize import optimize as search

    original = _unit(source, kernel, target)
    engine.healthy_kernel(original)
    troubles: dict[str, None] = {}  # each only once

    def record(unit: KernelUnit, verdict: str, configuration: Point, result: runners.RunResult) -> None:
        made = history.record_of(
            "optimize", unit, unit.path, result, verdict=verdict, configuration=dict(configuration)
        )
        if trouble := history.note(made):
            troubles[trouble] = None

    found = search(
        original,
        source=source,
        runner=runner_command(runner, original.path),
        check=engine.check,
        progress=lambda message, share: progress(message, round(100 * share)),
        on_result=record,
    )
    return {
        "kernel": found.kernel,
        "original": found.original,
        "proposed": found.proposed,
        "verdict": found.verdict,
        "summary": found.summary + "".join(f"\n{trouble}\n" for trouble in troubles),
        "variants": [
            {"title": v.title, "verdict": v.verdict, "predicted_us": v.predicted_us, "measured_ms": v.measured_ms}
            for v in found.variants
        ],
    }


def compile_facts(*, source: SourceText, kernel: str, target: str, runner: str, progress: OnProgress) -> CompiledFacts:
    """Compile a kernel ahead of time, without a GPU, and tell what the compiler made of it."""
    del runner, progress
    done = stages.compiled_kernel(_unit(source, kernel, target))
    return {
        "target": done.target,
        "registers": done.registers,
        "spills": done.spill_stores,
        "shared": done.shared,
    }


TASKS: Mapping[str, Callable[..., object]] = {"run": run, "optimize": optimize, "compile": compile_facts}


def _unit(source: SourceText, kernel: str, target: str) -> KernelUnit:
    return engine.configured(engine.find_unit(engine.parse(source), kernel), target)
