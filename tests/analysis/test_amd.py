"""Kernels for AMD under the verifier: what the expansion into registers gives is proved, faults in it are refuted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.expand import expand, expand_policies
from tilewright.frontend import KernelUnit, parse_module
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.source import SourceText
from tilewright_analysis import check_kernel, check_unit
from tilewright_analysis.perf import hints, hover_markdown

EXAMPLES = Path(__file__).parents[2] / "examples"
AMD = ("gfx942", "gfx950")
NAMES = [("gemm.py", "gemm_sm80"), ("softmax.py", "softmax"), ("elementwise.py", "multiply_add")]


def example(file: str, name: str, target: str) -> KernelUnit:
    path = EXAMPLES / file
    unit = parse_module(SourceText(path.read_bytes(), str(path))).unit(name)
    assert unit is not None
    return unit.with_consts(target)


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize(("file", "name"), NAMES)
def test_examples_are_proved(file: str, name: str, target: str) -> None:
    report = check_unit(example(file, name, target))
    assert report.verdict == "proved", [f.message for f in report.findings]
    assert {"TW602", "TW603"} <= {o.code for o in report.obligations}


def explicit_gemm() -> ir.Kernel:
    """Persistent, so that the stages are filled again for the next tile."""
    path = EXAMPLES / "gemm.py"
    text = path.read_text(encoding="utf-8").replace("tw.cdiv(N, BN)):\n", "tw.cdiv(N, BN), persistent=True):\n")
    unit = parse_module(SourceText.of(text)).unit("gemm_sm80")
    assert unit is not None
    kernel = unit.with_consts("gfx942", BM=16, BN=16, BK=16).kernel
    assert kernel is not None
    return expand(kernel)


def test_without_its_syncs_the_back_end_puts_some() -> None:
    explicit = explicit_gemm()
    assert check_kernel(explicit).verdict == "proved"
    bare = explicit.with_body(ir.rewrite(explicit.body, lambda s: () if isinstance(s, ir.Sync) else None))
    assert any(isinstance(s, ir.Sync) and s.auto for s in ir.walk(expand(bare).body))
    assert check_kernel(bare).verdict == "proved"


def other_stage(stmt: ir.Stmt) -> ir.Block | None:
    """Read the stage that the next iteration fills."""
    if isinstance(stmt, ir.SharedLoad) and stmt.src.buffer == "a_ring":
        return (replace(stmt, src=replace(stmt.src, stage=ex.mod(ex.add(stmt.src.stage, Int(1)), Int(2)))),)
    return None


def at_k(view: ir.View, value: ir.Expr) -> ir.View:
    return replace(view, origin=tuple(ex.substitute(o, {"k": value}) for o in view.origin))


def too_far_ahead(stmt: ir.Stmt) -> ir.Block | None:
    """Load two iterations ahead what is stored for the next one."""
    if isinstance(stmt, ir.Load) and any("k" in ex.names(e) for e in stmt.view.origin):
        return (replace(stmt, view=at_k(stmt.view, ex.add(Var("k"), Int(16)))),)
    return None


def late_fetch(stmt: ir.Stmt) -> ir.Block | None:
    """Multiply what belongs to another iteration: only B is a tile late."""
    if isinstance(stmt, ir.Load) and stmt.view.tensor == "B" and any("k" in ex.names(e) for e in stmt.view.origin):
        return (replace(stmt, view=at_k(stmt.view, ex.sub(Var("k"), Int(16)))),)
    return None


@pytest.mark.parametrize(
    ("change", "code"),
    [(other_stage, "TW203"), (too_far_ahead, "TW102"), (late_fetch, "TW101")],
    ids=["other stage", "too far ahead", "late"],
)
def test_faults_in_the_expansion_are_refuted(change: Callable[[ir.Stmt], ir.Block | None], code: str) -> None:
    explicit = explicit_gemm()
    faulty = explicit.with_body(ir.rewrite(explicit.body, change))
    assert faulty.body != explicit.body
    refuted = {f.code for f in check_kernel(faulty).findings if f.verdict == "refuted"}
    assert code in refuted, refuted


@pytest.mark.parametrize("where", ["before the loop", "in it"])
def test_lanes_past_the_edge_that_are_not_zero_are_noticed(where: str) -> None:
    """What is loaded ahead goes around the loop; its edges are followed all the same."""
    explicit = explicit_gemm()

    def ones(stmt: ir.Stmt) -> ir.Block | None:
        inside = isinstance(stmt, ir.Load) and any("k" in ex.names(e) for e in stmt.view.origin)
        if isinstance(stmt, ir.Load) and inside == (where == "in it"):
            return (replace(stmt, other=1.0),)
        return None

    report = check_kernel(explicit.with_body(ir.rewrite(explicit.body, ones)))
    assert report.verdict != "proved" and "TW104" in {f.code for f in report.findings}


@pytest.mark.parametrize("target", AMD)
def test_too_much_shared_memory_is_refuted_where_it_is_too_much(target: str) -> None:
    unit = example("gemm.py", "gemm_sm80", target).with_consts(target, BM=256, BN=256, BK=64)
    codes = {f.code for f in check_unit(unit).findings if f.verdict == "refuted"}
    assert codes == ({"TW601"} if target == "gfx942" else set())


def test_shapes_that_mfma_does_not_take_are_refuted() -> None:
    unit = example("gemm.py", "gemm_sm80", "gfx950").with_consts("gfx950", BM=64, BN=64, BK=8)
    (finding,) = (f for f in check_unit(unit).findings if f.verdict == "refuted")
    assert finding.code == "TW503" and "multiple of 16; here K = 8" in finding.message


def test_instructions_of_nvidia_are_refuted_one_by_one() -> None:
    path = EXAMPLES / "gemm.py"
    unit = parse_module(SourceText(path.read_bytes(), str(path))).unit("gemm_sm80")
    assert unit is not None and unit.kernel is not None
    report = check_kernel(replace(expand_policies(unit.kernel), target="gfx942"))
    assert {f.code for f in report.findings if f.verdict == "refuted"} == {"TW503", "TW009"}  # mma, cp.async
    assert "gfx942 has no cp.async; targets that do: sm_80," in "".join(f.message for f in report.findings)
    instructions = parse_module(SourceText.of((EXAMPLES / "gemm_instructions.py").read_text(encoding="utf-8")))
    (explicit,) = instructions.units
    found = {f.code: f.message for f in check_unit(explicit.with_consts("gfx942")).findings if f.verdict == "refuted"}
    assert {"TW009", "TW502", "TW503", "TW601", "TW603"} <= found.keys()
    assert "has no mbarriers" in found["TW009"] and "tw.store_shared" in found["TW502"]
    on_hopper = replace(expand(blackwell()), target="sm_90a")
    assert any("no tensor memory" in f.message for f in check_kernel(on_hopper).findings)


def blackwell() -> ir.Kernel:
    kernel = example("gemm.py", "gemm", "sm_100a").kernel
    assert kernel is not None
    return kernel


def test_there_are_no_figures_of_another_vendors_gpu() -> None:
    kernel = example("gemm.py", "gemm_sm80", "gfx942").kernel
    assert kernel is not None
    assert hints(kernel) == () and hover_markdown(kernel) == ""
