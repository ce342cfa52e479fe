"""Barriers, and the happens-before relation over them, on small histories."""

from __future__ import annotations

import numpy as np
import pytest

from analysis import kernels
from analysis.kernels import bar, buf, tensor, view, x
from tilewright.dtypes import f32
from tilewright.interpret import Schedule, Violation, random_arguments, replay, run
from tilewright.interpret.barriers import Slot
from tilewright.interpret.happens_before import Knowledge, Ordering
from tilewright.interpret.memory import Stage, new_stages
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import remove_backend_sync
from tilewright.ir.types import BarrierType, SharedType, TileType
from tilewright.layout import SwizzledShared
from tilewright.source import NO_SPAN

SHARED = SharedType(f32, (8,), 1, False, SwizzledShared(1, 1, 1))


def test_a_phase_ends_with_arrivals_and_bytes() -> None:
    slot = Slot("full[0]", 2)
    assert slot.passed(1), "the phase before the first counts as ended"
    assert not slot.passed(0)
    slot.deliver(64)  # a copy may be faster than its announcement
    slot.announce(64)
    assert slot.arrive()
    assert slot.phase == 0
    assert slot.arrive()
    assert slot.phase == 1
    assert slot.passed(0)
    assert not slot.passed(1)


def test_a_phase_that_waits_for_bytes_takes_no_more_arrivals() -> None:
    slot = Slot("full[0]", 1)
    slot.announce(64)
    assert slot.arrive()
    assert not slot.arrive()
    assert slot.phase == 0
    slot.deliver(64)
    assert slot.phase == 1


def stage() -> Stage:
    return new_stages("s", SHARED)[0]


def access(order: Ordering, s: Stage, *, write: bool, asynchronous: bool = False, region: slice = slice(0, 8)) -> int:
    return order.record(
        s, (region,), write=write, asynchronous=asynchronous, queue=None, what="it", span=NO_SPAN
    )  # fmt: skip


def test_conflicting_accesses_need_order() -> None:
    order, s = Ordering(), stage()
    whole = (slice(0, 8),)
    writer, reader = Knowledge(), Knowledge()
    writer.local |= access(order, s, write=True)
    found = order.conflict(s, whole, reader, write=False, asynchronous=False)
    assert found is not None
    assert found[0] == "race"
    order.sync([writer, reader])
    assert order.conflict(s, whole, reader, write=False, asynchronous=False) is None


def test_reads_and_disjoint_parts_do_not_conflict() -> None:
    order, s = Ordering(), stage()
    access(order, s, write=False)
    assert order.conflict(s, (slice(0, 8),), Knowledge(), write=False, asynchronous=False) is None
    order, s = Ordering(), stage()
    access(order, s, write=True, region=slice(0, 4))
    assert order.conflict(s, (slice(4, 8),), Knowledge(), write=True, asynchronous=False) is None
    assert order.conflict(s, (slice(3, 8),), Knowledge(), write=True, asynchronous=False) is not None


@pytest.mark.parametrize("fence_first", [True, False])
def test_the_asynchronous_proxy_needs_a_fence_before_the_sync(fence_first: bool) -> None:
    order, s = Ordering(), stage()
    who = Knowledge()
    who.local |= access(order, s, write=True)
    for action in ("fence", "sync") if fence_first else ("sync", "fence"):
        order.fence(who) if action == "fence" else order.sync([who])
    found = order.conflict(s, (slice(0, 8),), who, write=False, asynchronous=True)
    assert (found is None) == fence_first
    assert found is None or found[0] == "proxy"


def test_an_arrival_must_know_the_phase_before() -> None:
    order, who, other = Ordering(), Knowledge(), Knowledge()
    assert order.arrive("slot", 0, who)
    order.end_phase("slot")
    assert not order.arrive("slot", 1, other)
    order.wait("slot", 1, other)
    assert order.arrive("slot", 1, other)


def test_a_wait_must_know_the_phase_two_before() -> None:
    order, who, late = Ordering(), Knowledge(), Knowledge()
    for phase in (0, 1):
        order.arrive("slot", phase, who)
        order.end_phase("slot")
        order.wait("slot", phase + 1, who)
    assert not order.wait("slot", 2, late)


def test_a_phase_may_end_only_when_the_waiters_of_the_one_before_are_through() -> None:
    order, arriver, waiter = Ordering(), Knowledge(), Knowledge()
    order.arrive("slot", 0, arriver)
    assert order.end_phase("slot")
    order.wait("slot", 1, arriver)
    order.wait("slot", 1, waiter)
    order.arrive("slot", 1, arriver)
    assert not order.end_phase("slot"), "nothing says that the waiter has seen phase 0"


