"""What no check decides is run: a fault that only shows is refuted, and what may be meant is left open."""

from __future__ import annotations

import pytest

from reading import read
from support import whole
from tilewright.expand import expand
from tilewright_analysis import Obligation
from tilewright_analysis.attempts import tried
from tilewright_analysis.checks.outcome import unknown
from tilewright_analysis.context import KernelContext
from tilewright_analysis.integers import Decider

TEXT = """
@tw.kernel(target="sm_80", warps=4)
def gemm(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for p, q in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, K, 32, stages=3, roles="single"):
            a = tw.load(A.tile((p * 64, k), (64, 32)), via="cp_async")
            b = tw.load(B.tile((k, q * 64), (32, 64)), via="cp_async")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((p * 64, q * 64), (64, 64)), acc.to(f16))
"""


def attempt(code: str, before: str = "", after: str = "", *, refuted: str = "") -> Obligation:
    """An open obligation with that code about the kernel, with one edit, after it was tried."""
    assert before in TEXT
    (unit,) = read(whole(TEXT.replace(before, after) if before else TEXT)).units
    assert unit.kernel is not None
    context = KernelContext(expand(unit.kernel), Decider())
    context.refuted |= {refuted} if refuted else set()
    return tried(context, unknown(context, code, "tags", "it is right", unit.kernel.span, "a way to see it"))


def test_a_fault_that_shows_is_refuted_where_it_shows() -> None:
    found = attempt("TW103", "B.tile((k, q * 64)", "B.tile((k, q * 64 + 64)")
    assert found.verdict == "refuted" and found.finding is not None
    example = found.finding.counterexample
    assert example is not None and example.replayed and set(example.sizes) == {"M", "N", "K"}
    assert "N = 64" in found.finding.message


@pytest.mark.parametrize("code", ["TW101", "TW103", "TW401"])
def test_nothing_is_said_of_a_kernel_that_runs(code: str) -> None:
    assert attempt(code).verdict == "unknown"


def test_a_fault_of_another_kind_does_not_count() -> None:
    assert attempt("TW401", "B.tile((k, q * 64)", "B.tile((k, q * 64 + 64)").verdict == "unknown"


def test_what_is_left_out_may_be_meant() -> None:
    assert attempt("TW102", "tw.pipeline(0, K,", "tw.pipeline(32, K,").verdict == "unknown"


def test_whether_two_names_are_one_dimension_is_not_for_runs_to_say() -> None:
    found = attempt("TW101", "B: Global[f16, K, N]", "B: Global[f16, N, N]")
    assert found.verdict == "unknown"


def test_after_a_refutation_nothing_is_tried() -> None:
    found = attempt("TW103", "B.tile((k, q * 64)", "B.tile((k, q * 64 + 64)", refuted="TW401")
    assert found.verdict == "unknown"
