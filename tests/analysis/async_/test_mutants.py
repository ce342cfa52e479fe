"""Every single edit of a correct kernel, judged by the engine and by random concrete runs of separate code."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from analysis import kernels
from analysis.async_.mutants import mutants
from analysis.async_.simulator import trial
from analysis.tensor_kernels import tensor_gemm
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import AsyncResult, explore

# Kernel, tile extents of M, N, K, and the least share of its mutants that must be refuted.
KERNELS: dict[str, tuple[Callable[[], ir.Kernel], tuple[int, int, int], float]] = {
    "split": (kernels.split_gemm, (128, 256, 64), 0.9),
    "tensor memory": (tensor_gemm, (128, 128, 64), 0.9),
    "tensor memory, one accumulator, one tile": (
        # A second round of the accumulator's barriers never comes, so edits of it change nothing.
        lambda: tensor_gemm(stages=2, accumulators=1, warps=8, persistent=False), (128, 128, 64), 0.8,
    ),
    "split, one warpgroup": (lambda: kernels.split_gemm(bm=64, warps=4), (64, 256, 64), 0.9),
    "cp.async": (kernels.cp_async_gemm, (128, 128, 32), 0.75),
    "cp.async, persistent, two warpgroups": (
        lambda: kernels.cp_async_gemm(warps=8, persistent=True), (128, 128, 32), 0.75,
    ),
}  # fmt: skip


def is_persistent(kernel: ir.Kernel) -> bool:
    return any(isinstance(s, ir.Programs) and s.persistent for s in ir.walk(kernel.body))


def proved(result: AsyncResult) -> bool:
    return all(o.verdict == "proved" for o in result.outcomes)


@pytest.mark.parametrize("name", KERNELS)
def test_random_runs_of_a_correct_kernel_find_nothing(name: str) -> None:
    make, unit, _ = KERNELS[name]
    kernel = make()
    assert trial(kernel, 40, unit, is_persistent(kernel)) is None


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_mutants_that_are_proved_never_fails(name: str) -> None:
    make, unit, _ = KERNELS[name]
    for number, (what, mutant) in enumerate(mutants(make())):
        if number % 6 == 0 and proved(explore(mutant)):
            assert trial(mutant, 20, unit, is_persistent(mutant)) is None, what


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_proved_mutant_fails_and_most_are_refuted(name: str) -> None:
    make, unit, share = KERNELS[name]
    refuted = total = 0
    for what, mutant in mutants(make()):
        result = explore(mutant)
        total += 1
        refuted += bool(result.refuted)
        if proved(result):
            assert trial(mutant, 150, unit, is_persistent(mutant)) is None, what
    assert refuted >= share * total, f"{refuted} of {total}"


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_proved_combination_of_edits_fails(name: str) -> None:
    make, unit, _ = KERNELS[name]
    rng = random.Random(7)
    kernel = make()
    first = [m for _, m in mutants(kernel)]
    # Two edits: the second is drawn among those of a mutant that is still proved, or of any.
    for _ in range(60):
        once = rng.choice(first)
        what, twice = rng.choice(list(mutants(once)))
        if proved(explore(twice)):
            assert trial(twice, 60, unit, is_persistent(twice)) is None, what


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_what_fails_at_random_is_not_proved(name: str) -> None:
    make, unit, _ = KERNELS[name]
    for what, mutant in mutants(make()):
        failure = trial(mutant, 10, unit, is_persistent(mutant))
        if failure is not None:
            assert not proved(explore(mutant)), (what, failure)
