"""Two independent judges of the same mutants: the happens-before check, and random schedules.

Every single edit of the GEMMs that fails under some random schedule must already fail the happens-before run, which looks
at one schedule only; that is what makes it a replay that does not depend on luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from analysis import kernels
from tilewright.interpret import Limits, Schedule, Violation
from tilewright.interpret.execution import compile_kernel
from tilewright.interpret.replaying import attempt
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

Sizes = tuple[dict[str, int], ...]


def block_edits(block: ir.Block) -> Iterator[ir.Block]:
    """Drop, repeat or swap a statement, or edit one."""
    for i, stmt in enumerate(block):
        if isinstance(stmt, ir.AllocShared | ir.AllocBarrier):
            continue
        if not isinstance(stmt, ir.Assign):
            yield block[:i] + block[i + 1 :]
            yield block[: i + 1] + block[i:]
        if i + 1 < len(block):
            yield (*block[:i], block[i + 1], stmt, *block[i + 2 :])
        for edited in statement_edits(stmt):
            yield (*block[:i], edited, *block[i + 1 :])


def off_by_one(expr: ex.Expr) -> Iterator[ex.Expr]:
    match expr:
        case ex.Int(value):
            yield ex.Int(value + 1)
            if value > 0:
                yield ex.Int(value - 1)
        case ex.Bin(op, lhs, rhs):
            yield from (ex.Bin(op, new, rhs) for new in off_by_one(lhs))
            divides = op in ("//", "%", "cdiv")
            yield from (ex.Bin(op, lhs, new) for new in off_by_one(rhs) if not (divides and new == ex.Int(0)))
        case _:
            pass


def statement_edits(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    match stmt:
        case ir.For() | ir.Programs():
            yield from (replace(stmt, body=body) for body in block_edits(stmt.body))
        case ir.If():
            yield from (replace(stmt, then=then) for then in block_edits(stmt.then))
            yield from (replace(stmt, cond=cond) for cond in off_by_one(stmt.cond))
        case ir.Roles(roles=roles):
            for j, role in enumerate(roles):
                for body in block_edits(role.body):
                    yield replace(stmt, roles=(*roles[:j], replace(role, body=body), *roles[j + 1 :]))
        case ir.BarrierWait() | ir.BarrierArrive() | ir.BarrierExpect():
            yield from (replace(stmt, bar=replace(stmt.bar, slot=slot)) for slot in off_by_one(stmt.bar.slot))
            if isinstance(stmt, ir.BarrierWait):
                yield from (replace(stmt, parity=parity) for parity in off_by_one(stmt.parity))
            if isinstance(stmt, ir.BarrierExpect):
                yield from (replace(stmt, bytes=ex.Int(count)) for count in (256, 768))
        case ir.TmaLoad() | ir.CpAsync():
            yield from (replace(stmt, dst=replace(stmt.dst, stage=stage)) for stage in off_by_one(stmt.dst.stage))
            yield replace(stmt, view=replace(stmt.view, origin=stmt.view.origin[::-1]))
        case ir.Wgmma():
            for ref in (r for r in (stmt.a,) if isinstance(r, ir.BufRef)):
                yield from (replace(stmt, a=replace(ref, stage=stage)) for stage in off_by_one(ref.stage))
        case ir.SharedLoad():
            yield from (replace(stmt, src=replace(stmt.src, stage=stage)) for stage in off_by_one(stmt.src.stage))
        case ir.WgmmaWait() | ir.CpWait() | ir.TmaStoreWait():
            yield replace(stmt, pending=stmt.pending + 1)
            if stmt.pending:
                yield replace(stmt, pending=stmt.pending - 1)
        case _:
            pass


def product(arguments: list[np.ndarray]) -> list[np.ndarray]:
    a, b, _ = (array.astype(np.float32) for array in arguments)
    return [a @ b]


def judge(kernel: ir.Kernel, sizes: Sizes, seeds: int) -> tuple[Violation | None, Violation | None]:
    """The violation of the happens-before run, and that of random schedules."""
    compiled = compile_kernel(kernel, Limits(events=200_000))
    ordered = Schedule(happens_before=True, tags=True)
    first = next(filter(None, (attempt(compiled, s, ordered, expected=product) for s in sizes)), None)
    for seed in range(seeds):
        schedule = Schedule(seed, adversarial=True, tags=True)
        found = attempt(compiled, sizes[seed % len(sizes)], schedule, expected=product)
        if found is not None:
            return first, found
    return first, None


def compare(name: str, seeds: int) -> list[str]:
    kernel, sizes, least_killed = CASES[name]
    killed, only_ordered, seen = 0, [], set[str]()
    for body in block_edits(kernel.body):
        if body == kernel.body or repr(body) in seen:
            continue
        seen.add(repr(body))
        ordered, random = judge(kernel.with_body(body), sizes, seeds)
        assert random is None or ordered is not None, f"only a random schedule shows {random}"
        killed += ordered is not None
        if ordered is not None and random is None:
            only_ordered.append(str(ordered))
    assert killed >= least_killed, f"{killed} of {len(seen)} mutants killed"
    return only_ordered


# A mutant that survives both judges is one that changes nothing at these sizes; that number may only fall.
CASES: dict[str, tuple[ir.Kernel, Sizes, int]] = {
    "split, two warpgroups": (
        kernels.split_gemm(3, 16, 16, 8, 2, 8),
        ({"M": 40, "N": 24, "K": 40}, {"M": 16, "N": 16, "K": 8}),
        104,
    ),
    "cp.async, persistent": (
        kernels.cp_async_gemm(3, 16, 16, 8, 2, 4, True),
        ({"M": 40, "N": 24, "K": 41}, {"M": 16, "N": 16, "K": 9}, {"M": 16, "N": 16, "K": 65}),
        78,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_happens_before_run_misses_nothing_that_random_schedules_find(name: str) -> None:
    compare(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_random_schedules_confirm_what_the_happens_before_run_refutes(name: str) -> None:
    unconfirmed = compare(name, 60)
    # Phases that could be mistaken need not be mistaken in any of the schedules tried; accesses must show.
    assert all(text.startswith("phase") for text in unconfirmed), "\n".join(unconfirmed)
