"""Flash attention, as a policy and in instructions: proved at every choice, right at odd lengths, its faults found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright_analysis import KernelReport, check_kernel

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
EXAMPLES = Path(__file__).parents[2] / "examples"
POLICY = (EXAMPLES / "attention.py").read_text(encoding="utf-8")
INSTRUCTIONS = (EXAMPLES / "attention_instructions.py").read_text(encoding="utf-8")
both = pytest.mark.parametrize("text", [POLICY, INSTRUCTIONS], ids=["policy", "instructions"])


def causal(text: str) -> str:
    return text.replace("CAUSAL: Const = 0", "CAUSAL: Const = 1")


# What is fastest for heads of other sizes.
CHOICES = {
    64: (("BM: Const = 128", "BM: Const = 192"), ("consumers=2", "consumers=3, turns=True")),
    96: (("consumers=2", "consumers=2, turns=True"),),
    256: (("BN: Const = 128", "BN: Const = 64"),),
}


def heads(size: int, element: str = "f16") -> str:
    text = POLICY.replace("D: int = 128", f"D: int = {size}").replace("f16", element)
    for before, after in CHOICES[size]:
        assert before in text
        text = text.replace(before, after)
    return text


CAUSAL = causal(INSTRUCTIONS)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    (unit,) = module.units
    assert not module.problems and unit.kernel is not None, (module.problems, unit.problems)
    return unit.kernel


def checked(text: str) -> KernelReport:
    return check_kernel(kernel(text))


def open_or_refuted(text: str) -> set[tuple[str, str]]:
    return {(o.code, o.verdict) for o in checked(text).obligations if o.verdict != "proved"}


@both
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("mask", [0, 1], ids=["full", "causal"])
def test_it_is_proved(text: str, mask: int, group: int) -> None:
    text = text.replace("GROUP: int = 1", f"GROUP: int = {group}")
    assert not open_or_refuted(causal(text) if mask else text)


@pytest.mark.parametrize("mask", [0, 1], ids=["full", "causal"])
@pytest.mark.parametrize(("size", "element"), [(64, "bf16"), (96, "f16"), (256, "f16")])
def test_other_heads_are_proved(size: int, element: str, mask: int) -> None:
    text = heads(size, element)
    assert not open_or_refuted(causal(text) if mask else text)


def attend(text: str, head: int, group: int, mask: bool, queries: int, keys: int) -> None:
    """Runs the kernel and compares it with float64."""
    element = np.float32 if "bf16" in text else np.float16
    random = np.random.default_rng(3)
    # Multiples of 1/16 below 2 are numbers of either type.
    q = (random.integers(-24, 25, (2 * group, queries, head)) / 16).astype(element)
    k, v = ((random.integers(-24, 25, (2, keys, head)) / 16).astype(element) for _ in range(2))
    out = np.zeros_like(q)
    run(expand(kernel(text)), [q, k, v, out])
    for h in range(2 * group):
        scores = q[h].astype(np.float64) @ k[h // group].astype(np.float64).T / np.sqrt(head)
        if mask:
            scores[np.arange(keys)[None, :] > np.arange(queries)[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v[h // group].astype(np.float64)
        np.testing.assert_allclose(out[h].astype(np.float64), expected, atol=3e-2 if "bf16" in text else 4e-3)


@both
@pytest.mark.parametrize(("mask", "group"), [(False, 1), (True, 1), (True, 2)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (130, 257), (200, 70)])
def test_it_computes_attention(text: str, mask: bool, group: int, queries: int, keys: int) -> None:
    text = text.replace("GROUP: int = 1", f"GROUP: int = {group}")
    attend(causal(text) if mask else text, 128, group, mask, queries, keys)


@pytest.mark.parametrize("mask", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("size", "element"), [(64, "f16"), (96, "f16"), (256, "f16"), (96, "bf16")])
def test_other_heads_compute_attention(size: int, element: str, mask: bool) -> None:
    text = heads(size, element)
    attend(causal(text) if mask else text, size, 1, mask, 130, 300)


BROKEN = {
    "the loop ends half a block early": (
        ("t % tw.cdiv(M, 128) * 128 + 128)", "t % tw.cdiv(M, 128) * 128 + 64)"), None, "TW102",
    ),
    "no causal mask": (("(cols[None, :] < N) & (cols[None, :] <= rows[:, None])", "cols[None, :] < N"), None, "TW102"),
    "the mask is for rows of the other role": (("masked(s, row, j, CAUSAL)", "masked(s, row + 64, j, CAUSAL)"), None, "TW102"),
    "blocks at the diagonal go unmasked": ((" or CAUSAL * (j + BN) > row + 1", ""), None, "TW102"),
    "rows of both roles exchanged": (
        ("row = t // tw.cdiv(M, 128), t % tw.cdiv(M, 128) * 128 + part * 64",
         "row = t // tw.cdiv(M, 128), t % tw.cdiv(M, 128) * 128 + (1 - part) * 64"), None, "TW103",
    ),
    "probabilities overwritten in flight": (
        ("            m = m_new\n", "            m = m_new\n            weights = p.to(f16)\n"), None, "TW401",
    ),
}  # fmt: skip


POLICY_BROKEN = {
    "the loop ends half a block early": ("end(row + BM, CAUSAL)", "end(row + BM - 64, CAUSAL)", "TW102"),
    "no causal mask": ("(cols[None, :] < N) & (cols[None, :] <= rows[:, None])", "cols[None, :] < N", "TW102"),
    "the first query sees nothing": ("masked(s, row, j, CAUSAL)", "masked(s, row - 1, j, CAUSAL)", "TW104"),
    "values of the next block": ("V[head // GROUP].tile((j, 0)", "V[head // GROUP].tile((j + BN, 0)", "TW101"),
    "the result is not rescaled": ("v, o * alpha[:, None])", "v, o)", "TW105"),
    "the sum is not rescaled": ("total * alpha + ", "total + ", "TW105"),
    "keys past the last one": ("(cols[None, :] < N) & (cols[None, :] <= rows[:, None])", "cols[None, :] <= rows[:, None]", "TW104"),
    "the next head": ("OUT[head].tile((row, 0)", "OUT[(head + 1) % (HEADS * GROUP)].tile((row, 0)", "TW103"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_not_proved(name: str) -> None:
    first, second, code = BROKEN[name]
    text = CAUSAL
    for change in (first, second):
        if change is not None:
            assert change[0] in text
            text = text.replace(*change)
    assert code in {c for c, _ in open_or_refuted(text)}


@pytest.mark.parametrize("name", POLICY_BROKEN)
def test_a_fault_of_the_policy_is_not_proved(name: str) -> None:
    before, after, code = POLICY_BROKEN[name]
    assert before in POLICY
    assert code in {c for c, _ in open_or_refuted(causal(POLICY.replace(before, after)))}


@needs_triton
@both
@pytest.mark.parametrize("mask", [0, 1], ids=["full", "causal"])
def test_it_compiles_without_spilling(text: str, mask: int) -> None:
    compiled = compile_lowered(lower(expand(kernel(causal(text) if mask else text))))
    assert compiled.spill_stores == 0 and compiled.shared <= 227 * 1024
