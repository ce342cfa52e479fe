"""One shape of a run as values, the same in every JSON output."""

from __future__ import annotations

from tilewright_agent.runner import Case


def case_json(case: Case) -> dict[str, object]:
    """Times in milliseconds; null where nothing was timed or compared."""
    return {
        "sizes": dict(case.sizes), "correct": case.correct, "max_error": case.max_error, "median_ms": case.median_ms,
        "spread_ms": case.spread_ms, "baseline_ms": case.baseline_ms, "baseline_spread_ms": case.baseline_spread_ms,
        "warm_ms": case.warm_ms, "baseline_warm_ms": case.baseline_warm_ms, "message": case.message,
    }  # fmt: skip
