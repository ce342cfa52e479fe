"""Layouts that a kernel gives: printed and read back, in the generated code, compiled, and the same results."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand, expand_policies
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.ir.types import GIVEN, TileType
from tilewright.layout import Blocked, DotOperand, MmaV2, Slice
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

KERNELS = f"""{HEADER}
ROWS = tw.blocked((1, 8), (4, 8), (4, 1), (1, 0))
MATRIX = tw.accumulator("mma_v2", (4, 1))


@tw.kernel(target="sm_80", warps=4)
def double(X: Global[f32, M, N], Y: Global[f32, M, N]):
    for i, j in tw.tiles(tw.cdiv(M, 32), tw.cdiv(N, 64)):
        x = tw.convert_layout(tw.load(X.tile((i * 32, j * 64), (32, 64)), other=0.0), ROWS)
        x = x * 2.0
        y = tw.convert_layout(x, tw.blocked((1, 4), (2, 16), (4, 1), (1, 0)))
        tw.store(Y.tile((i * 32, j * 64), (32, 64)), y)


@tw.kernel(target="sm_80", warps=4)
def sums(X: Global[f32, M, N], Y: Global[f32, M]):
    for i in tw.tiles(tw.cdiv(M, 32)):
        acc = tw.convert_layout(tw.zeros(f32, (32,)), tw.sliced(1, ROWS))
        for j in range(0, N, 32):
            x = tw.load(X.tile((i * 32, j), (32, 32)), other=0.0)
            acc = acc + tw.sum(x, axis=1)
        tw.store(Y.tile((i * 32,), (32,)), acc)


@tw.kernel(target="sm_80", warps=4)
def gemm(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    tw.assume(N % 8 == 0)
    tw.assume(K % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.convert_layout(tw.zeros(f32, (64, 64)), MATRIX)
        for k in tw.pipeline(0, K, 32, stages=2, roles="single"):
            a = tw.convert_layout(tw.load(A.tile((pm * 64, k), (64, 32)), via="cp_async"), tw.dot_operand(0, MATRIX, 2))
            b = tw.load(B.tile((k, pn * 64), (32, 64)), via="cp_async")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc)


@tw.kernel(target="gfx942", warps=4)
def waves(X: Global[f32, M, N], Y: Global[f32, M, N]):
    for i, j in tw.tiles(tw.cdiv(M, 32), tw.cdiv(N, 64)):
        x = tw.convert_layout(tw.load(X.tile((i * 32, j * 64), (32, 64)), other=0.0), tw.blocked((1, 4), (4, 16), (4, 1), (1, 0)))
        tw.store(Y.tile((i * 32, j * 64), (32, 64)), tw.exp(x))
"""
NAMES = ("double", "sums", "gemm", "waves")


def kernel(name: str, text: str = KERNELS) -> ir.Kernel:
    module = read(text)
    assert not module.problems, module.problems
    found = module.unit(name).kernel
    assert found is not None
    return found


def tile(k: ir.Kernel, name: str) -> TileType:
    found = k.types[name]
    assert isinstance(found, TileType)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_reads_back_with_its_layouts(name: str) -> None:
    for k in (kernel(name), expand_policies(kernel(name))):
        again = kernel(name, module_source(k))
        assert expand_policies(again).body == expand_policies(k).body
        given = {n: t for n, t in k.types.items() if isinstance(t, TileType) and t.why == GIVEN}
        assert given
        assert {n: again.types[n] for n in given if not n.startswith("%")} == {
            n: t for n, t in given.items() if not n.startswith("%")
        }


def test_layouts_of_what_is_computed_are_inferred_and_not_printed() -> None:
    text = module_source(expand(kernel("double")))
    assert text.count("convert_layout") == 2


def test_given_layouts_are_obeyed() -> None:
    rows = Blocked((1, 8), (4, 8), (4, 1), (1, 0))
    k = expand(kernel("double"))
    assert tile(k, "x").layout == rows
    assert tile(k, "y").layout == Blocked((1, 4), (2, 16), (4, 1), (1, 0))
    assert sum(isinstance(s, ir.Compute) and s.op == "convert_layout" for s in ir.walk(k.body)) == 1
    k = expand(kernel("sums"))
    assert tile(k, "acc").layout == Slice(1, rows)
    k = expand(kernel("gemm"))
    assert tile(k, "acc").layout == MmaV2((4, 1))
    assert tile(k, "a").layout == DotOperand(0, MmaV2((4, 1)), 2)


def test_results_do_not_depend_on_layouts() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((37, 70), dtype=np.float32)
    y = np.zeros_like(x)
    run(expand(kernel("double")), [x, y])
    np.testing.assert_array_equal(y, 2 * x)
    total = np.zeros(37, dtype=np.float32)
    run(expand(kernel("sums")), [x, total])
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
@pytest.mark.parametrize("name", NAMES)
def test_given_layouts_compile(name: str) -> None:
    lowered = lower(expand(kernel(name)))
    assert compile_lowered(lowered).registers > 0
