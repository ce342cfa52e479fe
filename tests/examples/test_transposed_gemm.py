"""Products of transposed operands: proved, NumPy's numbers whatever the order of events, and views instead of moves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand, expand_policies
from tilewright.frontend import parse_module
from tilewright.interpret import Schedule, run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source
from tilewright.source import SourceText
from tilewright_analysis import check_unit

UNITS = {u.name: u for u in read((Path(__file__).parents[2] / "examples" / "transposed_gemm.py").read_bytes()).units}
SMALL = {
    "gemm_nt": {"BM": 128, "BN": 64, "BK": 32, "STAGES": 2, "GROUP": 2},
    "gemm_tn": {"BM": 128, "BN": 64, "BK": 32, "STAGES": 2, "GROUP": 2},
    "gemm_tt_sm80": {"BM": 64, "BN": 32, "BK": 32, "STAGES": 3},
}
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def kernel_of(name: str, target: str = "", **consts: int) -> ir.Kernel:
    kernel = UNITS[name].with_consts(target or None, **consts).kernel
    assert kernel is not None, UNITS[name].problems
    return kernel


def without_notes(text: str) -> str:
    return re.sub(r" *#.*", "", text)


def product(kernel: ir.Kernel, shape: tuple[int, int, int], schedule: Schedule) -> float:
    """The largest difference from NumPy's product."""
    m, n, k = shape
    rng = np.random.default_rng(m + k)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    left, right = (kernel.name.split("_")[1][i] == "t" for i in (0, 1))
    args = [np.ascontiguousarray(a.T) if left else a, np.ascontiguousarray(b.T) if right else b, c]
    run(expand(kernel), args, schedule=schedule)
    return float(np.abs(c - a.astype(np.float32) @ b.astype(np.float32)).max())


@pytest.mark.parametrize("name", UNITS)
def test_proved(name: str) -> None:
    report = check_unit(UNITS[name])
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("shape", [(256, 128, 128), (8, 8, 8), (264, 72, 136)], ids=["even", "one tile", "odd"])
@pytest.mark.parametrize("name", UNITS)
def test_the_numbers_are_those_of_numpy(name: str, shape: tuple[int, int, int]) -> None:
    kernel = kernel_of(name, **SMALL[name])
    assert product(kernel, shape, Schedule(tags=True)) < 0.05
    assert product(kernel, shape, Schedule(happens_before=True)) < 0.05
    assert product(kernel, shape, Schedule(7, adversarial=True)) < 0.05


@pytest.mark.parametrize("target", ["gfx942", "sm_100a"])
def test_other_targets_give_the_same_numbers(target: str) -> None:
    name = "gemm_nt" if target == "sm_100a" else "gemm_tt_sm80"
    assert product(kernel_of(name, target, **SMALL[name]), (136, 72, 72), Schedule(tags=True)) < 0.05


@pytest.mark.parametrize("name", UNITS)
def test_the_stage_is_read_transposed_and_nothing_moves(name: str) -> None:
    explicit = expand_policies(kernel_of(name))
    assert not [s for s in ir.walk(explicit.body) if isinstance(s, ir.Compute) and s.op == "transpose"]
    refs = [v for s in ir.walk(explicit.body) for v in ir.operands(s) if isinstance(v, ir.BufRef) and v.transposed]
    assert {r.buffer for r in refs} == {
        "gemm_nt": {"b_ring"}, "gemm_tn": {"a_ring"}, "gemm_tt_sm80": {"a_ring", "b_ring"}
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_what_is_printed_reads_back_equal(name: str) -> None:
    explicit = expand_policies(kernel_of(name))
    text = module_source(explicit)
    again = parse_module(SourceText.of(text, "printed.py"))
    assert not again.problems, again.problems
    kernel = again.units[0].kernel
    assert kernel is not None
    assert without_notes(module_source(kernel)) == without_notes(text)


@needs_triton
def test_wgmma_reads_both_orders() -> None:
    for name, majors in (("gemm_nt", "0, 0"), ("gemm_tn", "1, 1")):
        ptx = compile_lowered(lower(expand(kernel_of(name)))).ptx
        issued = re.findall(r"wgmma\.mma_async.*, 1, 1, (\d, \d);", ptx)
        assert issued and set(issued) == {majors}, name


@needs_triton
@pytest.mark.parametrize(
    ("target", "opcode"),
    [("sm_80", r"ldmatrix.*\.trans"), ("sm_89", "mma.sync"), ("gfx942", "v_mfma"), ("gfx950", "ds_read_b64_tr_b16")],
)
def test_registers_are_loaded_from_the_transposed_view(target: str, opcode: str) -> None:
    compiled = compile_lowered(lower(expand(kernel_of("gemm_tt_sm80", target))))
    assert re.search(opcode, compiled.amdgcn or compiled.ptx)


@needs_triton
def test_tcgen05_reads_both_orders() -> None:
    for name in ("gemm_nt", "gemm_tn"):
        assert "tcgen05.mma" in compile_lowered(lower(expand(kernel_of(name, "sm_100a")))).ptx
