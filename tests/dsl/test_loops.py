"""Loops through all layers: read, refused, printed, interpreted, lowered, compiled."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import Limits, Violation, run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
TARGETS = ["sm_80", "sm_90a", "sm_100a", "gfx942"]

BACKWARDS = """
@tw.kernel(target="TARGET", warps=4)
def backwards(X: Global[f32, M, N], Y: Global[f32, M], Z: Global[f32, M]):
    for i in tw.tiles(tw.cdiv(M, 16)):
        acc = tw.zeros(f32, (16,))
        last = tw.zeros(f32, (16,))
        for k in range((tw.cdiv(N, 32) - 1) * 32, -1, -32):
            x = tw.load(X.tile((i * 16, k), (16, 32)), other=0.0)
            acc = acc * 0.5 + tw.sum(x, axis=1)
            for u in tw.static_range(2, -1, -1):
                last = last + u * 1.0
        tw.store(Y.tile((i * 16,), (16,)), acc)
        tw.store(Z.tile((i * 16,), (16,)), last)
"""


SEARCH = """
E = tw.sizes("E")

@tw.kernel(target="TARGET", warps=4)
def search(OFFSETS: Global[tw.i32, E], X: Global[f32, M, N], Y: Global[tw.i32, M], Z: Global[f32, M, N]):
    for m, j in tw.tiles(M, tw.cdiv(N, 32)):
        lo = 0
        hi = E
        while lo < hi:
            mid = (lo + hi) // 2
            if tw.load(OFFSETS[mid]) <= m:
                lo = mid + 1
            else:
                hi = mid
        acc = tw.zeros(f32, (32,))
        row = m
        while row < M and not tw.load(OFFSETS[row % E]) == row:
            acc += tw.load(X[row].tile((j * 32,), (32,)), other=0.0)
            left = row % 3
            while left > 0:
                acc = acc * 2.0
                left -= 1
            row += 1
        tw.store(Y.tile((m,), (1,)), tw.full(tw.i32, (1,), lo))
        tw.store(Z[m].tile((j * 32,), (32,)), acc)
"""


UNROLLED = """
@tw.kernel(target="TARGET", warps=4)
def unrolled(X: Global[f32, M, N], Y: Global[f32, M]):
    for i in tw.tiles(tw.cdiv(M, 16)):
        acc = tw.zeros(f32, (16,))
        for k in tw.unroll(0, N, 32, by=4):
            acc = acc * 0.5 + tw.sum(tw.load(X.tile((i * 16, k), (16, 32)), other=0.0), axis=1)
        for k in tw.unroll(M, N - 40, by=3):
            acc = acc + 1.0
        for k in tw.unroll(5, -1, -2, by=2):
            acc = acc * 2.0 + k
        tw.store(Y.tile((i * 16,), (16,)), acc)
