"""Kernels as a person runs them: values, arguments and their errors, persistent grids, write counts."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from analysis import kernels
from analysis.kernels import tensor, view, x
from tilewright.dtypes import bf16, f32, i32
from tilewright.interpret import ArgumentError, Limits, Schedule, Violation, interpret, replay, run
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import SwizzledShared

RNG = np.random.default_rng(7)


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    a = RNG.standard_normal((m, k)).astype(np.float16)
    b = RNG.standard_normal((k, n)).astype(np.float16)
    return a, b, np.full((m, n), np.nan, np.float16), a.astype(np.float32) @ b.astype(np.float32)


SHAPES = [(16, 16, 8), (8, 8, 8), (40, 24, 40), (48, 32, 64), (17, 8, 16), (1, 8, 8), (33, 40, 8)]


@pytest.mark.parametrize("programs", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_split_gemm(shape: tuple[int, int, int], programs: int) -> None:
    a, b, c, want = matrices(*shape)
    report = run(kernels.split_gemm(3, 16, 16, 8, 2, 8), [a, b, c], programs=programs)
    np.testing.assert_allclose(c, want, rtol=2e-3, atol=2e-3)
    assert report.programs <= programs
    assert (report.write_counts["C"] == 1).all()
    assert report.rewritten == ()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (17, 19, 23), (1, 1, 1), (15, 33, 7)])
def test_cp_async_gemm(shape: tuple[int, int, int], persistent: bool) -> None:
    a, b, c, want = matrices(*shape)
    run(kernels.cp_async_gemm(3, 16, 16, 8, 2, 4, persistent), [a, b, c])
    np.testing.assert_allclose(c, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_elementwise(n: int) -> None:
    a, b, out = RNG.standard_normal(n).astype(np.float32), RNG.standard_normal(n).astype(np.float32), np.zeros(n, "f4")
    run(kernels.fma(64), [a, b, out], schedule=Schedule(1, adversarial=True, tags=True))
    np.testing.assert_allclose(out, a * b + a, rtol=1e-6)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 64), (4, 37)])
def test_softmax(m: int, n: int) -> None:
    a, out = RNG.standard_normal((m, n)).astype(np.float32), np.zeros((m, n), np.float32)
    run(kernels.softmax(2, 64), [a, out], schedule=Schedule(tags=True, happens_before=True))
    e = np.exp(a - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_gemm_of_256_takes_less_than_a_second() -> None:
    a, b, c, want = matrices(256, 256, 256)
    start = time.process_time()
    run(kernels.split_gemm(3, 64, 64, 32, 4, 4), [a, b, c])
    assert time.process_time() - start < 1.0
    np.testing.assert_allclose(c, want, rtol=5e-3, atol=2e-2)


class Tensor:
    """What the interpreter needs of a tensor of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def numpy(self) -> np.ndarray:
        return self.array


def test_tensors_with_a_numpy_view_are_taken() -> None:
    a, b, c, want = matrices(16, 16, 16)
    interpret(kernels.cp_async_gemm(3, 16, 16, 8, 2), Tensor(a), Tensor(b), Tensor(c))
    np.testing.assert_allclose(c, want, rtol=2e-3, atol=2e-3)
    with pytest.raises(ArgumentError, match="argument 0 is a list"):
        interpret(kernels.fma(), [1.0])


GEMM = kernels.split_gemm(3, 16, 16, 8, 2, 4)


