"""Faults put into the expansion of pipelines whose loads several roles share: each is refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from reading import read
from tilewright.expand import expand_policies
from tilewright.printer import module_source
from tilewright_analysis import check_kernel

EXAMPLES = Path(__file__).parents[3] / "examples"


def expansion(name: str, *edits: tuple[str, str]) -> str:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    kernel = next(u.kernel for u in read(text).units if u.name == name)
    assert kernel is not None
    return module_source(expand_policies(kernel))


GEMM = expansion("gemm", ('roles="split"', 'roles="split", consumers=2'), ("warps=8", "warps=4"))
ATTENTION = expansion(
    "attention", ("CAUSAL: Const = 0", "CAUSAL: Const = 1"), ("consumers=2", "consumers=2, turns=True")
)

# What is replaced, by what, and which of its occurrences.
IN_GEMM = {
    "one arrival is enough": ("tw.barrier(3, arrivals=2)", "tw.barrier(3, arrivals=1)", 0, "TW402"),
    "rows of the other role": ("tw.wgmma(a_ring_2[", "tw.wgmma(a_ring[", 0, "TW103"),
    "a role does not release": ("tw.arrive(empty[(it + 2) % 3])  # its stage is free", "it = it + 0", 1, "TW407"),
    "a role does not wait": ("tw.wait(full[it % 3], it // 3 % 2)", "it = it + 0", 1, "TW401"),
    "bytes of one copy": ("tw.expect(full[it % 3], 49152)", "tw.expect(full[it % 3], 40960)", 0, "TW405"),
    "released too early": ("tw.arrive(empty[(it + 2) % 3])  # its stage", "tw.arrive(empty[it % 3])  # its stage", 1, "TW402"),
    "copies into one ring": ("a_ring_2[it % 3], full", "a_ring[it % 3], full", 0, "TW103"),
    "stored over the other rows": ("C.tile((pm * 128 + 64,", "C.tile((pm * 128,", 0, "TW302"),
    "one output buffer": ("tw.store_shared(c_tile_2,", "tw.store_shared(c_tile,", 0, "TW401"),
    "the loader waits for itself": ("it // 3 % 2 ^ 1)", "it // 3 % 2)", 0, "TW403"),
}  # fmt: skip
IN_ATTENTION = {
    "probabilities before the product": ("tw.wgmma_wait(0)  # the last products", "it = it + 0  #", 1, "TW401"),
    "scores not awaited": ("tw.wgmma_wait(1)", "tw.wgmma_wait(2)", 0, "TW401"),
    "queries of the other role": ("tw.wgmma(q_tile_2, k_ring[(it + 1)", "tw.wgmma(q_tile, k_ring[(it + 1)", 0, "TW401"),
    "values of the next stage": ("v_ring[it % 2], o)", "v_ring[(it + 1) % 2], o)", 0, "TW401"),
    "the turn is never given": ("tw.arrive(turn[1])", "it = it + 0", 0, "TW403"),
    "queries not awaited": ("tw.wait(q_full[1], 0)", "it = it + 0", 0, "TW401"),
    "stored over queries of the other": ("tw.store_shared(q_tile_2,", "tw.store_shared(q_tile,", 0, "TW401"),
    "no fence": ("tw.fence_async()", "it = it + 0", 0, "TW404"),
}  # fmt: skip


def refuted(source: str, before: str, after: str, which: int) -> set[str]:
    parts = source.split(before)
    assert len(parts) > which + 1
    module = read(before.join(parts[: which + 1]) + after + before.join(parts[which + 1 :]))
    assert not module.all_problems and module.units[0].kernel is not None
    return {o.code for o in check_kernel(module.units[0].kernel).obligations if o.verdict == "refuted"}


@pytest.mark.parametrize("source", [GEMM, ATTENTION], ids=["gemm", "attention"])
def test_the_expansions_themselves_are_proved(source: str):
    kernel = read(source).units[0].kernel
    assert kernel is not None
    assert check_kernel(kernel).verdict == "proved"


@pytest.mark.parametrize("fault", IN_GEMM)
def test_faults_of_a_matrix_product_are_found(fault: str):
    before, after, which, code = IN_GEMM[fault]
    assert code in refuted(GEMM, before, after, which)


@pytest.mark.parametrize("fault", IN_ATTENTION)
def test_faults_of_attention_are_found(fault: str):
    before, after, which, code = IN_ATTENTION[fault]
    assert code in refuted(ATTENTION, before, after, which)
