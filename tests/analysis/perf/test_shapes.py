"""Sizes to run a kernel on: tiles divide some and not others, and assumptions hold for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernels import cp_async_gemm, fma, softmax, split_gemm, x
from tilewright.ir import nodes as ir
from tilewright_analysis.perf.shapes import (
    LARGE_BYTES,
    broken_assumption,
    large_shapes,
    roles,
    small_shapes,
    tensor_shapes,
    tile_extents,
)


def assuming(kernel: ir.Kernel, *conditions: str) -> ir.Kernel:
    from dataclasses import replace

    extra = tuple(ir.Assumption(x(c)) for c in conditions)
    return replace(kernel, assumptions=kernel.assumptions + extra)


@pytest.mark.parametrize("kernel", [split_gemm(), cp_async_gemm(), fma(), softmax()], ids=lambda k: k.name)
def test_shapes_satisfy_the_assumptions_and_have_remainders(kernel: ir.Kernel) -> None:
    tiles = tile_extents(kernel)
    for shapes in (small_shapes(kernel), large_shapes(kernel)):
        assert len(shapes) >= 2
        assert all(not broken_assumption(kernel, s) for s in shapes)
        even = shapes[0]
        assert all(even[n] % t == 0 for n, t in tiles.items())
        assert any(s[n] % t for s in shapes for n, t in tiles.items())


def test_the_loop_of_a_pipeline_runs_longer_than_its_ring() -> None:
    kernel = split_gemm(stages=4, bk=64)
    assert small_shapes(kernel)[0]["K"] > 4 * 64


def test_large_shapes_fill_memory_or_tensor_cores() -> None:
    assert large_shapes(split_gemm())[0] == {"M": 4096, "N": 4096, "K": 4096}
    sizes = large_shapes(fma())[0]
    assert LARGE_BYTES / 4 < 12 * sizes["N"] <= LARGE_BYTES
    assert large_shapes(softmax())[0]["N"] == 1024


def test_a_forbidden_remainder_is_left_out() -> None:
    kernel = assuming(fma(), "N % 1024 == 0")
    assert all(s["N"] % 1024 == 0 for s in (*small_shapes(kernel), *large_shapes(kernel)))
    assert small_shapes(kernel)


def test_sizes_that_depend_on_each_other_are_found() -> None:
    kernel = assuming(split_gemm(), "M == N", "K <= 128")
    for shape in (*small_shapes(kernel), *large_shapes(kernel)):
        assert shape["M"] == shape["N"] and shape["K"] <= 128


def test_impossible_assumptions_give_no_shapes() -> None:
    assert small_shapes(assuming(fma(), "N < 0")) == ()
    assert large_shapes(assuming(fma(), "N < 0")) == ()


@given(st.integers(1, 64), st.integers(0, 63))
def test_any_congruence_can_be_met(modulus: int, rest: int) -> None:
    kernel = assuming(fma(), f"N % {modulus} == {rest % modulus}")
    shapes = small_shapes(kernel)
    assert shapes
    assert all(not broken_assumption(kernel, s) for s in shapes)


def test_roles_of_arguments() -> None:
    assert roles(split_gemm()) == {"A": "in", "B": "in", "C": "out"}
    assert tensor_shapes(split_gemm(), {"M": 1, "N": 2, "K": 3}) == {"A": (1, 3), "B": (3, 2), "C": (1, 2)}