def half(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([half(16, 8), half(8, 16)], r"takes 3 arrays \(A, B, C\), got 2"),
        ([half(16, 8), half(16, 16), half(16, 16)], r"B has extent 16 along axis 0, expected 8 \(K, from axis 1 of A\)"),
        ([half(16, 8), half(8, 16), half(16)], r"C has shape \(16,\), expected 2 axes \[M, N\]"),
        ([half(16, 8).astype("f4"), half(8, 16), half(16, 16)], r"A has elements float32, expected float16 \(f16\)"),
        ([half(8, 16).T, half(8, 16), half(16, 16)], r"A has stride 1 along axis 0, expected 8 elements \(K\)"),
        ([half(16, 9), half(9, 16), half(16, 16)], r"assumes K % 8 == 0, which does not hold for K = 9"),
        ([half(0, 8), half(8, 16), half(0, 16)], r"size M is 0"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(arguments: list[np.ndarray], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run(GEMM, arguments)


def test_policy_statements_are_refused() -> None:
    tiles = ir.Tiles(("i",), (x("N"),), ir.RowMajor(), False, ())
    with pytest.raises(ValueError, match="expand the kernel first"):
        run(replace(kernels.fma(), body=(tiles,)), [np.zeros(4, "f4")] * 3)


def shifted(offset: int, other: float | None = None, at: str = "i * 8") -> ir.Kernel:
    """OUT[i] = X[i + offset], blocks of 8."""
    body = (
        kernels.programs("i", "cdiv(N, 8)", False,
            ir.Load("v", view("X", (f"{at} + {offset}",), (8,)), other, "direct"),
            ir.Store(view("OUT", (at,), (8,)), "v", "direct"),
        ),
    )  # fmt: skip
    params = (tensor("X", f32, "N"), tensor("OUT", f32, "N"))
    return kernels.kernel("shifted", "sm_80", 4, params, body, {"v": TileType(f32, (8,))})


def test_a_load_past_the_edge_needs_other() -> None:
    arrays = [np.ones(12, np.float32), np.zeros(12, np.float32)]
    with pytest.raises(Violation, match=r"reaches element \(12,\)") as caught:
        run(shifted(0), arrays)
    assert (caught.value.kind, caught.value.element, caught.value.program) == ("bounds", (12,), 1)
    run(shifted(4, other=9.0), arrays)
    assert arrays[1].tolist() == [1.0] * 8 + [9.0] * 4


def test_a_negative_coordinate_is_out_of_bounds() -> None:
    with pytest.raises(Violation, match="before its first element"):
        run(shifted(-1, other=0.0), [np.ones(16, np.float32), np.zeros(16, np.float32)])


def test_scalars_are_32_bit() -> None:
    kernel = shifted(0, other=0.0, at="i * 8 + 2147483647 * N - 2147483647 * N")
    arrays = [np.ones(8, np.float32), np.zeros(8, np.float32)]
    with pytest.raises(Violation, match="does not fit a 32-bit integer") as caught:
        run(kernel, arrays)
    assert caught.value.kind == "overflow"
    assert caught.value.program == 0
    run(kernel, arrays, limits=Limits(check_overflow=False))
    assert arrays[1].tolist() == [1.0] * 8


def test_elements_written_twice_or_never_are_reported() -> None:
    twice = shifted(0, other=0.0, at="(i - i % 2) * 8")
    violation = replay(twice, {"N": 24})
    assert violation is not None
    assert (violation.kind, violation.element) == ("rewritten", (0,))
    assert "program 0 and again by program 1" in violation.message
    report = run(twice, [np.ones(24, np.float32), np.zeros(24, np.float32)])
    assert report.write_counts["OUT"].tolist() == [2] * 8 + [0] * 8 + [1] * 8
    gap = replay(shifted(0, other=0.0, at="i * 16"), {"N": 24})
    assert gap is not None
    assert gap.kind == "uncovered"
    assert gap.element == (8,)


def test_a_wrong_value_is_reported_against_the_expected_one() -> None:
    violation = replay(
        kernels.kernel(
            "copy", "sm_80", 4, (tensor("X", i32, "N"), tensor("OUT", i32, "N")),
            (kernels.programs("i", "cdiv(N, 8)", False,
                ir.Load("v", view("X", ("i * 8",), (8,)), 0, "direct"),
                ir.Compute("w", "add", (ir.TileRef("v"), x("i"))),
                ir.Store(view("OUT", ("i * 8",), (8,)), "w", "direct")),),
            {"v": TileType(i32, (8,)), "w": TileType(i32, (8,))},
        ),
        {"N": 16},
        expected=lambda arguments: [arguments[0]],
    )  # fmt: skip
    assert violation is not None
    assert violation.kind == "mismatch"
    assert violation.element == (8,)


@pytest.mark.parametrize("stored", [np.uint16, np.float32])
def test_bf16_arguments(stored: type) -> None:
    values = np.array([1.0, 1.5, -2.0, 3.0], np.float32)
    body = (
        ir.Load("v", view("X", ("0",), (4,)), None, "direct"),
        ir.Compute("w", "mul", (ir.TileRef("v"), 1 + 2**-7)),
        ir.Store(view("OUT", ("0",), (4,)), "w", "direct"),
    )
    params = (tensor("X", bf16, "N"), tensor("OUT", bf16, "N"))
    kernel = kernels.kernel("scale", "sm_80", 4, params, body, {n: TileType(bf16, (4,)) for n in ("v", "w")})
    source = (values.view(np.uint32) >> 16).astype(np.uint16) if stored is np.uint16 else values
    out = np.zeros(4, stored)
    run(kernel, [source, out])
    got = (out.astype(np.uint32) << 16).view(np.float32) if stored is np.uint16 else out
    # 1.5 and 3.0 times 1 + 2^-7 lie halfway between two bf16 numbers and go to the even one.
    assert got.tolist() == [1.0078125, 1.515625, -2.015625, 3.03125]


def test_shared_memory_starts_undefined() -> None:
    body = (
        ir.AllocShared("s"),
        ir.SharedLoad("v", kernels.buf("s")),
        ir.Store(view("OUT", ("0",), (8,)), "v", "direct"),
    )
    types = {"s": SharedType(f32, (8,), 1, False, SwizzledShared(1, 1, 1)), "v": TileType(f32, (8,))}
    kernel = kernels.kernel("undefined", "sm_80", 4, (tensor("OUT", f32, "N"),), body, types)
    with pytest.raises(Violation, match="never written") as caught:
        run(kernel, [np.zeros(8, np.float32)])
    assert (caught.value.kind, caught.value.element) == ("uninitialized", (0,))