"""


def kernel(text: str, target: str = "sm_80") -> ir.Kernel:
    module = read(HEADER + text.replace("TARGET", target))
    assert not module.problems, [p.message for p in module.problems]
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


def reads_back(explicit: ir.Kernel) -> bool:
    """Whether what is printed is read as the same kernel."""
    (unit,) = read(module_source(explicit)).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return expand(unit.kernel).body == explicit.body


@pytest.mark.parametrize(("m", "n"), [(1, 1), (16, 32), (17, 33), (40, 100)])
def test_a_loop_downwards_takes_the_turns_of_pythons_range(m: int, n: int) -> None:
    x = np.random.default_rng(1).integers(-8, 9, (m, n)).astype(np.float32)
    y, z = np.zeros(m, np.float32), np.zeros(m, np.float32)
    run(expand(kernel(BACKWARDS)), [x, y, z])
    expected = np.zeros(m, np.float32)
    for k in range((-(-n // 32) - 1) * 32, -1, -32):
        expected = expected * np.float32(0.5) + x[:, k : k + 32].sum(axis=1)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(z, 3.0 * -(-n // 32))


def test_a_loop_downwards_reads_back() -> None:
    assert reads_back(expand(kernel(BACKWARDS)))


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_downwards_compiles(target: str) -> None:
    assert compile_lowered(lower(expand(kernel(BACKWARDS, target)))).num_warps == 4


@pytest.mark.parametrize(("m", "n", "e"), [(1, 1, 1), (17, 33, 5), (40, 64, 40), (3, 2, 100)])
def test_loops_with_conditions_run_as_pythons(m: int, n: int, e: int) -> None:
    random = np.random.default_rng(m + e)
    offsets = np.sort(random.integers(0, m + 1, e)).astype(np.int32)
    x = random.integers(-4, 5, (m, n)).astype(np.float32)
    y, z = np.zeros(m, np.int32), np.zeros((m, n), np.float32)
    run(expand(kernel(SEARCH)), [offsets, x, y, z])
    np.testing.assert_array_equal(y, np.searchsorted(offsets, np.arange(m), side="right"))
    for i in range(m):
        total, row = np.zeros(n, np.float32), i
        while row < m and offsets[row % e] != row:
            total = (total + x[row]) * np.float32(2 ** (row % 3))
            row += 1
        np.testing.assert_array_equal(z[i], total)


def test_loops_with_conditions_read_back() -> None:
    written = kernel(SEARCH)
    assert sum(isinstance(s, ir.While) for s in ir.walk(written.body)) == 3
    assert reads_back(expand(written))


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_loops_with_conditions_compile(target: str) -> None:
    assert compile_lowered(lower(expand(kernel(SEARCH, target)))).num_warps == 4


def test_a_loop_without_end_is_given_up() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def stuck(Y: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, 16)):
        left = N
        while left != 1:
            left -= 2
        tw.store(Y.tile((i * 16,), (16,)), tw.full(f32, (16,), 1.0))
"""
    run(expand(kernel(text)), [np.zeros(15, np.float32)])
    with pytest.raises(
        Violation, match=r"has not ended after 50 turns: left != 1 still holds, with left = -92"
    ) as found:
        run(expand(kernel(text)), [np.zeros(8, np.float32)], limits=Limits(turns=50))
    assert found.value.kind == "endless"


@pytest.mark.parametrize(("m", "n"), [(1, 1), (16, 128), (17, 161), (40, 300)])
def test_unrolled_loops_mean_what_ranges_mean(m: int, n: int) -> None:
    x = np.random.default_rng(2).integers(-8, 9, (m, n)).astype(np.float32)
    results: list[np.ndarray] = []
    for text in (UNROLLED, UNROLLED.replace("tw.unroll", "range").replace(", by=4", "").replace(", by=3", "")):
        y = np.zeros(m, np.float32)
        run(expand(kernel(text.replace("range(5, -1, -2, by=2)", "range(5, -1, -2)"))), [x, y])
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_unrolled_loops_read_back_and_say_where_they_are_unrolled() -> None:
    written = kernel(UNROLLED)
    assert [s.unroll for s in ir.walk(written.body) if isinstance(s, ir.For)] == [4, 3, 2]
    assert reads_back(expand(written))


def test_where_nothing_is_left_there_is_one_loop() -> None:
    text = UNROLLED.replace("    for i in tw", "    tw.assume(N % 128 == 0)\n    for i in tw")
    source = lower(expand(kernel(text))).source
    assert source.count("for k in range") == 1 and source.count("gl.static_range(4)") == 1
    assert lower(expand(kernel(UNROLLED))).source.count("for k in range") == 2


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_unrolled_loops_compile(target: str) -> None:
    assert compile_lowered(lower(expand(kernel(UNROLLED, target)))).num_warps == 4


@pytest.mark.parametrize("by", ["1", "65", "N"])
def test_what_cannot_stand_in_a_row(by: str) -> None:
    (unit,) = read(HEADER + UNROLLED.replace("TARGET", "sm_80").replace("by=4", f"by={by}")).units
    assert unit.problems[0].code == ("TW006" if by == "N" else "TW009")
