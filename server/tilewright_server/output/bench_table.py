"""The results of a benchmark as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from tilewright_agent.profiles import profile_json
from tilewright_agent.runner import Case, RunResult
from tilewright_server.output.words import pairs

Row = tuple[Mapping[str, int], RunResult]


@dataclass(frozen=True, slots=True)
class Columns:
    """Captions of what is compared."""

    ours: str
    baseline: str


def table(rows: Sequence[Row], names: Columns) -> Table:
    """One line a shape: both medians, how many times as fast ours is, spreads, error, and what was wrong."""
    made = Table(box=None, padding=(0, 1), header_style="bold")
    made.add_column("shape", overflow="fold")
    for name in (f"{names.ours} ms", f"{names.baseline} ms", "ratio", "spread", "baseline spread", "error"):
        made.add_column(name, justify="right", overflow="fold")
    made.add_column("result", overflow="fold")
    for sizes, result in rows:
        case = case_of(sizes, result)
        made.add_row(
            pairs(sizes), _ms(case.median_ms), _ms(case.baseline_ms), _times(ratio(case)),
            _share(case.spread_ms, case.median_ms), _share(case.baseline_spread_ms, case.baseline_ms),
            "–" if case.max_error is None else f"{case.max_error:.1e}", _outcome(case, result),
        )  # fmt: skip
    return made


def summary(rows: Sequence[Row]) -> str:
    """The geometric mean of the ratios, empty when nothing was compared."""
    ratios = [r for sizes, result in rows if (r := ratio(case_of(sizes, result))) is not None]
    if not ratios:
        return ""
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return f"geometric mean {mean:.3f}×, lowest {min(ratios):.3f}×, highest {max(ratios):.3f}×"


def as_json(rows: Sequence[Row], names: Columns) -> list[dict[str, object]]:
    """The same as values; times in milliseconds, `ratio` above 1 where ours is faster."""
    return [_json(sizes, result, names) for sizes, result in rows]


def case_of(sizes: Mapping[str, int], result: RunResult) -> Case:
    """The case of a benchmarked shape, one without figures when the run failed."""
    return result.cases[0] if result.cases else Case(sizes, None, message=result.message)


def ratio(case: Case) -> float | None:
    """Baseline time over ours; None for wrong results and where either was not timed."""
    if case.correct is False or not case.median_ms or not case.baseline_ms:
        return None
    return case.baseline_ms / case.median_ms


def _json(sizes: Mapping[str, int], result: RunResult, names: Columns) -> dict[str, object]:
    case = case_of(sizes, result)
    return {
        "sizes": dict(sizes), "device": result.device, "status": result.status, "failure": result.failure,
        "correct": case.correct, "max_error": case.max_error, "median_ms": case.median_ms,
        "spread_ms": case.spread_ms, "baseline": names.baseline, "baseline_ms": case.baseline_ms,
        "baseline_spread_ms": case.baseline_spread_ms, "ratio": ratio(case), "warm_ms": case.warm_ms,
        "baseline_warm_ms": case.baseline_warm_ms,
        "profile": profile_json(result.profile) if result.profile is not None else None,
        "message": case.message or result.message, "baseline_message": case.baseline_message,
    }  # fmt: skip


def _outcome(case: Case, result: RunResult) -> str:
    if result.status != "ok":
        return (result.message.splitlines() or [result.failure])[0]
    ours = "not compared" if case.correct is None else "correct" if case.correct else f"wrong: {case.message}"
    return f"{ours}; the baseline is wrong: {case.baseline_message}" if case.baseline_message else ours


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}×"


def _share(spread: float | None, median: float | None) -> str:
    return "–" if spread is None or not median else f"{100 * spread / median:.1f} %"
