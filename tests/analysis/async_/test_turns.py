"""Rings that turn: which do, and that nothing is decided differently for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analysis import kernels
from analysis.async_ import variants
from analysis.async_.mutants import mutants
from analysis.tensor_kernels import tensor_gemm
from reading import HEADER, read
from tilewright.expand import expand
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import encode as encoding
from tilewright_analysis.async_ import explore
from tilewright_analysis.async_.encode import encode


def test_a_ring_with_the_counters_of_both_roles_turns_as_one() -> None:
    (turn,) = encode(kernels.split_gemm(stages=3)).turns
    assert (turn.stages, turn.period % 6, len(turn.counters)) == (3, 0, 2)
    assert turn.rings == {"a_ring", "b_ring", "full", "empty"}


def test_stages_and_accumulators_turn_by_themselves() -> None:
    turns = encode(tensor_gemm(stages=3, accumulators=2)).turns
    assert sorted((t.stages, tuple(sorted(t.rings))) for t in turns) == [
        (2, ("acc_ring", "done", "drained")),
        (3, ("a_ring", "b_ring", "empty", "full")),
    ]


PASSED_ON = """
@tw.kernel(target="sm_90a", warps=4)
def passed_on(X: Global[f16, M, N], Y: Global[f16, M, N]):
    tw.assume(N % 8 == 0)
    ring = tw.shared(f16, (2, 64, 64))
    full = tw.barrier(2)
    empty = tw.barrier(2)
    more = tw.barrier(2)
    with tw.role("store", warps=4):
        it = 0
        at = 0
        for i in tw.programs(tw.cdiv(M, 64), persistent=True):
            for j in range(0, N, 64):
                at = it + 1
                tw.wait(full[it % 2], it // 2 % 2)
                tw.store(Y.tile((i * 64, j), (64, 64)), tw.load_shared(ring[it % 2]))
                tw.arrive(empty[it % 2])
                tw.arrive(more[at % 2])
                it += 1
    with tw.role("load", warps=1):
        it = 0
        for i in tw.programs(tw.cdiv(M, 64), persistent=True):
            for j in range(0, N, 64):
                tw.wait(empty[it % 2], it // 2 % 2 ^ 1)
                tw.expect(full[it % 2], 8192)
                tw.tma_load(X.tile((i * 64, j), (64, 64)), ring[it % 2], full[it % 2])
                it += 1
"""


def test_a_counter_that_goes_into_another_scalar_does_not_turn() -> None:
    kernel = read(f"{HEADER}\n{PASSED_ON}").unit("passed_on").kernel
    assert kernel is not None
    assert encode(expand(kernel)).turns == ()


def test_a_stage_in_a_variable_does_not_turn() -> None:
    assert encode(variants.stage_and_phase()).turns == ()


@pytest.mark.parametrize("make", [lambda: kernels.split_gemm(bm=64, warps=4), tensor_gemm], ids=["split", "tensor"])
def test_nothing_is_decided_differently(make: Callable[[], ir.Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(kernel: ir.Kernel) -> list[tuple[str, str]]:
        return sorted({(o.code, o.verdict) for o in explore(kernel).outcomes})

    some = [make(), *(m for number, (_, m) in enumerate(mutants(make())) if number % 11 == 3)]
    turned = [decided(kernel) for kernel in some]
    monkeypatch.setattr(encoding, "turns", lambda *of: ())
    assert turned == [decided(kernel) for kernel in some]
