"""`registers=` of a kernel: what the compilers are told, and what they make of it."""

from __future__ import annotations

import importlib.util

import pytest

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source
from tilewright_analysis import check_kernel

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
SCALE = """
@tw.kernel(target="{target}", warps=4, registers={registers})
def scale(X: Global[f32, N], Y: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, {block})):
        x = tw.load(X.tile((i * {block},), ({block},)), other=0.0)
        tw.store(Y.tile((i * {block},), ({block},)), tw.exp(x) + tw.exp2(x) * x)
"""
SPLIT = """
@tw.kernel(target="sm_90a", warps=4, registers=128)
def product(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, K, 64, stages=2, roles="split"):
            acc = tw.mma(tw.load(A.tile((pm * 64, k), (64, 64))), tw.load(B.tile((k, pn * 64), (64, 64))), acc)
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc)
"""


def kernel(registers: int, target: str = "sm_80", block: int = 8192) -> ir.Kernel:
    unit = read(HEADER + SCALE.format(registers=registers, target=target, block=block)).unit("scale")
    assert unit is not None and unit.kernel is not None, unit
    return unit.kernel


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_the_compiler_keeps_the_budget(target: str) -> None:
    free, tight = (compile_lowered(lower(expand(kernel(n, target)))) for n in (248, 40))
    assert free.registers > 40 >= tight.registers
    assert ".maxnreg 40" in tight.ptx


@needs_triton
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_amd_is_told_how_many_waves_are_to_fit(target: str) -> None:
    lowered = lower(expand(kernel(128, target)))
    assert lowered.launch.options == {"num_warps": 4, "waves_per_eu": 4}
    assert "waves_per_eu=4" in lowered.source
    assert compile_lowered(lowered).registers <= 128


def test_it_is_printed_and_checked() -> None:
    limited = kernel(64, block=1024)
    again = read(module_source(expand_policies(limited))).unit("scale")
    assert again is not None and again.kernel is not None and again.kernel.registers == 64
    assert check_kernel(limited).verdict == "proved"
    # 16384 elements of 4 bytes over 128 threads: 128 registers each.
    report = check_kernel(kernel(64, block=16384))
    assert any(f.code == "TW602" and "needs 128 registers" in f.message for f in report.findings)


@pytest.mark.parametrize("registers", [7, 20, 100, 256])
def test_odd_budgets_are_refused(registers: int) -> None:
    unit = read(HEADER + SCALE.format(registers=registers, target="sm_80", block=1024)).unit("scale")
    assert unit is not None
    assert [p.code for p in unit.problems] == ["TW602"], unit.problems


def test_roles_have_budgets_of_their_own() -> None:
    unit = read(HEADER + SPLIT).unit("product")
    assert unit is not None and unit.kernel is not None, unit
    with pytest.raises(ExpansionError, match="each role has a budget of its own"):
        expand(unit.kernel)
