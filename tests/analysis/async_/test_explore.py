"""Correct kernels are proved for all sizes; each seeded fault is refuted with a counterexample."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analysis import kernels
from analysis.async_ import faults
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import explore, replay_request

CORRECT: dict[str, Callable[[], ir.Kernel]] = {
    "split": kernels.split_gemm,
    "split, 2 stages": lambda: kernels.split_gemm(stages=2),
    "split, 4 stages": lambda: kernels.split_gemm(stages=4),
    "split, one warpgroup": lambda: kernels.split_gemm(bm=64, warps=4),
    "split, not persistent": lambda: kernels.split_gemm(persistent=False),
    "cp.async": kernels.cp_async_gemm,
    "cp.async, 4 stages": lambda: kernels.cp_async_gemm(stages=4),
    "cp.async, two warpgroups": lambda: kernels.cp_async_gemm(warps=8),
    "cp.async, persistent": lambda: kernels.cp_async_gemm(persistent=True),
    "elementwise": kernels.fma,
    "softmax": kernels.softmax,
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_is_proved(name: str) -> None:
    result = explore(CORRECT[name]())
    assert result.outcomes
    open_ = [(o.code, o.what, o.message or o.missing) for o in result.outcomes if o.verdict != "proved"]
    assert not open_


@pytest.mark.parametrize(("fault", "codes"), faults.FAULTS, ids=lambda f: getattr(f, "__name__", ""))
def test_a_seeded_fault_is_refuted(fault: Callable[[], ir.Kernel], codes: frozenset[str]) -> None:
    kernel = fault()
    result = explore(kernel)
    hits = [o for o in result.refuted if o.code in codes]
    assert hits, [(o.code, o.verdict, o.message) for o in result.outcomes]
    for outcome in result.refuted:
        found = outcome.counterexample
        assert found is not None
        assert set(found.sizes) == set(kernel.sizes)
        assert all(ex.evaluate(a.expr, found.sizes) for a in kernel.assumptions)
        assert outcome.message and outcome.span.end > 0
        assert len(found.trace) <= 12
        request = replay_request(outcome)
        assert request is not None and request.span == outcome.span


def test_what_depends_on_a_violation_is_not_called_proved() -> None:
    result = explore(faults.looser_wgmma_wait())
    assert {o.verdict for o in result.of("TW101")} == {"unknown"}
    assert {o.verdict for o in result.of("TW403")} == {"proved"}


def test_a_missing_fence_leaves_the_rest_decided() -> None:
    result = explore(faults.dropped_fence())
    assert {o.code for o in result.refuted} == {"TW404"}
    assert [f.title for o in result.refuted for f in o.fixes] == ["insert tw.fence_async()"]


def test_the_byte_count_is_repaired() -> None:
    (outcome,) = explore(faults.fewer_bytes()).refuted
    (fix,) = outcome.fixes
    assert fix.edits[0].text == "tw.expect(full[it % 3], 49152)"


def test_a_cancelled_search_answers_unknown() -> None:
    result = explore(kernels.split_gemm(), cancelled=lambda: True)
    assert {o.verdict for o in result.outcomes} == {"unknown"}
    assert {o.missing for o in result.outcomes} == {"cancelled"}
