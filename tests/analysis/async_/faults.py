"""Seeded faults: each takes a correct kernel and breaks one thing, as a person would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from analysis import kernels
from analysis.kernels import buf, synced, x
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import remove_backend_sync
from tilewright.ir.types import BarrierType

Change = Callable[[ir.Stmt], ir.Block | None]


def edit(kernel: ir.Kernel, change: Change, nth: int | None = None) -> ir.Kernel:
    """The kernel with statements changed (only the nth one that `change` would change, if given), syncs recomputed."""
    seen = -1

    def pick(stmt: ir.Stmt) -> ir.Block | None:
        nonlocal seen
        new = change(stmt)
        if new is None:
            return None
        seen += 1
        return new if nth is None or seen == nth else None

    result = kernel.with_body(ir.rewrite(remove_backend_sync(kernel.body), pick))
    assert seen >= (nth or 0), "the fault found nothing to change"
    return synced(result)


def drop(kind: type[ir.Stmt], where: Callable[[ir.Stmt], bool] = lambda s: True) -> Change:
    return lambda s: () if isinstance(s, kind) and where(s) else None


def stage_off_by_one() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.Wgmma):
            return (replace(s, a=buf("a_ring", "(it + 1) % 3")),)
        return None

    return edit(kernels.split_gemm(), change)


def dropped_wait() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.BarrierWait, lambda s: s.bar.barrier == "full"))


def dropped_fence() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.FenceAsync))


def wrong_release() -> ir.Kernel:
    """The stage of this iteration is released instead of the one before."""

    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, bar=kernels.bar("empty", "it % 3")),) if isinstance(s, ir.BarrierArrive) else None

    return edit(kernels.split_gemm(), change, 0)


def dropped_release() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.BarrierArrive), 0)


def fewer_bytes() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, bytes=ex.Int(16384)),) if isinstance(s, ir.BarrierExpect) else None

    return edit(kernels.split_gemm(), change)


def more_bytes() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, bytes=ex.Int(65536)),) if isinstance(s, ir.BarrierExpect) else None

    return edit(kernels.split_gemm(), change)


def shifted_operand() -> ir.Kernel:
    """B is loaded one step further along K than A."""

    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.TmaLoad) and s.view.tensor == "B":
            return (replace(s, view=kernels.view("B", ("k + 64", "pn * 256"), (64, 256))),)
        return None

    return edit(kernels.split_gemm(), change)


def swapped_origin() -> ir.Kernel:
    """The output tile goes to (pn, pm)."""

    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.TmaStore):
            return (replace(s, view=kernels.view("C", ("pn * 256", "pm * 128"), (128, 256))),)
        return None

    return edit(kernels.split_gemm(), change)


def looser_wgmma_wait() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, pending=2),) if isinstance(s, ir.WgmmaWait) and s.pending == 1 else None

    return edit(kernels.split_gemm(), change)


def dropped_wgmma_drain() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.WgmmaWait, lambda s: s.pending == 0))


def parity_not_flipped() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.BarrierWait) and s.bar.barrier == "empty":
            return (replace(s, parity=x("it // 3 % 2")),)
        return None

    return edit(kernels.split_gemm(), change)


def unguarded_release() -> ir.Kernel:
    """The loop takes whole steps only, so it may not run; the release after it happens all the same."""

    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.For):
            return (replace(s, hi=x("K // 64 * 64")),)
        return s.then if isinstance(s, ir.If) and s.cond == x("0 < K") else None

    return edit(kernels.split_gemm(), change)


def dropped_store_wait() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.TmaStoreWait), 0)


def dropped_last_store_wait() -> ir.Kernel:
    return edit(kernels.split_gemm(), drop(ir.TmaStoreWait), 1)


def two_arrivals() -> ir.Kernel:
    k = kernels.split_gemm()
    return replace(k, types={**k.types, "empty": BarrierType(3, 2)})


def floor_trip_count() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, hi=x("K // 64 * 64")),) if isinstance(s, ir.For) else None

    def guard(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, cond=x("0 < K // 64")),) if isinstance(s, ir.If) and s.cond == x("0 < K") else None

    return edit(edit(kernels.split_gemm(), change), guard)


def skipped_first_step() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, lo=x(64)),) if isinstance(s, ir.For) else None

    def guards(s: ir.Stmt) -> ir.Block | None:
        match s:
            case ir.If(cond=cond) if cond == x("0 < K"):
                return (replace(s, cond=x("64 < K")),)
            case ir.If(cond=cond) if cond == x("0 < k"):
                return (replace(s, cond=x("64 < k")),)
            case _:
                return None

    return edit(edit(kernels.split_gemm(), change), guards)


def dropped_cp_wait() -> ir.Kernel:
    return edit(kernels.cp_async_gemm(), drop(ir.CpWait), 0)


def looser_cp_wait() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, pending=2),) if isinstance(s, ir.CpWait) and s.pending == 1 else None

    return edit(kernels.cp_async_gemm(), change)


def dropped_cp_sync() -> ir.Kernel:
    return edit(kernels.cp_async_gemm(), drop(ir.Sync), 0)


def cp_stage_off_by_one() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.SharedLoad) and s.dst == "b":
            return (replace(s, src=buf("b_ring", "(k // 32 + 1) % 3")),)
        return None

    return edit(kernels.cp_async_gemm(), change)


def cp_overwrites_current_stage() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.CpAsync) and s.dst.buffer == "a_ring":
            return (replace(s, dst=buf("a_ring", "k // 32 % 3")),)
        return None

    return edit(kernels.cp_async_gemm(), change, 2)


def wrong_store_coordinate() -> ir.Kernel:
    def change(s: ir.Stmt) -> ir.Block | None:
        return (replace(s, view=kernels.view("OUT", ("i * 512",), (1024,))),) if isinstance(s, ir.Store) else None

    return edit(kernels.fma(), change)


# Fault, and the codes of which at least one must be refuted.
FAULTS: tuple[tuple[Callable[[], ir.Kernel], frozenset[str]], ...] = tuple(
    (fault, frozenset(codes.split()))
    for fault, codes in (
        (stage_off_by_one, "TW101 TW401 TW203"),
        (dropped_wait, "TW401 TW402"),
        (dropped_fence, "TW404"),
        (wrong_release, "TW401 TW402"),
        (dropped_release, "TW403"),
        (fewer_bytes, "TW405"),
        (more_bytes, "TW405"),
        (shifted_operand, "TW101"),
        (swapped_origin, "TW103"),
        (looser_wgmma_wait, "TW401"),
        (dropped_wgmma_drain, "TW401"),
        (parity_not_flipped, "TW403"),
        (unguarded_release, "TW402"),
        (dropped_store_wait, "TW401"),
        (dropped_last_store_wait, "TW406"),
        (two_arrivals, "TW407"),
        (floor_trip_count, "TW102"),
        (skipped_first_step, "TW102"),
        (dropped_cp_wait, "TW401"),
        (looser_cp_wait, "TW401"),
        (dropped_cp_sync, "TW401"),
        (cp_stage_off_by_one, "TW101 TW401 TW203"),
        (cp_overwrites_current_stage, "TW401"),
        (wrong_store_coordinate, "TW103"),
    )
)
