"""Faults put into correct kernels show up as violations of the right kind; the kernels without them never raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis import kernels
from analysis.kernels import x
from tilewright.interpret import Limits, Schedule, Violation, replay
from tilewright.interpret.execution import compile_kernel
from tilewright.interpret.replaying import attempt
from tilewright.ir import nodes as ir

Change = Callable[[ir.Stmt], ir.Block | None]
SIZES = {"M": 40, "N": 24, "K": 40}


def split(**options: Any) -> ir.Kernel:
    return kernels.split_gemm(stages=3, bm=16, bn=16, bk=8, group=2, **options)


def single(**options: Any) -> ir.Kernel:
    return kernels.cp_async_gemm(stages=3, bm=16, bn=16, bk=8, group=2, **options)


def product(arguments: list[np.ndarray]) -> list[np.ndarray]:
    a, b, _ = (array.astype(np.float32) for array in arguments)
    return [a @ b]


def edit(kernel: ir.Kernel, change: Change) -> ir.Kernel:
    """The kernel with statements changed; at least one must change."""
    touched: list[ir.Stmt] = []

    def noted(stmt: ir.Stmt) -> ir.Block | None:
        new = change(stmt)
        if new is not None:
            touched.append(stmt)
        return new

    body = ir.rewrite(kernel.body, noted)
    assert touched, "the fault changes nothing"
    return kernel.with_body(body)


def dropped(test: Callable[[ir.Stmt], bool]) -> Change:
    return lambda stmt: () if test(stmt) else None


def waits_for(barrier: str) -> Callable[[ir.Stmt], bool]:
    return lambda s: isinstance(s, ir.BarrierWait) and s.bar.barrier == barrier


def early_release(stmt: ir.Stmt) -> ir.Block | None:
    """Release the stage of this iteration while the matrix instruction that reads it is in flight."""
    if isinstance(stmt, ir.If) and stmt.cond == x("0 < k"):
        return (ir.BarrierArrive(kernels.bar("empty", "it % 3"), span=stmt.span),)
    return () if isinstance(stmt, ir.If) and stmt.cond == x("0 < K") else None


def stage_off_by_one(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.Wgmma):
        return (replace(stmt, a=kernels.buf("a_ring", "(it + 1) % 3")),)
    return None


def swapped_origin(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.TmaLoad) and stmt.view.tensor == "A":
        return (replace(stmt, view=replace(stmt.view, origin=tuple(reversed(stmt.view.origin)))),)
    return None


def wrong_bytes(count: int) -> Change:
    return lambda s: (replace(s, bytes=x(count)),) if isinstance(s, ir.BarrierExpect) else None


def wrong_parity(stmt: ir.Stmt) -> ir.Block | None:
    return (replace(stmt, parity=x("it // 3 % 2 ^ 1")),) if waits_for("full")(stmt) else None


def repeated(test: Callable[[ir.Stmt], bool]) -> Change:
    return lambda s: (s, s) if test(s) else None


def other_chunk(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.TmaLoad):
        origin = tuple(x("0") if o == x("k") else o for o in stmt.view.origin)
        return (replace(stmt, view=replace(stmt.view, origin=origin)),)
    return None


def shorter_loop(stmt: ir.Stmt) -> ir.Block | None:
    return (replace(stmt, hi=x("K - 8")),) if isinstance(stmt, ir.For) else None


def wrong_width(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.Assign) and stmt.dst == "width":
        return (replace(stmt, value=x("2")),)
    return None


def shifted_store(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.TmaStore):
        return (replace(stmt, view=kernels.view("C", ("pm * 16", "pm * 16"), (16, 16))),)
    return None


def before_wait(stmt: ir.Stmt) -> ir.Block | None:
    return (ir.WgmmaWait(3),) if isinstance(stmt, ir.WgmmaWait) and stmt.pending == 1 else None


SPLIT_FAULTS: dict[str, tuple[Change, set[str]]] = {
    "stage off by one": (stage_off_by_one, {"uninitialized", "race"}),
    "no wait for full": (dropped(waits_for("full")), {"uninitialized", "race"}),
    "no wait for empty": (dropped(waits_for("empty")), {"race", "phase"}),
    "no fence": (dropped(lambda s: isinstance(s, ir.FenceAsync)), {"proxy"}),
    "swapped origin": (swapped_origin, {"alignment"}),
    "too few bytes": (wrong_bytes(256), {"bytes"}),
    "too many bytes": (wrong_bytes(1024), {"bytes"}),
    "early release": (early_release, {"race"}),
    "no store wait in the loop": (
        lambda s: () if isinstance(s, ir.TmaStoreWait) or (isinstance(s, ir.Sync) and s.auto) else None,
        {"race", "exit"},
    ),
    "no store wait at the end": (
        lambda s: (
            (replace(s, roles=(replace(s.roles[0], body=s.roles[0].body[:-2]), s.roles[1])),)
            if isinstance(s, ir.Roles)
            else None
        ),
        {"exit"},
    ),
    "no sync before the store": (
        lambda s: () if isinstance(s, ir.Sync) and "ordinary" in s.note else None,
        {"race"},
    ),
    "wrong parity": (wrong_parity, {"race", "uninitialized", "deadlock", "phase"}),
    "released twice": (repeated(lambda s: isinstance(s, ir.BarrierArrive)), {"phase", "arrivals"}),
    "never released": (dropped(lambda s: isinstance(s, ir.BarrierArrive)), {"deadlock"}),
    "always the first chunk": (other_chunk, {"completeness"}),
    "one chunk too few": (shorter_loop, {"completeness"}),
    "wrong group width": (wrong_width, {"rewritten", "uncovered"}),
    "stored elsewhere": (shifted_store, {"placement"}),
    "roles walk different grids": (
        lambda s: (
            (replace(s, count=x("cdiv(M, 16) * cdiv(N, 16) - 1")),)
            if isinstance(s, ir.Programs) and any(isinstance(t, ir.TmaLoad) for t in ir.walk(s.body))
            else None
        ),
        {"grid"},
    ),
    "accumulator read in flight": (dropped(lambda s: s == ir.WgmmaWait(0)), {"race"}),
    "stages released in flight": (before_wait, {"race"}),
}


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("fault", SPLIT_FAULTS)
def test_a_fault_in_the_split_gemm_is_seen(fault: str, warps: int) -> None:
    change, kinds = SPLIT_FAULTS[fault]
    violation = replay(edit(split(warps=warps), change), SIZES, expected=product)
    assert violation is not None, "no violation"
    assert violation.kind in kinds, str(violation)
    assert violation.message


def without(position: int, kind: type[ir.Stmt]) -> Change:
    """Drop the statement of this kind at `position` in source order; negative counts from the end."""
    seen: list[ir.Stmt] = [s for s in ir.walk(single().body) if isinstance(s, kind)]
    victim = seen[position].span
    return lambda s: () if isinstance(s, kind) and s.span == victim else None


SINGLE_FAULTS: dict[str, tuple[Change, set[str]]] = {
    "no wait": (without(0, ir.CpWait), {"race"}),
    "wait for too few": (lambda s: (ir.CpWait(2),) if s == ir.CpWait(1) else None, {"race"}),
    "no sync after the wait": (without(0, ir.Sync), {"race"}),
    "no sync at all": (dropped(lambda s: isinstance(s, ir.Sync)), {"race"}),
    "one commit less": (without(-1, ir.CpCommit), {"race"}),
    "no last wait": (
        lambda s: (replace(s, body=tuple(t for t in s.body if t != ir.CpWait(0))),)
        if isinstance(s, ir.Programs)
        else None,
        set(),
    ),
    "two stages ahead": (
        lambda s: (replace(s, dst=replace(s.dst, stage=x("(k // 8 + 3) % 3"))),)
        if isinstance(s, ir.CpAsync) and s.dst.stage == x("(k // 8 + 2) % 3")
        else None,
        {"race"},
    ),
    "other chunk of B": (
        lambda s: (replace(s, view=replace(s.view, origin=(x("k + 8"), s.view.origin[1]))),)
        if isinstance(s, ir.CpAsync) and s.view.origin[0] == x("k + 16")
        else None,
        {"alignment"},
    ),
    "columns of another tile": (
        lambda s: (replace(s, view=replace(s.view, origin=(s.view.origin[0], x("pm * 16")))),)
        if isinstance(s, ir.Store)
        else None,
        {"placement"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_a_fault_in_the_cp_async_gemm_is_seen(fault: str, warps: int) -> None:
    change, kinds = SINGLE_FAULTS[fault]
    violation = replay(edit(single(warps=warps), change), SIZES, expected=product)
    if not kinds:  # every copy of the loop is committed before the last groups, which are empty
        assert violation is None
        return
    assert violation is not None, "no violation"
    assert violation.kind in kinds, str(violation)


@pytest.mark.parametrize("fault", SPLIT_FAULTS)
def test_the_adversary_alone_finds_the_fault(fault: str) -> None:
    """Without the happens-before check: what it says must be confirmed by what really happens."""
    change, _ = SPLIT_FAULTS[fault]
    compiled = compile_kernel(edit(split(warps=8), change), Limits())
    seeds = (Schedule(seed, adversarial=True, tags=True) for seed in range(60))
    assert any(attempt(compiled, SIZES, s, expected=product) for s in seeds)


CLEAN: dict[str, ir.Kernel] = {
    "split": split(warps=4),
    "split, two warpgroups": split(warps=8),
    "split, two stages": kernels.split_gemm(2, 16, 16, 8, 2, 8),
    "split, not persistent": split(warps=8, persistent=False),
    "cp.async": single(),
    "cp.async, two warpgroups, persistent": single(warps=8, persistent=True),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_correct_kernel_never_raises(name: str) -> None:
    compiled = compile_kernel(CLEAN[name], Limits())
    schedules = [Schedule(happens_before=True, tags=True)]
    schedules += [Schedule(seed, adversarial=True, tags=True) for seed in range(100)]
    schedules += [Schedule(seed, adversarial=True, happens_before=True) for seed in range(10)]
    for schedule in schedules:
        violation = attempt(compiled, {"M": 40, "N": 24, "K": 40}, schedule, expected=product)
        assert violation is None, f"{schedule}: {violation}"


def test_a_violation_says_where_it_happened() -> None:
    violation = replay(edit(split(warps=4), swapped_origin), SIZES)
    assert isinstance(violation, Violation)
    assert violation.role == "compute"
    assert violation.program is not None
    assert violation.iteration.keys() == {"t", "k"}
    kernel = split(warps=4)
    spans = {s.span for s in ir.walk(kernel.body) if isinstance(s, ir.Wgmma)}
    assert violation.span in spans
    assert "compute" in str(violation) and "k = " in str(violation)


def test_a_deadlock_says_who_waits_for_what() -> None:
    change, _ = SPLIT_FAULTS["never released"]
    violation = replay(edit(split(warps=4), change), SIZES)
    assert violation is not None
    assert "load waits for" in violation.message and "empty[0]" in violation.message
    assert "0 of 1 arrivals" in violation.message


def test_the_wanted_kind_is_preferred() -> None:
    faulty = edit(edit(split(warps=4), early_release), dropped(lambda s: isinstance(s, ir.FenceAsync)))
    sizes = {"M": 16, "N": 32, "K": 40}
    first, wanted = replay(faulty, sizes), replay(faulty, sizes, code="TW404")
    assert first is not None and first.kind == "race"
    assert wanted is not None and wanted.kind == "proxy"


def test_a_race_names_both_statements() -> None:
    kernel = edit(split(warps=4), early_release)
    violation = replay(kernel, SIZES)
    assert violation is not None
    loads = {s.span for s in ir.walk(kernel.body) if isinstance(s, ir.TmaLoad)}
    products = {s.span for s in ir.walk(kernel.body) if isinstance(s, ir.Wgmma)}
    assert violation.span in loads
    assert {r.span for r in violation.related} <= products
    assert violation.related
