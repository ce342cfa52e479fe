"""Operations on register tiles through all layers: read, printed, interpreted, laid out, lowered and compiled."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from dsl.tile_operations import CASES, HEAD, Case, inputs, outputs
from reading import read
from tilewright.dtypes import f8e4m3, f8e5m2
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright.interpret.numeric import from_bits, to_bits, to_dtype
from tilewright.interpret.philox import random_bits
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower import LoweringError, compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
by_name = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.problems, [p.message for p in module.problems]
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


@by_name
def test_results_are_those_of_numpy(case: Case) -> None:
    given, made = inputs(case), outputs(case)
    run(expand(kernel(case.text())), [*given, *made])
    for got, want in zip(made, case.want(*given), strict=True):
        if case.exact:
            np.testing.assert_array_equal(got, np.asarray(want).astype(got.dtype))
        else:
            np.testing.assert_allclose(got, want, rtol=2e-3 if got.dtype == np.float16 else 1e-5, atol=1e-6)


@by_name
def test_what_is_printed_reads_back_into_equal_ir(case: Case) -> None:
    first = kernel(case.text())
    second = kernel(module_source(first))
    assert second.body == first.body


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", pytest.param("gfx942", marks=pytest.mark.slow)])
@by_name
def test_generated_code_compiles(case: Case, target: str) -> None:
    assert compile_lowered(lower(expand(kernel(case.text(target))))).spill_stores == 0


# --------------------------------------------------------------------------------------------- random numbers


def test_random_bits_are_the_known_answer_of_philox() -> None:
    # Random123 1.09, tests/kat_vectors: philox4x32 10, counter 0, key 0.
    assert int(random_bits(0, np.zeros(1, np.int32))[0]) == 0x6627E8D5


def test_random_numbers_lie_in_the_unit_interval_and_are_spread_evenly() -> None:
    text = HEAD + (
        "@tw.kernel\ndef draw(A: Global[f32, N]):\n    for i in tw.tiles(tw.cdiv(N, 1024)):\n"
        "        r = tw.rand(3, i * 1024 + tw.arange(1024))\n        tw.store(A.tile((i * 1024,), (1024,)), r)\n"
    )
    drawn = np.zeros(20000, np.float32)
    run(expand(kernel(text)), [drawn])
    assert drawn.min() >= 0 and drawn.max() < 1 and len(np.unique(drawn)) > 19900
    histogram = np.histogram(drawn, 10, (0, 1))[0]
    assert abs(histogram - 2000).max() < 200


# --------------------------------------------------------------------------------------------- 8-bit floats

E4M3 = [(0.0, 0), (1.0, 0x38), (448.0, 0x7E), (464.0, 0x7E), (1e9, 0x7E), (np.inf, 0x7E), (2.0**-9, 1), (2.0**-10, 0),
        (1.5 * 2.0**-9, 2), (1.0625, 0x38), (1.1875, 0x3A), (-0.0, 0x80), (-448.0, 0xFE)]  # fmt: skip
E5M2 = [(1.0, 0x3C), (57344.0, 0x7B), (61440.0, 0x7B), (np.inf, 0x7B), (2.0**-16, 1), (2.0**-17, 0), (1.125, 0x3C),
        (1.375, 0x3E), (-1.0, 0xBC)]  # fmt: skip


@pytest.mark.parametrize(("dtype", "pairs"), [(f8e4m3, E4M3), (f8e5m2, E5M2)], ids=["f8e4m3", "f8e5m2"])
def test_casts_to_8_bit_floats_round_to_nearest_even_and_saturate(dtype: Any, pairs: list[tuple[float, int]]) -> None:
    values, codes = (np.array(c) for c in zip(*pairs, strict=True))
    np.testing.assert_array_equal(to_bits(to_dtype(values.astype(np.float32), dtype), dtype), codes)


@pytest.mark.parametrize("dtype", [f8e4m3, f8e5m2], ids=str)
def test_every_8_bit_float_survives_a_round_trip(dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = from_bits(codes, dtype)
    finite = np.isfinite(values)
    assert finite.sum() == {"f8e4m3": 254, "f8e5m2": 248}[dtype.name]
    np.testing.assert_array_equal(to_bits(values, dtype)[finite], codes[finite])
    assert np.isnan(values[0x7F]) and to_bits(values, dtype)[0x7F] == 0x7F


def float8_text(dtype: str, target: str) -> str:
    return HEAD + (
        f'@tw.kernel(target="{target}")\ndef requantize(X: Global[f32, M, N], Q: Global[{dtype}, M, N], '
        f"P: Global[{dtype}, M, N], Y: Global[f16, M, N]):\n    for i in tw.tiles(M):\n"
        "        x = tw.load(X.tile((i, 0), (1, 256)), other=0.0)\n"
        f"        tw.store(Q.tile((i, 0), (1, 256)), x.to({dtype}))\n"
        "        p = tw.load(P.tile((i, 0), (1, 256)), other=0.0)\n"
        "        tw.store(Y.tile((i, 0), (1, 256)), p.to(f16))\n"
    )


def test_8_bit_floats_are_bit_patterns_or_values_in_arrays() -> None:
    x = np.linspace(-500, 500, 30, dtype=np.float32).reshape(2, 15)
    codes, values = np.zeros(x.shape, np.uint8), np.zeros(x.shape, np.float32)
    y = np.zeros(x.shape, np.float16)
    p = (np.arange(30, dtype=np.uint8) * 8).reshape(2, 15)
    run(expand(kernel(float8_text("f8e4m3", "sm_90a"))), [x, codes, p, y])
    np.testing.assert_array_equal(codes, to_bits(x, f8e4m3))
    np.testing.assert_array_equal(y, from_bits(p, f8e4m3).astype(np.float16))
    run(expand(kernel(float8_text("f8e4m3", "sm_90a"))), [x, values, p, y])
    np.testing.assert_array_equal(values, from_bits(codes, f8e4m3))


@needs_triton
@pytest.mark.parametrize(
    ("dtype", "target"), [("f8e5m2", "sm_80"), ("f8e5m2", "sm_90a"), ("f8e4m3", "sm_89"), ("f8e4m3", "sm_90a")]
)
def test_8_bit_floats_compile(dtype: str, target: str) -> None:
    assert compile_lowered(lower(expand(kernel(float8_text(dtype, target))))).spill_stores == 0


def test_a_type_that_the_target_cannot_convert_to_is_refused() -> None:
    with pytest.raises(LoweringError, match="sm_80 cannot convert to f8e4m3; sm_89, sm_90a, sm_100a can"):
        lower(expand(kernel(float8_text("f8e4m3", "sm_80"))))


# --------------------------------------------------------------------------------------------- exactness


def test_fma_rounds_once() -> None:
    text = HEAD + (
        "@tw.kernel\ndef fused(A: Global[f32, N], B: Global[f32, N], C: Global[f32, N], D: Global[f32, N]):\n"
        "    for i in tw.tiles(1):\n        at = (0,)\n        a = tw.load(A.tile(at, (4,)))\n"
        "        b = tw.load(B.tile(at, (4,)))\n        c = tw.load(C.tile(at, (4,)))\n"
        "        tw.store(D.tile(at, (4,)), tw.fma(a, b, c))\n"
    )
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: with 2^-60 above the tie, rounding first to f64 would lose it.
    a = np.array([1 + 2**-12, 1 + 2**-12, 3e38, 1e-30], np.float32)
    c = np.array([2.0**-60, -(2.0**-60), -3e38, 1e-38], np.float32)
    b, d = np.array([1 + 2**-12, 1 + 2**-12, 2.0, 1e-8], np.float32), np.zeros(4, np.float32)
    run(expand(kernel(text)), [a, b, c, d])
    assert d[0] == np.float32(1 + 2**-11 + 2**-23) and d[1] == np.float32(1 + 2**-11) and d[2] == np.float32(3e38)


@pytest.mark.parametrize(
    ("line", "message"), [("a = x // (x - x)", "division by zero"), ("a = x << 31 + x", "a shift by")]
)
def test_what_has_no_value_stops_the_interpreter(line: str, message: str) -> None:
    case = Case("broken", ("i32",), ("i32",), line, lambda x: (x,))
    with pytest.raises(Exception, match=message):
        run(expand(kernel(case.text())), [np.full(case.shape, 5, np.int32), *outputs(case)])


def test_and_binds_tighter_than_exclusive_or_as_in_python() -> None:
    values = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    lines = [f"{a} ^ {b} & {c} ^ {c}, {a} & {b} ^ {c} & {a}, ({a} ^ {b}) & {c}" for a, b, c in values]
    want = [(a ^ b & c ^ c, a & b ^ c & a, (a ^ b) & c) for a, b, c in values]
    for line, numbers in zip(lines, want, strict=True):
        (unit,) = read(
            HEAD
            + f"P = ({line})\n\n@tw.kernel\ndef f(A: Global[f32, N]):\n    tw.assume(N == P[0] + 8 * P[1] + 64 * P[2])"
        ).units
        assert unit.kernel is not None
        assert unit.kernel.assumptions[0].expr == ex.binary(
            "==", ex.Size("N"), ex.Int(numbers[0] + 8 * numbers[1] + 64 * numbers[2])
        )


# --------------------------------------------------------------------------------------------- refusals

REFUSED = [
    ("f32", "a = x // x", "TW004", "'//' is for integers, not f32"),
    ("f32", "a = x & x", "TW004", "'&' combines integers and truth values"),
    ("i32", "a = x / x", "TW004", "'/' gives a fraction"),
    ("i32", "a = x and x", "TW004", "'and' combines truth values"),
    ("u8", "a = x + 256", "TW004", "256 does not fit u8, which holds 0 to 255"),
    ("i8", "a = x + 0.5", "TW004", "mixes i8 with a fraction"),
    ("i32", "a = tw.pow(x, 2)", "TW004", "pow of i32"),
    ("f32", "a = tw.clamp(x, 2.0, 1.0)", "TW006", "bounds are exchanged"),
    ("f32", "a = tw.bitcast(x, u8)", "TW004", "f32 has 32, u8 8"),
    ("f8e5m2", "a = x + x", "TW004", "stored and cast, not computed with"),
    ("f8e5m2", "a = tw.exp(x)", "TW004", "stored and cast"),
    ("f8e5m2", "a = tw.cumsum(x, axis=1)", "TW004", "stored and cast"),
    ("f8e5m2", "a = x.to(i8)", "TW004", "by way of f32"),
    ("f32", "a = tw.cumsum(x)", "TW005", "say which axis"),
    ("f32", "a = tw.argmax(x, axis=2)", "TW003", "axis 2 of a tile with 2 dimensions"),
    ("f32", "a = tw.sum(tw.sum(x, axis=1))", "TW005", "scalars do not come from data"),
    ("f32", "a = tw.reshape(x, (8, 32))", "TW003", "512 elements"),
    ("f32", "a = tw.permute(x, (0, 0))", "TW003", "once"),
    ("f32", "a = tw.join(x, tw.sum(x, axis=1))", "TW003", "two tiles alike"),
    ("f32", "a = tw.split(x)", "TW003", "last axis has extent 2"),
    ("f32", "a = x[:, 0]", "TW005", "one of two by 0 or 1"),
    ("f32", "a = tw.rand(1, x)", "TW004", "takes integers"),
    ("i32", "a = tw.rand(0.5, x)", "TW003", "the seed of rand"),
    ("i32", "a = tw.unpack_int4(x)", "TW004", "takes bytes"),
]


@pytest.mark.parametrize(("dtype", "line", "code", "message"), REFUSED, ids=[r[1] for r in REFUSED])
def test_wrong_uses_are_refused_with_a_reason(dtype: str, line: str, code: str, message: str) -> None:
    (unit,) = read(Case("wrong", (dtype,), (dtype,), line, lambda x: (x,)).text()).units
    found = [(p.code, p.message) for p in unit.problems]
    assert found and found[0][0] == code and message in found[0][1], found
