"""Products of 8-bit operands with scales: proved, NumPy's numbers at even and odd sizes, compiled for each target."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading import read
from tilewright.dtypes import bf16, f8e4m3
from tilewright.expand import expand
from tilewright.interpret import Schedule, run
from tilewright.interpret.numeric import from_bits, to_bits
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright_analysis import check_unit

FOLDER = Path(__file__).parents[2] / "examples"
UNITS = {
    u.name: u for file in ("fp8_gemm.py", "int8_gemm.py") for u in read((FOLDER / file).read_bytes()).units
}  # fmt: skip
SMALL = {
    "fp8_gemm": {"BM": 128, "BN": 64, "BK": 64, "STAGES": 2, "GROUP": 2},
    "fp8_gemm_blocks": {"BM": 128, "STAGES": 2, "GROUP": 2},
    "fp8_gemm_sm89": {"BM": 64, "BN": 64, "BK": 64, "STAGES": 2},
    "int8_gemm": {"BM": 128, "BN": 64, "BK": 64, "STAGES": 2, "GROUP": 2},
    "int8_gemm_sm80": {"BM": 64, "BN": 64, "BK": 64, "STAGES": 2},
}
COMPILED = [
    ("fp8_gemm", "sm_90a", r"wgmma.*\.f32\.e4m3\.e4m3"),
    ("fp8_gemm_blocks", "sm_90a", r"wgmma.*\.f32\.e4m3\.e4m3"),
    ("fp8_gemm_sm89", "sm_89", r"mma\.sync.*\.e4m3\.e4m3"),
    ("fp8_gemm_sm89", "gfx950", "v_mfma_f32_32x32x16_fp8_fp8"),
    ("int8_gemm", "sm_90a", r"wgmma.*\.s32\.s8\.s8"),
    ("int8_gemm_sm80", "sm_80", r"mma\.sync.*\.s32\.s8\.s8"),
    ("int8_gemm_sm80", "gfx942", "v_mfma_i32_32x32x16_i8"),
    ("int8_gemm_sm80", "gfx950", "v_mfma_i32_32x32x32_i8"),
]
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def kernel_of(name: str, target: str = "", **consts: int) -> ir.Kernel:
    kernel = UNITS[name].with_consts(target or None, **consts).kernel
    assert kernel is not None, UNITS[name].problems
    return kernel


def arguments(name: str, shape: tuple[int, int, int]) -> tuple[list[Any], Any]:
    """Arguments of a kernel, and its result in float64."""
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    if name.startswith("int8"):
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (n, k)))
        left, right = a.astype(np.float64), b.astype(np.float64)
        out: Any = np.full((m, n), np.nan, np.float16)
        size = 1e-3
    else:
        a, b = (to_bits(rng.standard_normal(s), f8e4m3) for s in ((m, k), (n, k)))
        left, right = (from_bits(x, f8e4m3).astype(np.float64) for x in (a, b))
        out = np.full((m, n), np.nan, np.float32)
        size = 1.0
    if name == "fp8_gemm_blocks":
        blocks, columns = -(-k // 128), -(-n // 128)
        sa, sb = rng.uniform(0.5, 2, (blocks, m)), rng.uniform(0.5, 2, (columns, blocks))
        rows = np.repeat(sa.T, 128, axis=1)[:, :k]
        both = np.repeat(np.repeat(sb, 128, axis=0), 128, axis=1)[:n, :k]
        want = (left * rows) @ (right * both).T
    else:
        sa, sb = rng.uniform(0.5, 2, m) * size, rng.uniform(0.5, 2, n)
        want = left @ right.T * sa[:, None] * sb[None, :]
    return [a, sa.astype(np.float32), b, sb.astype(np.float32), out], want


def error(name: str, shape: tuple[int, int, int], schedule: Schedule, kernel: ir.Kernel | None = None) -> float:
    """The largest difference from the result in float64, as a share of the largest element."""
    args, want = arguments(name, shape)
    run(expand(kernel or kernel_of(name, **SMALL[name])), args, schedule=schedule)
    return float(np.abs(args[-1].astype(np.float64) - want).max() / np.abs(want).max())


@pytest.mark.parametrize("name", UNITS)
def test_proved(name: str) -> None:
    report = check_unit(UNITS[name])
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("shape", [(128, 128, 256), (7, 8, 16), (130, 72, 400)], ids=["even", "one tile", "odd"])
@pytest.mark.parametrize("name", UNITS)
def test_the_numbers_are_those_of_float64(name: str, shape: tuple[int, int, int]) -> None:
    # Half a unit in the last place of the result: 2^-9 for bf16, 2^-12 for f16, and sums in f32.
    tolerance = 2.0**-11 if name.startswith("int8") else 2.0**-8
    assert error(name, shape, Schedule(tags=True)) < tolerance
    assert error(name, shape, Schedule(5, adversarial=True)) < tolerance


def test_the_results_are_bf16() -> None:
    args, _ = arguments("fp8_gemm_sm89", (8, 8, 64))
    run(expand(kernel_of("fp8_gemm_sm89", **SMALL["fp8_gemm_sm89"])), args)
    assert (args[-1] == from_bits(to_bits(args[-1], bf16), bf16)).all()


@pytest.mark.parametrize(("name", "target"), [("fp8_gemm_sm89", "gfx950"), ("int8_gemm_sm80", "gfx942")])
def test_other_targets_give_the_same_numbers(name: str, target: str) -> None:
    kernel = kernel_of(name, target, **SMALL[name])
    assert error(name, (70, 72, 80), Schedule(tags=True), kernel) < 2.0**-8


@needs_triton
@pytest.mark.parametrize(("name", "target", "opcode"), COMPILED, ids=[f"{n}-{t}" for n, t, _ in COMPILED])
def test_it_compiles(name: str, target: str, opcode: str) -> None:
    compiled = compile_lowered(lower(expand(kernel_of(name, target))))
    assert re.search(opcode, compiled.amdgcn or compiled.ptx)