def loads(*, waited: bool) -> ir.Kernel:
    """One bulk load of X, waited for or not."""
    body = (
        ir.AllocShared("s"),
        ir.AllocBarrier("full"),
        ir.BarrierExpect(bar("full"), x(32)),
        ir.TmaLoad(view("X", ("0",), (8,)), buf("s"), bar("full")),
        *((ir.BarrierWait(bar("full"), x(0)), ir.SharedLoad("v", buf("s"))) if waited else (kernels.zeros("v"),)),
        ir.Store(view("OUT", ("0",), (8,)), "v", "direct"),
    )
    types = {"s": SHARED, "full": BarrierType(1, 1), "v": TileType(f32, (8,))}
    params = (tensor("X", f32, "N"), tensor("OUT", f32, "N"))
    return kernels.kernel("loads", "sm_90a", 4, params, body, types)


ORDERS = [Schedule(happens_before=True), *(Schedule(n, adversarial=True) for n in range(20))]


def test_a_load_that_is_waited_for() -> None:
    for schedule in ORDERS:
        arrays = [np.arange(5, dtype=np.float32), np.zeros(5, np.float32)]
        run(loads(waited=True), arrays, schedule=schedule)
        assert arrays[1].tolist() == [0, 1, 2, 3, 4]


def test_a_load_in_flight_at_the_end() -> None:
    kinds: list[str] = []
    for schedule in ORDERS:
        try:
            run(loads(waited=False), [np.ones(5, np.float32), np.zeros(5, np.float32)], schedule=schedule)
        except Violation as violation:
            assert "X" in violation.message
            kinds.append(violation.kind)
    assert set(kinds) == {"exit"}
    assert len(kinds) > 1, "found by the happens-before check and by the adversary"


def test_a_slot_that_does_not_exist() -> None:
    kernel = loads(waited=True)
    wrong = tuple(ir.BarrierWait(bar("full", 1), x(0)) if isinstance(s, ir.BarrierWait) else s for s in kernel.body)
    with pytest.raises(Violation, match="slot 1 = 1 of full does not exist: it has 1"):
        run(kernel.with_body(wrong), [np.ones(5, np.float32), np.zeros(5, np.float32)])


def handed_over(*, waited: bool = True, synced: bool = True) -> ir.Kernel:
    """One role puts blocks of X into shared memory, another stores them: ordinary accesses ordered by barriers."""
    produce = (
        kernels.for_("k", 0, "N", 8,
            ir.Load("v", view("X", ("k",), (8,)), 0.0, "direct"),
            ir.BarrierWait(bar("empty"), x("k // 8 % 2 ^ 1")),
            ir.SharedStore(buf("s"), "v"),
            ir.BarrierArrive(bar("full")),
        ),
    )  # fmt: skip
    consume = (
        kernels.for_("k", 0, "N", 8,
            *((ir.BarrierWait(bar("full"), x("k // 8 % 2")),) if waited else ()),
            ir.SharedLoad("w", buf("s")),
            ir.BarrierArrive(bar("empty")),
            ir.Store(view("OUT", ("k",), (8,)), "w", "direct"),
        ),
    )  # fmt: skip
    body = (
        ir.AllocShared("s"),
        ir.AllocBarrier("full"),
        ir.AllocBarrier("empty"),
        ir.Roles((ir.Role("consume", 8, None, consume), ir.Role("produce", 8, None, produce))),
    )
    one = BarrierType(1, 1)
    types = {"s": SHARED, "full": one, "empty": one, "v": TileType(f32, (8,)), "w": TileType(f32, (8,))}
    params = (tensor("X", f32, "N"), tensor("OUT", f32, "N"))
    kernel = kernels.kernel("handed_over", "sm_90a", 8, params, body, types)
    return kernel if synced else kernel.with_body(remove_backend_sync(kernel.body))


def test_roles_hand_over_a_tile_by_ordinary_accesses() -> None:
    for schedule in ORDERS:
        arrays = [np.arange(30, dtype=np.float32), np.zeros(30, np.float32)]
        run(handed_over(), arrays, schedule=schedule)
        np.testing.assert_array_equal(arrays[0], arrays[1])


@pytest.mark.parametrize("wrong", [handed_over(waited=False), handed_over(synced=False)])
def test_handing_over_needs_the_wait_and_the_sync_before_the_arrival(wrong: ir.Kernel) -> None:
    for schedules in (ORDERS[:1], ORDERS[1:]):
        kinds = set[str]()
        for schedule in schedules:
            try:
                run(wrong, [np.ones(30, np.float32), np.zeros(30, np.float32)], schedule=schedule)
            except Violation as violation:
                kinds.add(violation.kind)
        assert kinds
        assert kinds <= {"race", "uninitialized", "phase"}


def test_an_input_that_is_also_stored_to_is_not_poisoned() -> None:
    body = (
        ir.Load("v", view("X", ("0",), (8,)), 0.0, "direct"),
        ir.Store(view("X", ("0",), (8,)), "v", "direct"),
    )
    kernel = kernels.kernel("same", "sm_80", 4, (tensor("X", f32, "N"),), body, {"v": TileType(f32, (8,))})
    assert np.isfinite(random_arguments(kernel, {"N": 8}, 0)[0]).all()
    assert replay(kernel, {"N": 8}, tries=3, expected=lambda arguments: [arguments[0]]) is None
