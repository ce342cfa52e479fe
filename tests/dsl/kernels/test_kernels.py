"""The kernels of `tilewright.kernels`: proved at the configurations that are used, and the numbers of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.frontend import KernelUnit
from tilewright.interpret import run
from tilewright.kernels import catalogue, configurations
from tilewright.kernels.shipped import key
from tilewright_analysis import check_unit

FOLDER = Path(configurations.__file__).parent
FILES = {
    name: read((FOLDER / f"{name}.py").read_bytes()) for name in sorted({file for file, _, _ in catalogue.entries()})
}
TILES = [dict(t.values) for t in configurations.tiles()]


def unit(name: str, **values: int | str) -> KernelUnit:
    found = next(u for m in FILES.values() for u in m.units if u.name == name)
    return found.with_consts(**values) if values else found


UNITS = [u.name for m in FILES.values() for u in m.units]


@pytest.mark.parametrize("name", UNITS)
def test_every_kernel_is_proved(name: str) -> None:
    assert check_unit(unit(name)).verdict == "proved"


@pytest.mark.parametrize("columns", [1, 31, 1000, 8192, 32768])
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm"])
def test_rows_are_proved_as_they_are_tiled(name: str, columns: int) -> None:
    if name == "softmax":
        columns = min(columns, configurations.LONGEST_SOFTMAX)
    values = dict(configurations.of_rows(name, columns))
    assert values["R"] * values["BN"] <= 32768 and columns <= values["BN"]
    assert check_unit(unit(name, **values, T="bf16")).verdict == "proved"


ENTRIES = list(catalogue.entries())


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: key(e[1], e[2]))
def test_every_kernel_is_proved_as_it_is_shipped(entry: catalogue.Entry) -> None:
    _, name, values = entry
    assert check_unit(unit(name, **values)).verdict == "proved"


def test_every_choice_is_shipped() -> None:
    shipped = {key(name, values) for _, name, values in ENTRIES}
    for m, n, k in [(1, 8, 8), (64, 4096, 512), (300, 5000, 7000), (16, 1024, 16384), (8192, 8192, 8192)]:
        assert key("gemm_nt", {**configurations.of_product(m, n, k), "T": "bf16"}) in shipped
        parts = configurations.of_parts(m, n, k)
        assert parts is None or key("parts_nn", {**parts, "T": "f16"}) in shipped
    for columns in [1, 33, 1000, 4096, 5000, 32768]:
        for name, like in configurations.ROWS.items():
            if like != "softmax" or columns <= configurations.LONGEST_SOFTMAX:
                assert key(name, {**configurations.of_rows(like, columns), "T": "f32"}) in shipped
        assert key("online_softmax", {**configurations.of_pieces(4 * columns), "T": "f32"}) in shipped
        assert key("cross_entropy", {**configurations.of_cross_entropy(columns), "T": "f32"}) in shipped
    for length in [1, 49, 1000, 50_000]:
        assert key("group_norm", {**configurations.of_group_norm(length), "T": "f16"}) in shipped
        assert key("reduce_rows", {**configurations.of_reduction(length), "OP": 1, "T": "f16"}) in shipped
        assert key("rotary", {**configurations.of_rotary(length), "T": "f16"}) in shipped
        assert 1 <= configurations.chunks(length) <= configurations.CHUNKS and not length % configurations.chunks(
            length
        )
        assert key("gemm_fp8", configurations.of_waves(configurations.FP8, length, 4096)) in shipped
        assert key("gemm_int8", configurations.of_waves(configurations.INT8, length, 4096)) in shipped
        assert key("gemm_tf32", configurations.of_waves(configurations.TF32, length, 4096)) in shipped
        for experts in (1, 8, 128):
            assert key("grouped", {**configurations.of_experts(length, experts), "T": "bf16"}) in shipped
            assert key("grouped_gated", {**configurations.of_gated(length, experts), "T": "bf16"}) in shipped


def test_a_long_sum_of_few_tiles_is_split() -> None:
    parts = configurations.of_parts(64, 1024, 16384)
    assert parts is not None and 16384 // parts["PART"] > 1
    assert configurations.of_parts(4096, 4096, 4096) is None


def test_sizes_decide_the_tile() -> None:
    # Measured itself; many tiles for the card; few rows; a grid that does not fill the card.
    assert configurations.of_product(8192, 8192, 8192)["BN"] == 256
    assert configurations.of_product(8000, 8000, 1024) in TILES
    assert configurations.of_product(8, 4096, 4096)["BM"] == 64
    small = configurations.of_product(512, 512, 512)
    assert small["BM"] * small["BN"] <= 64 * 128


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], tuple[float, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), (0.01,)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "tanh": (np.tanh, ()),
    "silu": (lambda x: x / (1 + np.exp(-x)), ()),
    "gelu": (lambda x: x * np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x]), ()),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), ()),
    "selu": (lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), ()),
    "elu": (lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), (0.5,)),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), ()),
    "hardtanh": (lambda x: np.clip(x, -0.5, 2), (-0.5, 2.0)),
    "softplus": (lambda x: np.logaddexp(0, x), ()),
    "softsign": (lambda x: x / (1 + abs(x)), ()),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    want, scalars = ACTIVATIONS[name]
    x = np.concatenate([np.linspace(-30, 30, 301), [0.0, -88.0, 88.0]]).astype(np.float32)
    y = np.zeros_like(x)
    kernel = unit(name, BLOCK=128).kernel
    assert kernel is not None
    run(expand(kernel), [x, y, *scalars])
    np.testing.assert_allclose(y, want(x.astype(float)), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("columns", [1, 5, 64, 100])
def test_rows(columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = (5 * rng.standard_normal((5, columns))).astype(np.float32)
    w, b = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    wide = x.astype(float)
    shifted = wide - wide.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    centred = wide - wide.mean(1, keepdims=True)
    target = rng.integers(0, columns, 5)
    target[2] = -100
    loss = np.where(target >= 0, -log_softmax[np.arange(5), np.maximum(target, 0)], 0)
    values = dict(configurations.of_rows("softmax", columns))
    one = {k: v for k, v in values.items() if k != "R"}
    cases: list[tuple[str, dict[str, int], list[Any], Any]] = [
        ("softmax", values, [x], np.exp(log_softmax)),
        ("log_softmax", values, [x], log_softmax),
        ("online_softmax", {"BN": 32}, [x], np.exp(log_softmax)),
        ("rms_norm", values, [x, w], wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * w),
        ("layer_norm", values, [x, w, b], centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b),
        ("cross_entropy", one, [x, target], loss),
    ]
    for name, consts, inputs, want in cases:
        out = np.zeros(want.shape, np.float32)
        scalars = [{"rms_norm": 1e-6, "layer_norm": 1e-5}[name]] if name.endswith("norm") else []
        kernel = unit(name, **consts).kernel
        assert kernel is not None
        run(expand(kernel), [*inputs, out, *scalars])
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("activation", range(4))
def test_linear(activation: int) -> None:
    rng = np.random.default_rng(activation)
    a, w, bias = (rng.standard_normal(s).astype(np.float16) for s in ((70, 40), (24, 40), (24,)))
    out = np.zeros((70, 24), np.float16)
    kernel = unit("linear", BM=64, BN=32, BK=32, STAGES=2, warps=4, ACT=activation).kernel
    assert kernel is not None
    run(expand(kernel), [a, w, bias, out])
    x = a.astype(float) @ w.T.astype(float) + bias
    functions = [lambda v: v, lambda v: np.maximum(v, 0), ACTIVATIONS["gelu"][0], ACTIVATIONS["silu"][0]]
    want = np.array([functions[activation](row) for row in x])
    np.testing.assert_allclose(out, want, rtol=2e-3, atol=1e-2)
