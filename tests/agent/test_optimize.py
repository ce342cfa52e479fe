"""Optimize end to end: verified variants only, ranked by the model, confirmed by a run, timed where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.support import FMA, GEMM, GEMM_SM80, HEAD, SOFTMAX, unit
from agent.test_runner import fake
from tilewright.frontend import KernelUnit, parse_module
from tilewright.source import SourceText
from tilewright_agent.optimize import optimize
from tilewright_analysis import check_unit
from tilewright_analysis.report import KernelReport, Obligation, Verdict

# A GEMM with small tiles and nothing that helps.
SLOW = (
    GEMM.replace("BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 16",
                 "BM: Const = 64, BN: Const = 64, BK: Const = 32, STAGES: Const = 2, GROUP: Const = 1")
    .replace("warps=8", "warps=4").replace(", persistent=True", "")
)  # fmt: skip
TEXT = HEAD + "# Größe ≠ Zahl\n" + FMA + "\n\n" + SLOW + "\n\n# the end\n"


def document(text: str = TEXT, name: str = "gemm") -> tuple[SourceText, KernelUnit]:
    source = SourceText.of(text, "kernels.py")
    found = parse_module(source).unit(name)
    assert found is not None
    return source, found


def test_a_slow_gemm_becomes_a_proved_faster_one() -> None:
    source, found = document()
    steps: list[float] = []
    result = optimize(found, source=source, runner="local", progress=lambda message, share: steps.append(share))
    assert result.original == TEXT
    assert result.proposed != TEXT, result.summary
    assert result.verdict == "proved"
    best, *others = result.variants
    (written,) = [v for v in result.variants if v.title == "as written"]
    assert best.verdict == "proved" and best.predicted_us is not None and written.predicted_us is not None
    assert best.predicted_us < 0.6 * written.predicted_us
    assert all(v.measured_ms is None for v in result.variants), "without a GPU nothing is measured"
    assert "not measured" in result.summary and "interpreter (no GPU)" in result.summary
    assert steps == sorted(steps) and steps[0] >= 0 and steps[-1] <= 1
    # The proposal is what was verified, and it verifies in its document.
    proposed = parse_module(SourceText.of(result.proposed)).unit("gemm")
    assert proposed is not None and check_unit(proposed).verdict == "proved"
    assert proposed.text == best.text
    assert len(others) > 5


def test_only_the_kernel_changes() -> None:
    source, found = document()
    result = optimize(found, source=source, check=stub())
    head, tail = TEXT.split(SLOW)
    assert result.proposed.startswith(head) and result.proposed.endswith(tail)
    body = result.proposed[len(head) : len(result.proposed) - len(tail)]
    changed = [b for a, b in zip(SLOW.splitlines(), body.splitlines(), strict=True) if a != b]
    assert 1 <= len(changed) <= 3


def test_without_a_document_the_kernel_is_the_document() -> None:
    result = optimize(unit(SLOW), limit=3, check=stub())
    assert result.original == unit(SLOW).text
    assert unit(result.proposed).kernel is not None


def stub(verdict_of: Callable[[KernelUnit], Verdict] = lambda unit: "proved") -> Any:
    """A verifier that costs nothing, where verifying is not what a test is about."""

    def check(unit: KernelUnit, *, cancelled: Callable[[], bool] | None = None) -> KernelReport:
        span = unit.span.shift(-unit.offset)
        return KernelReport(unit.name, span, (Obligation("TW301", "grid", "a stub", span, verdict_of(unit)),))

    return check


def test_a_variant_that_is_not_proved_is_never_proposed() -> None:
    source, found = document()
    check = stub(lambda u: "proved" if u.text == found.text else "unknown")
    result = optimize(found, source=source, check=check, limit=5)
    assert result.proposed == result.original
    assert "No better verified variant" in result.summary
    tried = [v for v in result.variants if v.verdict == "unknown"]
    assert len(tried) >= 5
    assert all(v.reason for v in tried)


def test_what_the_verifier_refutes_is_listed_with_its_reason() -> None:
    result = optimize(unit(GEMM))
    refuted = [v for v in result.variants if v.verdict == "refuted"]
    assert refuted
    assert all(v.reason.startswith("TW6") and "\n" not in v.reason for v in refuted)
    assert result.proposed == result.original


def test_a_variant_that_would_assume_more_is_refused() -> None:
    result = optimize(unit(SOFTMAX))
    halved = [v for v in result.variants if v.title == "BN = 512"]
    assert halved and "would assume N <= 512" in halved[0].reason
    assert halved[0].predicted_us is None
    assert "N <= 1024" in unit(SOFTMAX).text or "N <= BN" in result.proposed


def test_a_refuted_kernel_is_not_optimized() -> None:
    result = optimize(unit(SLOW.replace("pn * BN), (BK, BN)", "pm * BN), (BK, BN)")))
    assert result.verdict == "refuted"
    assert result.proposed == result.original
    assert "fix that first" in result.summary


def test_a_kernel_with_errors_says_so() -> None:
    result = optimize(unit(SLOW.replace("acc = tw.mma(a, b, acc)", "acc = tw.mma(a, q, acc)")))
    assert result.proposed == result.original
    assert "'q'" in result.summary or " q" in result.summary


def test_sizes_that_break_an_assumption_are_refused() -> None:
    result = optimize(unit(SLOW), sizes={"M": 64, "N": 64, "K": 7})
    assert "K % 8 == 0" in result.summary
    assert result.proposed == result.original


def test_small_problems_get_other_tiles_than_large_ones() -> None:
    large = optimize(unit(SLOW), sizes={"M": 8192, "N": 8192, "K": 4096}, limit=12, check=stub())
    small = optimize(unit(GEMM), sizes={"M": 1024, "N": 1024, "K": 4096}, limit=12, check=stub())
    assert small.proposed != unit(GEMM).text, "32 tiles of 128 by 256 leave most multiprocessors idle"
    assert large.variants[0].title != small.variants[0].title


def test_it_can_be_cancelled_and_returns_what_it_has() -> None:
    asked: list[str] = []
    result = optimize(unit(SLOW), check=stub(), progress=lambda m, s: asked.append(m), cancelled=lambda: len(asked) > 3)
    assert result.cancelled
    assert len(asked) <= 6
    assert result.variants


def test_cancelled_at_once_nothing_is_proposed() -> None:
    result = optimize(unit(SLOW), runner="local", cancelled=lambda: True)
    assert result.cancelled and result.proposed == result.original


def test_a_runner_that_cannot_be_reached_is_said_and_does_not_stop_the_search(tmp_path: Path) -> None:
    result = optimize(unit(SLOW), runner="no-such-program-anywhere", limit=4, check=stub())
    assert "no-such-program-anywhere" in result.summary
    assert result.proposed != result.original
    assert result.verdict == "proved"


def test_a_runner_lost_on_the_way_confirms_nothing(tmp_path: Path) -> None:
    result = optimize(
        unit(SLOW), runner=fake(tmp_path, "os._exit(1)", capabilities=["interpret"]), limit=4, check=stub()
    )
    assert "lost the worker" in result.summary
    assert result.proposed == result.original


def test_results_that_are_wrong_drop_the_winner(tmp_path: Path) -> None:
    body = """say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "device": "interpreter (no GPU)",
     "message": "", "cases": [{"sizes": {"M": 1}, "correct": False, "max_error": 1.0, "message": "C is wrong"}]})"""
    result = optimize(unit(SLOW), runner=fake(tmp_path, body, capabilities=["interpret"]), limit=4, check=stub())
    assert "was dropped" in result.summary and "C is wrong" in result.summary
    assert result.proposed == result.original


# A GPU whose clock likes three stages and nothing else.
CLOCK = """
time_ms = 1.0 if "it % 3" in job["module"] else 2.0
wrong = WRONG
cases = [{"sizes": c["sizes"], "correct": not wrong, "max_error": 1e-4, "message": "C is wrong" if wrong else "",
          "median_ms": time_ms if c["measure"] and not wrong else None, "baseline_ms": 1.5} for c in job["cases"]]
