"""Indices that fix a dimension: faults come with a counterexample that the interpreter has shown."""

from __future__ import annotations

import pytest

from reading import read
from support import check, found
from tilewright_analysis.perf.shapes import indexed_sizes, large_shapes, small_shapes

HEAD = """import tilewright as tw
from tilewright import Global, f16, f32

B, H, S, M, N, K = tw.sizes("B", "H", "S", "M", "N", "K")
"""
COPY = """
@tw.kernel(target="sm_80", warps=4)
def scale(X: Global[f32, B, N], Y: Global[f32, B, N]):
    for {grid}:
        x = tw.load(X[{read}].tile((i * 256,), (256,)), other=0.0)
        tw.store(Y[{write}].tile((i * 256,), (256,)), x * 2.0)
"""
TILES = "b, i in tw.tiles(B, tw.cdiv(N, 256))"
HEADS = """
@tw.kernel(target="sm_80", warps=4)
def scale(X: Global[f32, B, H, N], Y: Global[f32, B, H, N]):
    for b, h, i in tw.tiles(B, H, tw.cdiv(N, 256)):
        x = tw.load(X[h, b].tile((i * 256,), (256,)), other=0.0)
        tw.store(Y[b, h].tile((i * 256,), (256,)), x * 2.0)
"""
GEMM = """
@tw.kernel(target="{target}", warps=4)
def product(A: Global[f16, B, M, K], W: Global[f16, B, K, N], C: Global[f16, B, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for b, pm, pn in tw.tiles(B, tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, K, 64, stages=3, roles="{roles}"):
            a = tw.load(A[{read}].tile((pm * 64, k), (64, 64)))
            w = tw.load(W[b].tile((k, pn * 64), (64, 64)))
            acc = tw.mma(a, w, acc)
        tw.store(C[b].tile((pm * 64, pn * 64), (64, 64)), acc.to(f16){via})
"""
SPLIT = """
@tw.kernel(target="sm_80", warps=4)
def partial(A: Global[f16, M, K], W: Global[f16, K, N], P: Global[f32, {parts}, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    {assume}
    for s, pm, pn in tw.tiles({parts}, tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, {length}, 32, stages=3):
            a = tw.load(A.tile((pm * 64, s * 128 + k), (64, 32)))
            w = tw.load(W.tile((s * 128 + k, pn * 64), (32, 64)))
            acc = tw.mma(a, w, acc)
        tw.store(P[s].tile((pm * 64, pn * 64), (64, 64)), acc)
"""


def split(parts: str = "S", assume: str = "tw.assume(S == tw.cdiv(K, 128))", length: int = 128) -> str:
    return HEAD + SPLIT.format(parts=parts, assume=assume or "pass", length=length)


def gemm(target: str, read: str) -> str:
    more = ("split", ', via="tma"') if target == "sm_90a" else ("single", "")
    return HEAD + GEMM.format(target=target, read=read, roles=more[0], via=more[1])


FAULTS = [
    ("TW103", HEAD + COPY.format(grid=TILES, read="0", write="b")),
    ("TW201", HEAD + COPY.format(grid=TILES, read="b + 1", write="b")),
    ("TW202", HEAD + COPY.format(grid="b, i in tw.tiles(B + 1, tw.cdiv(N, 256))", read="b", write="b")),
    ("TW303", HEAD + COPY.format(grid="i in tw.tiles(tw.cdiv(N, 256))", read="0", write="0")),
    ("TW103", HEAD + HEADS),
    ("TW201", HEAD + HEADS),
    ("TW103", gemm("sm_80", "B - 1 - b")),
    ("TW103", gemm("sm_90a", "B - 1 - b")),
    ("TW201", gemm("sm_80", "pm")),
    ("TW201", gemm("sm_90a", "pm")),
    ("TW102", split(length=96)),
    ("TW102", split(length=160)),
]


@pytest.mark.parametrize(("code", "text"), FAULTS)
def test_the_interpreter_shows_what_the_verifier_claims(code: str, text: str) -> None:
    report = check(text)
    example = found(report, code).counterexample
    assert example is not None
    if not example.replayed:
        # Where an index does not exist either, that is what running shows first.
        other = found(report, "TW201").counterexample
        assert other is not None and other.replayed


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_right_matrix_is_proved(target: str) -> None:
    assert check(gemm(target, "b")).verdict == "proved"


@pytest.mark.parametrize(
    ("parts", "assume"),
    [
        ("S", "tw.assume(S == tw.cdiv(K, 128))"),
        ("S", "tw.assume(S <= 64 and K <= S * 128)"),
        ("S", "tw.assume(S <= 64 and K < S * 128)"),
        ("tw.cdiv(K, 128)", ""),
        ("4", "tw.assume(K <= 512)"),
    ],
)
def test_parts_that_reach_the_end_are_proved(parts: str, assume: str) -> None:
    report = check(split(parts, assume))
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize(
    ("parts", "assume"),
    [
        ("S", "tw.assume(S <= 64)"),
        ("S", "tw.assume(S <= 64 and K <= S * 128 + 1)"),
        ("S", "tw.assume(S <= 64 and S * 128 <= K)"),
        ("tw.cdiv(K, 256)", ""),
        ("4", "tw.assume(K <= 520)"),
    ],
)
def test_parts_that_may_not_reach_the_end_are_not(parts: str, assume: str) -> None:
    (obligation,) = [o for o in check(split(parts, assume)).obligations if o.code == "TW102"]
    assert obligation.verdict != "proved"
    assert "reach the end of K" in obligation.finding.message if obligation.finding else obligation.how


def test_shapes_of_a_batch_are_small_in_number() -> None:
    for target in ("sm_80", "sm_90a"):
        kernel = read(gemm(target, "b")).units[0].kernel
        assert kernel is not None
        assert indexed_sizes(kernel) == {"B"}
        assert {s["B"] for s in small_shapes(kernel)} == {1, 2, 3}
        assert [s["B"] for s in large_shapes(kernel)] == [8, 7]


def test_shapes_of_a_split_contraction_have_more_than_one_part() -> None:
    kernel = read(split()).units[0].kernel
    assert kernel is not None
    shapes = small_shapes(kernel)
    assert all(s["S"] == -(-s["K"] // 128) for s in shapes)
    assert max(s["S"] for s in shapes) > 1
