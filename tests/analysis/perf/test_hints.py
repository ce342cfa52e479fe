"""Hints and the hover: twins of kernels that deserve a hint and that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.kernels import cp_async_gemm, fma, softmax, split_gemm, x
from tilewright.dtypes import f16
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import SwizzledShared
from tilewright_analysis.perf import Compiled, Timing, hints, hover_markdown

BIG = {"M": 4096, "N": 4096, "K": 4096}


def codes(kernel: ir.Kernel, **sizes: int) -> set[str]:
    return {f.code for f in hints(kernel, sizes or None)}


def with_layout(kernel: ir.Kernel, **layouts: SwizzledShared) -> ir.Kernel:
    types = dict(kernel.types)
    for name, layout in layouts.items():
        old = types[name]
        assert isinstance(old, SharedType)
        types[name] = replace(old, layout=layout)
    return replace(kernel, types=types)


def assuming(kernel: ir.Kernel, condition: str) -> ir.Kernel:
    return replace(kernel, assumptions=(*kernel.assumptions, ir.Assumption(x(condition))))


def test_unswizzled_rings_conflict_and_swizzled_ones_do_not() -> None:
    good = SwizzledShared(8, 2, 4)
    bad = with_layout(cp_async_gemm(), a_ring=SwizzledShared(1, 1, 1))
    assert "TW701" in codes(bad, **BIG)
    (first, *_) = [f for f in hints(bad, BIG) if f.code == "TW701"]
    assert "a_ring" in first.message
    fine = with_layout(cp_async_gemm(), a_ring=good, b_ring=SwizzledShared(8, 1, 8))
    assert "TW701" not in codes(fine, **BIG)


def in_half(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel on f16 tensors and tiles."""
    params = tuple(replace(p, type=replace(p.type, dtype=f16)) for p in kernel.params)
    types = {n: replace(t, dtype=f16) if isinstance(t, TileType) else t for n, t in kernel.types.items()}
    return replace(kernel, params=params, types=types)


def test_rows_of_unknown_length_are_moved_in_small_pieces() -> None:
    rows = in_half(softmax())
    assert "TW702" in codes(rows, M=4096, N=1000)
    message = next(f.message for f in hints(rows, {"M": 4096, "N": 1000}) if f.code == "TW702")
    assert "64 bytes of a line of 128" in message and "tw.assume(N % 8 == 0)" in message
    assert "TW702" not in codes(assuming(rows, "N % 8 == 0"), M=4096, N=1000)
    assert "TW702" not in codes(softmax(), M=4096, N=1000), "4 bytes a thread reach full bandwidth"


def test_blocks_that_fill_little_of_a_multiprocessor_are_named() -> None:
    assert "TW703" in codes(assuming(fma(block=32768, warps=4), "N % 4 == 0"), N=1 << 25)
    assert "TW703" not in codes(assuming(fma(), "N % 4 == 0"), N=1 << 25)


def test_a_nearly_empty_last_wave_is_named() -> None:
    assert "TW704" in codes(split_gemm(), M=128 * 133, N=256, K=4096)
    assert "TW704" not in codes(split_gemm(), M=128 * 132, N=256, K=4096)


@pytest.mark.parametrize(("stages", "hinted"), [(1, True), (3, False)])
def test_a_loop_that_waits_for_its_own_loads_is_named(stages: int, hinted: bool) -> None:
    assert ("TW705" in codes(split_gemm(stages=stages), **BIG)) is hinted


def test_a_good_gemm_gets_no_hint() -> None:
    assert hints(split_gemm(), BIG) == ()


def test_hints_are_hints() -> None:
    found = hints(in_half(softmax()), {"M": 4096, "N": 1000})
    assert found
    assert {f.severity for f in found} == {"hint"}
    assert all(f.kernel == "softmax" for f in found)


def test_the_hover_shows_the_numbers_that_matter() -> None:
    text = hover_markdown(split_gemm(), BIG)
    for words in ("predicted", "TFLOP/s", "tensor cores", "512 tiles", "shared memory", "3 stages", "H200"):
        assert words in text
    assert "measured" not in text


def test_the_hover_shows_what_the_compiler_and_the_clock_said() -> None:
    compiled = Compiled(registers=168, spills=64, shared=213_000, target="sm_90a")
    timing = Timing("NVIDIA H200", {"M": 4096}, 0.2, 0.21)
    text = hover_markdown(split_gemm(), BIG, compiled, timing)
    assert "168 registers a thread, 64 bytes spilled" in text
    assert "last measured on NVIDIA H200 at M = 4096: 0.2 ms, reference 0.21 ms (1.05×)" in text


def test_the_hover_finds_sizes_by_itself() -> None:
    assert "N = " in hover_markdown(fma())


def test_a_kernel_without_large_sizes_has_no_hover() -> None:
    assert hover_markdown(assuming(fma(), "N < 0")) == ""


def test_the_hover_lists_conversions_with_what_they_take() -> None:
    stored = hover_markdown(assuming(assuming(cp_async_gemm(), "K % 8 == 0"), "N % 8 == 0"), BIG)
    assert "bytes written to shared memory and read back; a coalesced store needs rows, not matrix fragments" in stored
    assert "'%" not in stored
    assert "conversion" not in hover_markdown(fma())
