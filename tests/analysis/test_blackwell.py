"""Kernels with tensor memory: what the verifier decides, and what it says it cannot."""

from dataclasses import replace
from pathlib import Path

from tilewright.expand import expand
from tilewright.frontend import parse_module
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Var
from tilewright.ir.types import TensorMemoryType
from tilewright.source import SourceText
from tilewright_analysis import check_kernel
from tilewright_analysis.checks.asynchronous import CODES
from tilewright_analysis.perf import hints
from tilewright_analysis.report import KernelReport

GEMM = Path(__file__).parents[2] / "examples" / "gemm.py"
DECIDED = {"TW5", "TW6", "TW3"}


def kernel(**consts: int) -> ir.Kernel:
    unit = parse_module(SourceText(GEMM.read_bytes(), str(GEMM))).unit("gemm")
    assert unit is not None
    found = unit.with_consts("sm_100a", **consts).kernel
    assert found is not None
    return found


def refuted(report: KernelReport) -> set[str]:
    return {f.code for f in report.findings if f.verdict == "refuted"}


def test_nothing_about_tensor_memory_is_proved_that_the_engine_does_not_know() -> None:
    report = check_kernel(kernel())
    assert report.verdict == "unknown"
    asynchronous = [o for o in report.obligations if o.code in CODES]
    assert asynchronous and all(o.verdict == "unknown" for o in asynchronous)
    # What would have to be shown is all there, and the reason is said.
    assert {"TW101", "TW102", "TW103", "TW203", "TW401", "TW402", "TW403"} <= {o.code for o in asynchronous}
    assert any("acc_ring" in o.what for o in asynchronous)
    assert any("Tensor memory ('acc_ring') and its products are not modelled" in f.message for f in report.findings)
    families = {o.code[:3] for o in report.obligations if o.verdict == "proved"}
    assert families >= DECIDED


def test_a_fault_is_not_proved_either() -> None:
    explicit = expand(kernel(BN=64, BK=16, STAGES=2))
    faulty = explicit.with_body(
        ir.rewrite(explicit.body, lambda s: () if isinstance(s, ir.BarrierWait) and s.bar.barrier == "done" else None)
    )
    assert check_kernel(faulty).verdict != "proved"


def test_stages_and_columns_are_checked() -> None:
    explicit = expand(kernel())

    def wrong(stmt: ir.Stmt) -> ir.Block | None:
        return (replace(stmt, src=replace(stmt.src, stage=Var("n"))),) if isinstance(stmt, ir.TensorLoad) else None

    assert "TW201" in refuted(check_kernel(explicit.with_body(ir.rewrite(explicit.body, wrong))))
    memory = explicit.types["acc_ring"]
    assert isinstance(memory, TensorMemoryType)
    large = explicit.with_body(explicit.body, {**explicit.types, "acc_ring": replace(memory, stages=3)})
    assert "TW601" in refuted(check_kernel(large))


def test_a_role_that_is_no_warpgroup_cannot_read_tensor_memory() -> None:
    unit = parse_module(SourceText.of(GEMM.read_text(encoding="utf-8").replace("warps=8", "warps=2"))).unit("gemm")
    assert unit is not None
    small = unit.with_consts("sm_100a", BN=64).kernel
    assert small is not None
    report = check_kernel(small)
    assert "TW603" in refuted(report)
    assert any("whole warpgroups" in f.message for f in report.findings)


def test_there_are_no_figures_of_another_gpu() -> None:
    assert hints(kernel()) == ()
