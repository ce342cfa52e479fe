"""Calls with scalars, and with tensors that the launch fills: what is remembered, checked again, and launched."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import tilewright as tw
from dsl.test_launching import DType, Gpu, Tensor
from tilewright.lower.load import load_module

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
SOURCE = """
import tilewright as tw
from tilewright import Global, Scalar, f32, i32

N = tw.sizes("N")


@tw.kernel(target="sm_80")
def first(alpha: Scalar[f32], X: Global[f32, N], n: Scalar[i32], more: Scalar[i32], S: Global[f32, N]):
    tw.zeroed(S)
    for i in tw.programs(n):
        x = tw.load(X.tile((i * 256,), (256,)), other=0.0)
        tw.atomic_add(S.tile((i * 256,), (256,)), alpha * x + more)
"""


@dataclass(eq=False)
class Filled(Tensor):
    zeroed: int = 0

    def zero_(self) -> None:
        self.zeroed += 1


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: Gpu) -> tw.KernelFunction:
    path = tmp_path / "scalar_kernel.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("scalar_kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: tw.KernelFunction = module.first
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    monkeypatch.setattr(load_module(function.lower()), "first", gpu.entry())
    return function


def tensors(n: int = 1000) -> tuple[Tensor, Filled]:
    return Tensor((n,), DType("float32")), Filled((n,), DType("float32"))


def test_scalars_that_decide_nothing_launch_what_was_prepared(gpu: Gpu, first: tw.KernelFunction) -> None:
    x, s = tensors()
    first(0.5, x, 4, 7, s)
    first(2.5, x, 4, -1, s)
    assert [(how, grid, args) for how, _, grid, args in gpu.launches] == [
        ("jit", (4,), (x, s, 1000, 4, 7, 0.5)), ("compiled", (4, 1, 1), (x, s, 1000, 4, -1, 2.5)),
    ]  # fmt: skip
    assert s.zeroed == 2


def test_a_scalar_that_decides_the_grid_is_prepared_anew(gpu: Gpu, first: tw.KernelFunction) -> None:
    x, s = tensors()
    for n in (4, 2, 4):
        first(0.5, x, n, 7, s)
    assert [grid for _, _, grid, _ in gpu.launches] == [(4,), (2,), (4, 1, 1)]


@pytest.mark.parametrize("n", [0, -3])
def test_a_grid_of_no_tiles_only_fills(gpu: Gpu, first: tw.KernelFunction, n: int) -> None:
    x, s = tensors()
    first(0.5, x, n, 7, s)
    first(0.5, x, n, 7, s)
    assert not gpu.launches and s.zeroed == 2


def test_whole_numbers_are_numbers(gpu: Gpu, first: tw.KernelFunction) -> None:
    x, s = tensors()
    first(3, x, 1, 7, s)
    (alpha,) = (args[-1] for _, _, _, args in gpu.launches)
    assert alpha == 3.0 and isinstance(alpha, float)


def test_wrong_scalars_are_named_after_right_ones(first: tw.KernelFunction) -> None:
    x, s = tensors()
    first(0.5, x, 4, 7, s)
    for given, message in (
        ((0.5, x, 4.0, 7, s), r"first: n is an integer \(i32\), not 4\.0"),
        ((0.5, x, True, 7, s), r"first: n is an integer \(i32\), not True"),
        ((x, x, 4, 7, s), r"first: alpha is a number \(f32\), not Tensor"),
        ((0.5, 1.5, 4, 7, s), r"first: X is a builtins\.float, expected a dense tensor"),
        ((0.5, x, 4, s), r"first takes 5 arguments \(alpha, X, n, more, S\), got 4"),
    ):
        with pytest.raises(tw.ArgumentError, match=message):
            first(*given)
    with pytest.raises(ValueError, match=r"more = 2147483647 is not in -2147418112 \.\. 2147418112"):
        first(0.5, x, 4, 2**31 - 1, s)
