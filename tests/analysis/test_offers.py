"""An assumption about sizes that settles what is unknown is offered, and settles it."""

from __future__ import annotations

from support import apply, check, codes, whole
from tilewright_analysis import Finding

PRODUCT = """
import tilewright as tw
from tilewright import Global, f16, f32

M, N, K, L = tw.sizes("M", "N", "K", "L")


@tw.kernel(target="sm_80", warps=4)
def product(A: Global[f16, M, K], B: Global[f16, L, N], C: Global[f16, M, N]):
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in range(0, K, 32):
            a = tw.load(A.tile((pm * 64, k), (64, 32)), other=0.0)
            b = tw.load(B.tile((k, pn * 64), (32, 64)), other=0.0)
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc.to(f16))
"""
PARTS = """
import tilewright as tw
from tilewright import Global, f16, f32

M, N, K, S = tw.sizes("M", "N", "K", "S")


@tw.kernel(target="sm_80", warps=4)
def partial(A: Global[f16, M, K], B: Global[f16, K, N], W: Global[f32, S, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(S, tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in range(s * 128, s * 128 + 128, 32):
            a = tw.load(A.tile((pm * 64, k), (64, 32)), other=0.0)
            b = tw.load(B.tile((k, pn * 64), (32, 64)), other=0.0)
            acc = tw.mma(a, b, acc)
        tw.store(W[s].tile((pm * 64, pn * 64), (64, 64)), acc)
"""


def unknowns(text: str) -> list[Finding]:
    return [f for f in check(text).findings if f.verdict == "unknown"]


def test_that_two_sizes_are_equal_is_offered() -> None:
    (finding,) = unknowns(PRODUCT)
    (fix,) = finding.fixes
    assert (finding.code, fix.title) == ("TW101", "Add tw.assume(K == L)")
    assert check(apply(PRODUCT, fix)).verdict == "proved"


def test_an_assumption_that_the_check_names_is_offered() -> None:
    (finding,) = unknowns(PARTS)
    (fix,) = finding.fixes
    assert (finding.code, fix.title) == ("TW102", "Add tw.assume(S == tw.cdiv(K, 128))")
    assert check(apply(PARTS, fix)).verdict == "proved"


def test_an_assumption_that_contradicts_the_others_is_not_offered() -> None:
    text = PRODUCT.replace("    for pm, pn", "    tw.assume(K < L)\n    for pm, pn")
    assert all("K == L" not in fix.title for finding in unknowns(text) for fix in finding.fixes)


def test_nothing_is_offered_beside_a_fault() -> None:
    text = PRODUCT.replace("(pm * 64, k), (64, 32)), other=0.0)", "(pm * 64, k), (64, 32)))")
    report = check(whole(text))
    assert "TW201" in codes(report)
    assert not any(f.fixes for f in report.findings if f.verdict == "unknown")
