"""Tiles whose extents are no powers of two: what they compute, how they are verified, what needs them whole."""

from __future__ import annotations

import numpy as np
import pytest

from reading import HEADER, read
from support import check, codes
from tilewright.expand import ExpansionError, expand
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.ir.shapes import parts_of
from tilewright.ir.types import TileType

GEMM = """
@tw.kernel(target="sm_90a", warps=8)
def gemm(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 192), tw.cdiv(N, 96), persistent=True):
        acc = tw.zeros(f32, (192, 96))
        for k in tw.pipeline(0, K, 48, stages=3, roles="split"):
            a = tw.load(A.tile((pm * 192, k), (192, 48)), via="tma")
            b = tw.load(B.tile((k, pn * 96), (48, 96)), via="tma")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 192, pn * 96), (192, 96)), acc.to(f16), via="tma")
"""

SHAPES = """
@tw.kernel(target="sm_80", warps=4)
def shapes(X: Global[f32, M, N], Y: Global[f32, M, N]):
    tw.assume(M <= 24)
    tw.assume(N <= 48)
    for i in tw.tiles(1):
        x = tw.load(X.tile((0, 0), (24, 48)), other=0.0)
        down = tw.sum(x, axis=0)
        top = tw.max(x.T, axis=0)
        lowest = tw.min(tw.min(x, axis=1, keep_dims=True), axis=0, keep_dims=True)
        places = (tw.arange(48) * 3).to(f32)
        kept = tw.cumsum(tw.permute(x, (1, 0))[:, None, :] + 0.0, axis=1)
        left, right = tw.split(tw.join(x, x * 2.0))
        y = (left + right) * (places + down)[None, :] - top[:, None] * lowest + tw.sum(kept, axis=1).T
        tw.store(Y.tile((0, 0), (24, 48)), y)
"""


def kernel(text: str) -> ir.Kernel:
    module = read(HEADER + text)
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


def test_parts_add_up_to_the_extent():
    for n in range(1, 300):
        parts = parts_of(n)
        assert sum(parts) == n and all(p & (p - 1) == 0 for p in parts) and sorted(set(parts), reverse=True) == [*parts]


@pytest.mark.parametrize(("m", "n", "k"), [(200, 104, 104), (192, 96, 48), (1, 8, 8), (385, 200, 40)])
def test_a_product_in_pieces_is_the_product(m, n, k):
    values = np.random.default_rng(m)
    a, b = (values.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float16)
    run(expand(kernel(GEMM)), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


def test_expansions_hold_powers_of_two_only():
    for text in (GEMM, SHAPES):
        for type_ in expand(kernel(text)).types.values():
            assert not isinstance(type_, TileType) or all(len(parts_of(e)) == 1 for e in type_.shape), type_


@pytest.mark.parametrize(("m", "n"), [(24, 48), (23, 33), (17, 32), (1, 1)])
def test_operations_on_pieces_compute_what_they_would_on_the_whole(m, n):
    x = np.random.default_rng(n).standard_normal((m, n)).astype(np.float32)
    y = np.full((m, n), np.nan, np.float32)
    run(expand(kernel(SHAPES)), [x, y])
    whole = np.zeros((24, 48), np.float32)
    whole[:m, :n] = x
    places = np.arange(48, dtype=np.float32) * 3
    expected = (
        3 * whole * (places + whole.sum(0))[None, :] - whole.max(1)[:, None] * whole.min() + whole
    )  # fmt: skip
    np.testing.assert_allclose(y, expected[:m, :n], rtol=1e-5, atol=1e-4)


def test_pieces_are_proved():
    report = check(GEMM)
    assert report.verdict == "proved", codes(report)


def test_a_step_that_is_not_the_width_of_the_tile_is_refuted():
    faulty = GEMM.replace("(pm * 192, pn * 96), (192, 96)), acc", "(pm * 192, pn * 64), (192, 96)), acc")
    assert {"TW301", "TW302"} & set(codes(check(faulty)))


def test_pieces_in_the_wrong_place_are_refuted():
    faulty = GEMM.replace("B.tile((k, pn * 96)", "B.tile((k, pn * 96 + 32)")
    assert "TW103" in codes(check(faulty))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("tw.cumsum(x, axis=1)", "cumsum along axis 1 needs the tile [16, 96] as a whole"),
        ("tw.argmax(x, axis=1, keep_dims=True).to(f32) + x", "argmax along axis 1"),
        (
            "tw.reshape(x, (96, 16)).T",
            "reshape needs the tile [96, 16] as a whole, but it is kept in pieces (96 = 64 + 32)",
        ),
    ],
)
def test_what_needs_the_whole_tile_is_refused(operation, words):
    text = f"""
@tw.kernel(target="sm_80", warps=4)
def whole(X: Global[f32, M, N], Y: Global[f32, M, N]):
    for i in tw.tiles(tw.cdiv(M, 16)):
        x = tw.load(X.tile((i * 16, 0), (16, 96)), other=0.0)
        tw.store(Y.tile((i * 16, 0), (16, 96)), {operation})
"""
    with pytest.raises(ExpansionError) as refused:
        expand(kernel(text))
    assert refused.value.problem.code == "TW506" and words in str(refused.value)


def test_memory_that_a_person_lays_out_has_powers_of_two():
    text = """
@tw.kernel(target="sm_90a", warps=4)
def memory(X: Global[f32, M, N], Y: Global[f32, M, N]):
    t = tw.shared(f16, (96, 64), layout=tw.swizzled(128))
"""
    problem = read(HEADER + text).all_problems[0]
    assert problem.code == "TW506" and "shared memory is a power of two, not 96" in problem.message
