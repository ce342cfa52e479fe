"""Kernels with tensor memory: the expansion is proved, and faults in it are refuted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.expand import expand
from tilewright.frontend import parse_module
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import add_backend_sync
from tilewright.ir.expr import Var
from tilewright.ir.types import TensorMemoryType
from tilewright.source import SourceText
from tilewright_analysis import check_kernel, check_unit
from tilewright_analysis.checks.asynchronous import CODES
from tilewright_analysis.perf import hints
from tilewright_analysis.report import KernelReport

GEMM = Path(__file__).parents[2] / "examples" / "gemm.py"
Edit = Callable[[ir.Stmt], "ir.Block | None"]


def kernel(**consts: int) -> ir.Kernel:
    unit = parse_module(SourceText(GEMM.read_bytes(), str(GEMM))).unit("gemm")
    assert unit is not None
    found = unit.with_consts("sm_100a", **consts).kernel
    assert found is not None
    return found


def refuted(report: KernelReport) -> set[str]:
    return {f.code for f in report.findings if f.verdict == "refuted"}


def drop(kind: type[ir.Stmt], barrier: str = "") -> Edit:
    def change(stmt: ir.Stmt) -> ir.Block | None:
        ref = getattr(stmt, "bar", None)
        return () if isinstance(stmt, kind) and (not barrier or ref.barrier == barrier) else None

    return change


def product(**fields: object) -> Edit:
    return lambda stmt: (replace(stmt, **fields),) if isinstance(stmt, ir.Tcgen05) else None


def other_slot(stmt: ir.Stmt) -> ir.Block | None:
    # The stage that is filled next is handed back instead of the one that was read.
    if not isinstance(stmt, ir.Tcgen05):
        return None
    slot = ex.mod(ex.add(stmt.bar.slot, ex.Int(1)), ex.Int(2))
    return (replace(stmt, bar=ir.BarRef("empty", slot)),)


def other_stage(stmt: ir.Stmt) -> ir.Block | None:
    if not isinstance(stmt, ir.TensorLoad):
        return None
    return (replace(stmt, src=ir.BufRef("acc_ring", ex.mod(ex.add(stmt.src.stage, ex.Int(1)), ex.Int(2)))),)


FAULTS: dict[str, tuple[Edit, set[str]]] = {
    "commit dropped": (drop(ir.Tcgen05Commit), {"TW403"}),
    "accumulator read early": (drop(ir.BarrierWait, "done"), {"TW401", "TW402"}),
    "accumulator overwritten early": (drop(ir.BarrierWait, "drained"), {"TW401"}),
    "accumulator never handed back": (drop(ir.BarrierArrive, "drained"), {"TW403"}),
    "stage read early": (drop(ir.BarrierWait, "full"), {"TW401", "TW402"}),
    "stage overwritten early": (drop(ir.BarrierWait, "empty"), {"TW401", "TW402"}),
    "starts from what is there": (product(accumulate=ex.Int(1)), {"TW203"}),
    "starts anew each time": (product(accumulate=ex.Int(0)), {"TW102"}),
    "wrong stage handed back": (other_slot, {"TW401", "TW402", "TW403"}),
    "wrong accumulator read": (other_stage, {"TW401", "TW203"}),
}


@pytest.mark.parametrize("sizes", [{}, {"BN": 128, "STAGES": 2}, {"BM": 64, "BN": 64, "BK": 16, "STAGES": 2}], ids=str)
def test_the_expansion_is_proved(sizes: dict[str, int]) -> None:
    report = check_kernel(kernel(**sizes))
    assert report.verdict == "proved", [f.message for f in report.findings]
    asynchronous = {o.code for o in report.obligations if o.code in CODES}
    assert {"TW101", "TW102", "TW103", "TW203", "TW204", "TW401", "TW402", "TW403", "TW405", "TW407"} <= asynchronous


@pytest.mark.parametrize("name", ["gemm_nt", "gemm_tn"])
def test_transposed_operands_are_proved(name: str) -> None:
    path = GEMM.with_name("transposed_gemm.py")
    unit = parse_module(SourceText(path.read_bytes(), str(path))).unit(name)
    assert unit is not None
    report = check_unit(unit.with_consts("sm_100a", STAGES=2))
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted_and_replays(name: str) -> None:
    change, codes = FAULTS[name]
    explicit = expand(kernel(BN=64, BK=16, STAGES=2))
    faulty = explicit.with_body(add_backend_sync(ir.rewrite(explicit.body, change)))
    report = check_kernel(faulty)
    assert refuted(report) & codes, [(f.code, f.verdict, f.message) for f in report.findings]
    found = [f for f in report.findings if f.verdict == "refuted" and f.code in codes]
    assert all(f.counterexample is not None and f.counterexample.replayed for f in found), [f.message for f in found]


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
