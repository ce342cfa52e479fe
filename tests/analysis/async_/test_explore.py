"""Correct kernels are proved for all sizes; each seeded fault is refuted with a counterexample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from analysis import kernels
from analysis.async_ import faults, variants
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import explore, replay_request

CORRECT: dict[str, Callable[[], ir.Kernel]] = {
    "split": kernels.split_gemm,
    "split, 2 stages": lambda: kernels.split_gemm(stages=2),
    "split, 4 stages": lambda: kernels.split_gemm(stages=4),
    "split, one warpgroup": lambda: kernels.split_gemm(bm=64, warps=4),
    "split, not persistent": lambda: kernels.split_gemm(persistent=False),
    "cp.async": kernels.cp_async_gemm,
    "cp.async, 4 stages": lambda: kernels.cp_async_gemm(stages=4),
    "cp.async, two warpgroups": lambda: kernels.cp_async_gemm(warps=8),
    "cp.async, persistent": lambda: kernels.cp_async_gemm(persistent=True),
    "elementwise": kernels.fma,
    "softmax": kernels.softmax,
    "attention": kernels.attention,
    "attention, two warpgroups": lambda: kernels.attention(bm=128, warps=8),
    "two passes over one size": kernels.two_passes,
    "stage and phase instead of a counter": variants.stage_and_phase,
    "one role counts steps": variants.counted_steps,
    "each product waited for": variants.drained,
    "rows in a loop": variants.rows_in_a_loop,
    "whole steps by assumption": variants.floor_of_whole_steps,
    "K at least 1 as all sizes are": variants.unguarded_release_of_work,
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_is_proved(name: str) -> None:
    result = explore(CORRECT[name]())
    assert result.outcomes
    open_ = [(o.code, o.what, o.message or o.missing) for o in result.outcomes if o.verdict != "proved"]
    assert not open_


@pytest.mark.parametrize(("fault", "codes"), faults.FAULTS, ids=lambda f: getattr(f, "__name__", ""))
def test_a_seeded_fault_is_refuted(fault: Callable[[], ir.Kernel], codes: frozenset[str]) -> None:
    kernel = fault()
    result = explore(kernel)
    hits = [o for o in result.refuted if o.code in codes]
    assert hits, [(o.code, o.verdict, o.message) for o in result.outcomes]
    for outcome in result.refuted:
        found = outcome.counterexample
        assert found is not None
        assert set(found.sizes) == set(kernel.sizes)
        assert all(ex.evaluate(a.expr, found.sizes) for a in kernel.assumptions)
        assert outcome.message and outcome.span.end > 0
        assert len(found.trace) <= 12
        request = replay_request(outcome)
        assert request is not None and request.span == outcome.span


@pytest.mark.parametrize(("fault", "codes"), faults.FAULTS, ids=lambda f: getattr(f, "__name__", ""))
def test_the_order_of_roles_does_not_matter(fault: Callable[[], ir.Kernel], codes: frozenset[str]) -> None:
    kernel = fault()
    there, back = explore(kernel), explore(variants.reversed_roles(kernel))
    assert bool(there.refuted) == bool(back.refuted)
    assert {o.code for o in back.refuted} & codes


def test_what_depends_on_a_violation_is_not_called_proved() -> None:
    result = explore(faults.looser_wgmma_wait())
    assert {o.verdict for o in result.of("TW101")} == {"unknown"}
    assert {o.verdict for o in result.of("TW403")} == {"proved"}


def test_a_missing_fence_leaves_the_rest_decided() -> None:
    result = explore(faults.dropped_fence())
    assert {o.code for o in result.refuted} == {"TW404"}
    assert [f.title for o in result.refuted for f in o.fixes] == ["insert tw.fence_async()"]


def test_the_byte_count_is_repaired() -> None:
    (outcome,) = explore(faults.fewer_bytes()).refuted
    (fix,) = outcome.fixes
    assert fix.edits[0].text == "tw.expect(full[it % 3], 49152)"


def test_what_the_engine_does_not_model_is_unknown_with_a_reason() -> None:
    kernel = faults.edit(kernels.split_gemm(), lambda s: (kernels.let("it", "it * 2 + M"),) if is_count(s) else None)
    result = explore(kernel)
    assert {o.verdict for o in result.outcomes} == {"unknown"}
    assert {o.missing for o in result.outcomes} == {"'it' changes and depends on sizes or the program number"}


def is_count(s: ir.Stmt) -> bool:
    return isinstance(s, ir.Assign) and s.dst == "it" and not isinstance(s.value, ex.Int)


def test_a_stage_that_is_no_function_of_the_ring_is_caught() -> None:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (kernels.let("it", "it * 2 + 1"),) if is_count(s) else None

    result = explore(faults.edit(kernels.split_gemm(), change))
    assert any(o.verdict != "proved" for o in result.outcomes)


def test_operands_of_one_size_on_both_axes_are_told_apart_by_position() -> None:
    def square(k: ir.Kernel) -> ir.Kernel:
        to = {"M": ex.Size("N"), "K": ex.Size("N")}
        params = tuple(
            replace(p, type=replace(p.type, shape=tuple(ex.substitute(e, to) for e in p.type.shape))) for p in k.params
        )
        return replace(substituted(k, to), params=params, sizes=("N",))

    assert all(o.verdict == "proved" for o in explore(square(kernels.split_gemm())).outcomes)
    assert "TW103" in {o.code for o in explore(square(faults.swapped_origin())).refuted}


def substituted(k: ir.Kernel, to: dict[str, ex.Expr]) -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        match s:
            case ir.Assign():
                return (replace(s, value=ex.substitute(s.value, to)),)
            case ir.For():
                return (replace(s, hi=ex.substitute(s.hi, to)),)
            case ir.Programs():
                return (replace(s, count=ex.substitute(s.count, to)),)
            case ir.If():
                return (replace(s, cond=ex.substitute(s.cond, to)),)
            case _:
                return None

    assumptions = tuple(replace(a, expr=ex.substitute(a.expr, to)) for a in k.assumptions)
    return replace(faults.edit(k, change), assumptions=assumptions)


def test_a_cancelled_search_answers_unknown() -> None:
    result = explore(kernels.split_gemm(), cancelled=lambda: True)
    assert {o.verdict for o in result.outcomes} == {"unknown"}
    assert {o.missing for o in result.outcomes} == {"cancelled"}
