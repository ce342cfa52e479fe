"""The numbers of the attention, quantization, rotary, reduction and part kernels, in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl.kernels.test_kernels import unit
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright.kernels import configurations

rng = np.random.default_rng(0)


def results(name: str, values: dict[str, int | str], *arguments: Any) -> None:
    kernel = unit(name, **values).kernel
    assert kernel is not None
    run(expand(kernel), list(arguments))


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float16)


@pytest.mark.parametrize("mask", configurations.MASKS)
@pytest.mark.parametrize("group", [1, 2])
def test_attention(mask: str, group: int) -> None:
    q, k, v = normal(2 * group, 140, 64), normal(2, 150, 64), normal(2, 150, 64)
    out = np.zeros_like(q)
    values: dict[str, int | str] = {"D": 64, "GROUP": group, "MASK": configurations.MASKS.index(mask), "BN": 64}
    results("attention", values, q, k, v, out, 0.3 * np.log2(np.e).item(), 40)
    wide = [np.repeat(t.astype(float), group, 0) for t in (k, v)]
    scores = 0.3 * q.astype(float) @ wide[0].transpose(0, 2, 1)
    behind = np.arange(140)[:, None] - np.arange(150)
    if mask != "full":
        scores = np.where((behind >= 0) & ((mask == "causal") | (behind < 40)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ wide[1]
    np.testing.assert_allclose(out, want, rtol=2e-3, atol=4e-3)


def test_parts_add_up() -> None:
    a, b = normal(20, 1104), normal(1104, 24)
    sums, out = np.zeros((3, 20, 24), np.float32), np.zeros((20, 24), np.float16)
    results("parts_nn", {"PART": 512, "BM": 64, "BN": 64, "warps": 4}, a, b, sums)
    results("sum_of_parts", {}, sums, out)
    np.testing.assert_allclose(out, a.astype(float) @ b.astype(float), rtol=2e-3, atol=5e-2)


def test_rows_of_zeros_are_quantized() -> None:
    x = rng.standard_normal((5, 40)).astype(np.float32)
    x[3] = 0
    q, scale = np.zeros((5, 40), np.int8), np.zeros(5, np.float32)
    results("quantize_int8", {"BN": 64}, x, q, scale)
    np.testing.assert_allclose(q * scale[:, None], x, atol=abs(x).max() / 250)
    assert (abs(q).max(1) == [127, 127, 127, 0, 127]).all()


def test_rotary() -> None:
    x, angle = rng.standard_normal((2, 9, 2, 20)).astype(np.float32), rng.standard_normal((9, 20))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    y, pairs = np.zeros_like(x), np.ascontiguousarray(x.transpose(0, 1, 3, 2))
    turned = np.stack([x[:, :, 0] * cos - x[:, :, 1] * sin, x[:, :, 1] * cos + x[:, :, 0] * sin], 2)
    results("rotary", {"BF": 32}, x, cos, sin, y)
    np.testing.assert_allclose(y, turned, rtol=1e-5, atol=1e-6)
    y = np.zeros_like(pairs)
    results("rotary_neighbours", {"BF": 32}, pairs, cos, sin, y)
    np.testing.assert_allclose(y, turned.transpose(0, 1, 3, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("operation", "function"), list(enumerate([np.sum, np.mean, np.max, np.min])))
def test_reductions(operation: int, function: Any) -> None:
    x = rng.standard_normal((3, 7, 50)).astype(np.float32)
    rows, columns = np.zeros(21, np.float32), np.zeros((3, 50), np.float32)
    results("reduce_rows", {"OP": operation, "R": 2, "BN": 32}, x.reshape(21, 50), rows)
    results("reduce_columns", {"OP": operation, "BM": 4}, x, columns)
    np.testing.assert_allclose(rows, function(x.astype(float), axis=2).ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(columns, function(x.astype(float), axis=1), rtol=1e-5, atol=1e-5)


def test_running_sums_go_on_past_a_tile() -> None:
    x = rng.standard_normal((2, 150)).astype(np.float32)
    y = np.zeros_like(x)
    results("cumulative_sum", {"BN": 64}, x, y)
    np.testing.assert_allclose(y, x.astype(float).cumsum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 4])
def test_group_norm(parts: int) -> None:
    x = (3 + rng.standard_normal((2, 3, 4, 30))).astype(np.float32)
    w, b = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    means, variances = (np.zeros(6 * parts, np.float32) for _ in range(2))
    mean, scale, out = np.zeros(6, np.float32), np.zeros(6, np.float32), np.zeros_like(x)
    results("statistics", {"BN": 32}, x.reshape(6 * parts, 120 // parts), means, variances)
    results("joined", {}, means.reshape(6, parts), variances.reshape(6, parts), mean, scale, 1e-5)
    results("group_norm", {"BC": 2, "BL": 16}, x, mean.reshape(2, 3), scale.reshape(2, 3), w, b, out)
    wide = x.astype(float)
    normed = (wide - wide.mean((2, 3), keepdims=True)) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, normed * w[None, :, :, None] + b[None, :, :, None], rtol=1e-4, atol=1e-4)
