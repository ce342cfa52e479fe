from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.dtypes import ALL, DType, bf16, f16, f32, i1, i8, i32
from tilewright.interpret.compute import compute, matrix_product
from tilewright.interpret.numeric import decode, encode, poison, round_bf16, to_dtype
from tilewright.ir.nodes import ComputeOp

X = np.array([[0.5, -1.25, 2.0], [3.0, 0.25, -0.75]], np.float32)
UNARY: dict[ComputeOp, object] = {
    "neg": lambda v: -v, "abs": abs, "exp": math.exp, "exp2": lambda v: 2.0**v, "sin": math.sin, "cos": math.cos,
    "tanh": math.tanh, "erf": math.erf, "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "floor": math.floor,
    "copy": lambda v: v, "cast": lambda v: v,
}  # fmt: skip
POSITIVE: dict[ComputeOp, object] = {
    "log": math.log, "log2": math.log2, "sqrt": math.sqrt, "rsqrt": lambda v: 1 / math.sqrt(v),
}  # fmt: skip
BINARY: dict[ComputeOp, object] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "maximum": max, "minimum": min,
}  # fmt: skip
COMPARE: dict[ComputeOp, object] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def apply(op: ComputeOp, *args: Any, dtype: DType = f32, shape: tuple[int, ...] = (2, 3), axis=None, keep=False):
    result = compute(op, args, dtype, shape, axis, keep)
    assert result.shape == shape
    return result


@pytest.mark.parametrize("op", [*UNARY, *POSITIVE])
def test_unary(op: ComputeOp) -> None:
    tile = np.abs(X) if op in POSITIVE else X
    meaning = {**UNARY, **POSITIVE}[op]
    want = [[meaning(float(v)) for v in row] for row in tile]  # type: ignore[operator]
    np.testing.assert_allclose(apply(op, tile), want, rtol=1e-6)


@pytest.mark.parametrize("op", [*BINARY, *COMPARE])
def test_binary_broadcasts(op: ComputeOp) -> None:
    row = np.array([[0.5, 2.0, -1.0]], np.float32)
    meaning = {**BINARY, **COMPARE}[op]
    want = [[meaning(float(a), float(b)) for a, b in zip(r, row[0], strict=True)] for r in X]  # type: ignore[operator]
    got = apply(op, X, row, dtype=i1 if op in COMPARE else f32)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(("op", "want"), [("sum", [1.25, 2.5]), ("max", [2.0, 3.0]), ("min", [-1.25, -0.75])])
def test_reductions(op: ComputeOp, want: list[float]) -> None:
    np.testing.assert_array_equal(apply(op, X, axis=1, shape=(2,)), want)
    np.testing.assert_array_equal(apply(op, X, axis=1, keep=True, shape=(2, 1)), np.array(want)[:, None])
    assert apply(op, X.T, axis=0, shape=(2,)).tolist() == want


def test_a_sum_of_f16_does_not_lose_small_terms() -> None:
    tile = np.full((4096,), 1.0, np.float16)
    assert apply("sum", tile, dtype=f16, axis=0, shape=()) == 4096


def test_maxima_pass_nan_on_as_the_generated_code_does() -> None:
    nan = np.float32(np.nan)
    assert np.isnan(apply("max", np.array([nan, 1.0], np.float32), axis=0, shape=()))
    assert np.isnan(apply("minimum", np.array([nan], np.float32), np.array([2.0], np.float32), shape=(1,)))


def test_shape_operations() -> None:
    np.testing.assert_array_equal(apply("transpose", X, shape=(3, 2)), X.T)
    np.testing.assert_array_equal(apply("expand_dims", X[0], axis=0, shape=(1, 3)), X[:1])
    np.testing.assert_array_equal(apply("broadcast", X[:1], shape=(2, 3)), np.stack([X[0], X[0]]))
    np.testing.assert_array_equal(apply("convert_layout", X), X)
    np.testing.assert_array_equal(apply("arange", dtype=i32, shape=(4,)), [0, 1, 2, 3])
    np.testing.assert_array_equal(apply("full", 1.5, shape=(2,)), [1.5, 1.5])


def test_where_takes_the_type_of_its_choices() -> None:
    got = apply("where", X > 0, X, -math.inf)
    np.testing.assert_array_equal(got, np.where(X > 0, X, -np.inf))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(apply("where", X > 0, 1.5, 0.25), np.where(X > 0, 1.5, 0.25))


def test_logic() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert apply("and", a, b, dtype=i1, shape=(3,)).tolist() == [True, False, False]
    assert apply("or", a, b, dtype=i1, shape=(3,)).tolist() == [True, True, False]
    assert apply("not", a, dtype=i1, shape=(3,)).tolist() == [False, False, True]


def test_integers() -> None:
    tile = np.array([7, -7], np.int32)
    assert apply("div", tile, 2, dtype=i32, shape=(2,)).tolist() == [3, -3]
    assert apply("mul", tile, 0.5, shape=(2,)).tolist() == [3.5, -3.5]
    assert apply("cast", np.array([1.9, -1.9], np.float32), dtype=i32, shape=(2,)).tolist() == [1, -1]
    with pytest.raises(ZeroDivisionError):
        apply("div", tile, 0, dtype=i32, shape=(2,))
    wide = np.full((4,), 100, np.int8)
    assert apply("sum", wide, dtype=i32, axis=0, shape=()) == 400


def test_scalars_take_the_type_of_the_tile() -> None:
    half = np.array([1.0], np.float16)
    # 1 + 2^-11 rounds to 1 in f16 but not in f32: the sum must be rounded to f16.
    assert apply("add", half, 2.0**-11, dtype=f16, shape=(1,)) == 1.0


def test_a_matrix_product_of_f16_sums_in_float32() -> None:
    a = np.full((1, 4096), 1.0, np.float16)
    got = matrix_product(a, a.T, np.full((1, 1), 0.25, np.float32))
    assert got.dtype == np.float32
    assert got == 4096.25


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1.0, 1.0),
        (1 + 2**-8, 1.0),  # a tie goes to the even neighbour
        (1 + 3 * 2**-8, 1 + 2**-6),
        (1 + 2**-8 + 2**-20, 1 + 2**-7),
        (-(1 + 2**-8), -1.0),
        (3.4e38, math.inf),
        (math.inf, math.inf),
    ],
)
def test_bf16_rounds_to_nearest_even(value: float, rounded: float) -> None:
    assert round_bf16(np.array([value], np.float32))[0] == rounded


def test_bf16_keeps_nan_whatever_its_bits() -> None:
    odd = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(round_bf16(odd)).all()


def test_bf16_bit_patterns_survive_a_round_trip() -> None:
    bits = np.arange(0, 2**16, 7, dtype=np.uint16)
    values = decode(bits, bf16)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(encode(to_dtype(values, bf16), bits, bf16)[finite], bits[finite])


@pytest.mark.parametrize("dtype", ALL.values())
def test_poison_fits_every_type(dtype: DType) -> None:
    value = to_dtype(np.asarray(poison(dtype)), dtype)
    assert np.isnan(value) if dtype.is_float else value == poison(dtype)


def test_results_saturate_to_infinity_without_a_warning() -> None:
    assert apply("mul", np.array([60000.0], np.float16), 2.0, dtype=f16, shape=(1,)) == np.inf
    assert apply("neg", np.array([-128], np.int8), dtype=i8, shape=(1,)) == -128
