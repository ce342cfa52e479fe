"""What stands over a kernel after a run, and the page behind it."""

from __future__ import annotations

from dataclasses import replace

from tilewright_server.output.run_report import LENS_LENGTH, Outcome, run_page, run_title
from tilewright_server.tasks import RunResult

CASE: dict[str, object] = {
    "sizes": {"N": 4096}, "correct": True, "max_error": 1e-6, "median_ms": 0.2, "spread_ms": 0.002, "baseline_ms": 0.3,
    "baseline_spread_ms": 0.001, "warm_ms": 0.18, "baseline_warm_ms": 0.29, "message": "",
}  # fmt: skip
RESULT: RunResult = {
    "device": "NVIDIA H200", "label": "NVIDIA H200, torch 2.11.0", "correct": True, "max_error": 1e-6,
    "median_ms": 0.2, "baseline_ms": 0.3, "shapes": [{"N": 4096}], "message": "", "notes": [], "profile": None,
    "cases": [CASE, {**CASE, "sizes": {"N": 7}, "median_ms": None, "spread_ms": None, "baseline_ms": None}],
}  # fmt: skip
OUTCOME = Outcome("key", "box", RESULT)


def test_a_timed_run_has_time_spread_ratio_and_device() -> None:
    assert run_title(OUTCOME, "key") == "correct · 0.2 ms ± 1.0 % · 1.50× reference · NVIDIA H200"
    assert run_title(OUTCOME, "another").startswith("before the last edit: correct")


def test_wrong_results_and_missing_ones_say_so() -> None:
    wrong: RunResult = {**RESULT, "correct": False, "cases": [], "message": "N = 7: 3 of 7 elements"}
    assert run_title(Outcome("key", "box", wrong), "key") == "✗ wrong · NVIDIA H200"
    assert "3 of 7 elements" in run_page("k", None, Outcome("key", "box", wrong), "key")
    lost = Outcome("key", "box", failure=f"no route to host {'x' * 200}\nconnect by hand")
    assert len(run_title(lost, "key")) == LENS_LENGTH and run_title(lost, "key").startswith("✗ no route")
    page = run_page("k", None, lost, "key")
    assert "`box`" in page and "connect by hand" in page
    assert run_title(replace(lost, failure=""), "key") == "✗ no reason is known"


def test_the_page_has_a_row_for_each_shape() -> None:
    page = run_page("k", None, OUTCOME, "other")
    assert "edited since" in page
    page = page.replace("\u00a0", " ")
    assert "| N = 4096 | correct | 0.2 | 1.0 % | 0.3 | 1.50× | 0.18 |" in page
    assert "| N = 7 | correct | – | – | – | – | 0.18 |" in page
