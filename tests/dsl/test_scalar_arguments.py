"""Scalar arguments through all layers: read, refused, printed, interpreted, lowered, compiled."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, run
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
HEAD = 'import tilewright as tw\nfrom tilewright import *\n\nM, N = tw.sizes("M", "N")\n\n'
HEAD = HEAD.replace("import *", "import Const, Global, Scalar, f16, f32, f64, i32")

BLEND = (
    HEAD
    + """
@tw.kernel(target="TARGET", warps=4)
def blend(alpha: Scalar[f32], X: Global[f16, M, N], n: Scalar[i32], Y: Global[f32, M, N]):
    tw.assume(n >= -8)
    for i, j in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 64)):
        x = tw.load(X.tile((i * 16, j * 64), (16, 64)), other=0.0)
        y = (x * alpha.to(f16)).to(f32) + tw.maximum(alpha, tw.full(f32, (16, 64), alpha * 0.5))
        if n < 0:
            y = y - alpha
        for k in range(0, n, 2):
            y = y + tw.exp(alpha)
        alpha = alpha / 2.0
        n = n // 2
        tw.store(Y.tile((i * 16, j * 64), (16, 64)), tw.where(y > alpha, y, alpha) + n)
"""
)


def blended(alpha: float, x: np.ndarray, n: int) -> np.ndarray:
    a = np.float32(alpha)
    y = (x * np.float16(a)).astype(np.float32) + max(a, a * np.float32(0.5))
    y = y - a if n < 0 else y
    for _ in range(0, n, 2):
        y = y + np.exp(a)
    return np.maximum(y, a / 2) + np.float32(n // 2)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.problems, [p.message for p in module.problems]
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


def blend(target: str = "sm_80") -> ir.Kernel:
    return kernel(BLEND.replace("TARGET", target))


def test_an_argument_stands_in_its_place() -> None:
    found = blend()
    assert [a.name for a in found.arguments] == ["alpha", "X", "n", "Y"]
    assert found.sizes == ("M", "N", "n") and found.integers == {"n"}
    assert found.assumptions[0].expr == ex.Bin("<=", ex.Int(-8), ex.Size("n", ex.LEAST_SCALAR))


@pytest.mark.parametrize(("alpha", "n"), [(0.5, 3), (-1.25, -5), (2.0, 0), (3, 8)])
def test_results_are_those_of_numpy(alpha: float, n: int) -> None:
    x = np.random.default_rng(n & 7).standard_normal((21, 70)).astype(np.float16)
    y = np.full((21, 70), np.nan, np.float32)
    # One program a tile, so that each begins with the argument's own value.
    run(expand(blend()), [alpha, x, n, y])
    np.testing.assert_allclose(y, blended(alpha, x, n), rtol=1e-3, atol=1e-3)


def test_what_is_printed_reads_back_into_equal_ir() -> None:
    for first in (blend(), expand(blend())):
        again = kernel(module_source(first))
        assert again.scalars == first.scalars and again.arguments == first.arguments
        assert (expand(again) if first is not blend() else again).body == expand(first).body


@needs_triton
@pytest.mark.parametrize(
    "target", ["sm_80", "sm_90a", "sm_100a", "gfx942", pytest.param("gfx950", marks=pytest.mark.slow)]
)
def test_generated_code_compiles(target: str) -> None:
    made = lower(expand(blend(target)))
    assert [(a.name, a.type) for a in made.launch.arguments if a.kind == "scalar"] == [("n", "i32"), ("alpha", "fp32")]
    assert compile_lowered(made).spill_stores == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": "much"}, "alpha is a number (f32), not 'much'"),
        ({"alpha": True}, "alpha is a number (f32), not True"),
        ({"n": 2.0}, "n is an integer (i32), not 2.0"),
        ({"n": np.zeros(1)}, "n is an integer (i32), not a tensor"),
        ({"n": 2**31}, "n = 2147483648 is not in -2147418112 .. 2147418112"),
        ({"n": -9}, "blend assumes -8 <= n, which does not hold for n = -9"),
        ({"X": 3.0}, "X is a tensor of f16, not 3.0"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change: dict[str, object], words: str) -> None:
    given = {"alpha": 1.0, "X": np.zeros((4, 4), np.float16), "n": 1, "Y": np.zeros((4, 4), np.float32)} | change
    with pytest.raises(ArgumentError) as caught:
        run(expand(blend()), list(given.values()))  # pyright: ignore[reportArgumentType]
    assert words in str(caught.value)


def test_the_launch_checks_scalars() -> None:
    source = lower(expand(blend())).source
    assert "def prepare(alpha, X, n, Y):" in source and "def run(alpha, X, n, Y):" in source
    assert "n = {n} is not in -2147418112 .. 2147418112" in source and "the kernel assumes -8 <= n" in source


BODY = (
    "    for i in tw.tiles(tw.cdiv(N, 64)):\n        tw.store(Y.tile((i * 64,), (64,)), tw.full(f32, (64,), VALUE))\n"
)


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("s: Scalar", "1.0", "Scalar needs an element type: Scalar[f32] or Scalar[i32]"),
        ("s: Scalar[f16]", "1.0", "a scalar argument is Scalar[f32] or Scalar[i32], not of the element type f16"),
        ("s: Scalar[f32, N]", "1.0", "not of the element type f32, the size N"),
        ("s: Scalar[i32] = 3", "1.0", "the scalar 's' takes no default"),
        ("s: Scalar[i32], Z: Global[f32, s]", "1.0", "an extent of Global[…] is a size, not the scalar argument s"),
        ("s: Scalar[f32]", "s.to(f64)", "the tile is f32, its value f64: cast it first"),
    ],
)
def test_wrong_scalars_are_refused(parameter: str, value: str, words: str) -> None:
    text = HEAD + f"@tw.kernel\ndef k(Y: Global[f32, N], {parameter}):\n" + BODY.replace("VALUE", value)
    messages = [p.message for u in read(text).units for p in u.problems]
    assert any(words in m for m in messages), messages
