"""Declared strides through all layers: read, refused, printed, interpreted, laid out, lowered, compiled, run."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, run
from tilewright.interpret.replaying import random_arguments
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source
from tilewright_analysis.perf.shapes import declared_strides, small_shapes

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
HEAD = """import tilewright as tw
from tilewright import Global, Scalar, f16, f32, i32

M, N, B, LD = tw.sizes("M", "N", "B", "LD")

"""
TURNED = (
    HEAD
    + """
@tw.kernel(target="TARGET", warps=4)
def turned(X: Global[f32, B, M, N], Y: Global[f32, B, M, N]):
    tw.strides(X, (M * LD, 1, M))
    tw.strides(Y, (M * LD, LD, 1))
    ASSUME
    for b, i, j in tw.tiles(B, tw.cdiv(M, 32), tw.cdiv(N, 32)):
        x = tw.load(X[b].tile((i * 32, j * 32), (32, 32)), other=0.0)
        tw.store(Y[b].tile((i * 32, j * 32), (32, 32)), x + 1.0)
"""
)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.problems, [p.message for p in module.problems]
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


def turned(target: str = "sm_80", assume: str = "tw.assume(M % 4 == 0)") -> ir.Kernel:
    return kernel(TURNED.replace("TARGET", target).replace("ASSUME", assume))


def laid(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    room = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    flat = np.full(room, 7, np.float32)
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(4 * s for s in strides))


def test_results_are_those_of_numpy_and_gaps_stay() -> None:
    x, y = laid((3, 36, 40), (36 * 48, 1, 36)), laid((3, 36, 40), (36 * 48, 48, 1))
    x[...] = np.random.default_rng(1).standard_normal(x.shape)
    run(expand(turned()), [x, y])
    np.testing.assert_array_equal(y, x + 1)
    gap = np.lib.stride_tricks.as_strided(y[0, 0, 39:], (35, 9), (48 * 4, 4))[:, 1:]
    assert (gap == 7).all()


def test_a_size_may_be_a_stride_only() -> None:
    found = turned()
    assert found.sizes == ("B", "LD", "M", "N") and found.pitches == {"LD"}
    # Rows must not overlap: N <= LD for Y. That matrices follow each other M * LD apart needs N <= LD for X too.
    assert [ex.show(a.expr) for a in found.assumptions][:2] == ["N * M <= M * LD", "N <= LD"]


def test_wrong_strides_are_named() -> None:
    y = laid((2, 8, 8), (8 * 16, 16, 1))
    for x, words in (
        (laid((2, 8, 8), (8 * 16, 8, 1)), r"X has stride 8 along axis 1, expected 1 elements"),
        (laid((2, 8, 8), (8 * 8, 1, 8)), r"X has stride 64 along axis 0, expected 128 elements \(M \* LD\)"),
    ):
        with pytest.raises(ArgumentError, match=words):
            run(expand(turned()), [x, y])
    with pytest.raises(ArgumentError, match=r"N \* M <= M \* LD, which does not hold"):
        run(expand(turned()), [laid((2, 8, 8), (32, 1, 8)), laid((2, 8, 8), (32, 4, 1))])


def test_what_is_printed_reads_back_into_equal_ir() -> None:
    for first in (turned(), expand(turned())):
        again = kernel(module_source(first))
        assert again.params == first.params and expand(again).body == expand(first).body
        assert again.assumptions == first.assumptions


def test_random_arguments_have_the_strides() -> None:
    x, y = random_arguments(turned(), {"B": 2, "M": 8, "N": 8, "LD": 12}, 0)
    assert isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    assert (x.strides, y.strides) == ((4 * 96, 4, 32), (4 * 96, 48, 4))


def test_shapes_to_run_are_padded() -> None:
    for sizes in small_shapes(turned()):
        assert sizes["LD"] > sizes["N"]
        assert declared_strides(turned(), sizes)["X"] == (sizes["M"] * sizes["LD"], 1, sizes["M"])


def test_threads_lie_along_the_contiguous_dimension() -> None:
    text = TURNED.replace("tw.strides(Y, (M * LD, LD, 1))", "tw.strides(Y, (M * N, 1, M))")
    found = expand(kernel(text.replace("TARGET", "sm_80").replace("ASSUME", "tw.assume(M % 4 == 0)")))
    tile = found.types["x"]
    assert isinstance(tile, TileType) and "order [0, 1]" in str(tile.layout) and "4×1 per thread" in str(tile.layout)


@needs_triton
@pytest.mark.parametrize(
    "target", ["sm_80", "sm_90a", "sm_100a", "gfx942", pytest.param("gfx950", marks=pytest.mark.slow)]
)
def test_generated_code_compiles(target: str) -> None:
    made = lower(expand(turned(target)))
    assert "LD = Y.stride(1)" in made.source
    assert compile_lowered(made).spill_stores == 0


def test_offsets_of_constant_strides_are_computed_in_64_bits() -> None:
    text = (
        HEAD
        + """
@tw.kernel
def rows(X: Global[f32, M, 4096], Y: Global[f32, M, 4096]):
    for i, j in tw.tiles(tw.cdiv(M, 16), 64):
        x = tw.load(X.tile((i * 16, j * 64), (16, 64)), other=0.0)
        tw.store(Y.tile((i * 16, j * 64), (16, 64)), x)
"""
    )
    source = lower(expand(kernel(text))).source
    assert "X + (i * 16) * X_stride + j * 64 + (X_i[:, None] * 4096 + X_j[None, :])" in source
    assert "X_stride = gl.to_tensor(4096).to(gl.int64)" in source


BODY = """    for i, j in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 64)):
        LINE
        tw.store(Y.tile((i * 16, j * 64), (16, 64)), tw.zeros(f32, (16, 64)))
"""


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("tw.strides(Y, (LD,))", "TW003", "'Y' has 2 dimensions, and 1 stride is given"),
        ("tw.strides(Y, (LD, 0))", "TW003", "a stride is a size, a positive integer, or a product of them"),
        ("tw.strides(Y, (n, 1))", "TW003", "not the size n"),
        ("tw.strides(Y, (LD + 1, 1))", "TW003", "not a scalar known only at run time"),
        ("tw.strides(n, (LD, 1))", "TW003", "tw.strides is for a tensor argument"),
        ("tw.strides(Z, (32, 1))", "TW006", "with strides (32, 1), elements of 'Z' share memory"),
    ],
)
def test_wrong_declarations_are_refused(line: str, code: str, words: str) -> None:
    head = "@tw.kernel\ndef k(Y: Global[f32, M, N], Z: Global[f32, M, 64], n: Scalar[i32]):\n"
    text = HEAD + head + f"    {line}\n" + BODY.replace("LINE", "pass")
    problems = [(p.code, p.message) for u in read(text).units for p in u.problems]
    assert any(c == code and words in m for c, m in problems), problems


def test_a_declaration_stands_at_the_top() -> None:
    head = "@tw.kernel\ndef k(Y: Global[f32, M, N]):\n"
    text = HEAD + head + BODY.replace("LINE", "tw.strides(Y, (LD, 1))")
    assert next(p.message for u in read(text).units for p in u.problems).startswith("tw.strides stands at the top")