say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": "", "device": "NVIDIA H200",
     "cases": cases})
"""


def test_with_a_gpu_the_measured_time_decides(tmp_path: Path) -> None:
    result = optimize(unit(SLOW), runner=fake(tmp_path, CLOCK.replace("WRONG", "False")), limit=8, check=stub())
    best = result.variants[0]
    assert best.measured_ms == 1.0
    assert "STAGES = 3" in best.title
    assert "measured 2 → 1 ms" in result.summary and "NVIDIA H200" in result.summary
    assert result.proposed == best.text


def test_with_a_gpu_that_finds_no_gain_nothing_is_proposed(tmp_path: Path) -> None:
    flat = CLOCK.replace("WRONG", "False").replace("1.0 if", "2.0 if")
    result = optimize(unit(SLOW), runner=fake(tmp_path, flat), limit=4, check=stub())
    assert result.proposed == result.original
    assert sum(v.measured_ms is not None for v in result.variants) >= 2


def test_a_kernel_that_is_wrong_as_written_proposes_nothing(tmp_path: Path) -> None:
    result = optimize(unit(SLOW), runner=fake(tmp_path, CLOCK.replace("WRONG", "True")), limit=4, check=stub())
    assert result.proposed == result.original
    assert "could not be timed" in result.summary


@pytest.mark.parametrize("limit", [1, 2])
def test_the_limit_bounds_the_verifications(limit: int) -> None:
    calls: list[str] = []

    def note(unit: KernelUnit) -> Verdict:
        calls.append(unit.text)
        return "proved"

    optimize(unit(SLOW), check=stub(note), limit=limit)
    assert len(calls) <= 1 + limit + 3  # the kernel as written, the search, and the impossible ones that are explained


def test_another_target_than_the_written_one_is_kept_and_splits_no_roles() -> None:
    found = unit(GEMM_SM80).with_consts("sm_90a")
    targets: set[str] = set()

    def note(unit: KernelUnit) -> Verdict:
        assert unit.kernel is not None
        targets.add(unit.kernel.target)
        return "proved"

    result = optimize(found, check=stub(note), limit=4)
    assert targets == {"sm_90a"}
    assert not any("roles = split" in v.title for v in result.variants)
    assert 'target="sm_80"' in result.proposed


def test_other_compile_time_values_than_the_written_ones_are_left_aside() -> None:
    given, written = (optimize(u, check=stub(), limit=2) for u in (unit(SLOW).with_consts(BM=128), unit(SLOW)))
    assert given.proposed == written.proposed
