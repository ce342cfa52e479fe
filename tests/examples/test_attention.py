"""Flash attention: proved at every choice, right at odd lengths, and its faults are found or left open."""

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
TEXT = (Path(__file__).parents[2] / "examples" / "attention.py").read_text(encoding="utf-8")
FULL = TEXT
CAUSAL = TEXT.replace("CAUSAL: Const = 0", "CAUSAL: Const = 1")
GROUPED = CAUSAL.replace("GROUP: int = 1", "GROUP = 4")


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    (unit,) = module.units
    assert not module.problems and unit.kernel is not None, (module.problems, unit.problems)
    return unit.kernel


def checked(text: str) -> KernelReport:
    return check_kernel(kernel(text))


def open_or_refuted(text: str) -> set[tuple[str, str]]:
    return {(o.code, o.verdict) for o in checked(text).obligations if o.verdict != "proved"}


@pytest.mark.parametrize("text", [FULL, CAUSAL, GROUPED], ids=["full", "causal", "grouped"])
def test_it_is_proved(text: str) -> None:
    assert not open_or_refuted(text)


@pytest.mark.parametrize(("causal", "group"), [(False, 1), (True, 1), (True, 2)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (130, 257), (200, 70)])
def test_it_computes_attention(causal: bool, group: int, queries: int, keys: int) -> None:
    text = (CAUSAL if causal else FULL).replace("GROUP: int = 1", f"GROUP = {group}")
    random = np.random.default_rng(3)
    q = random.standard_normal((group, queries, 128)).astype(np.float16)
    k, v = (random.standard_normal((1, keys, 128)).astype(np.float16) for _ in range(2))
    out = np.zeros_like(q)
    run(expand(kernel(text)), [q, k, v, out])
    scores = q.astype(np.float32) @ k[0].astype(np.float32).T / np.sqrt(128)
    if causal:
        scores[:, np.arange(keys)[None, :] > np.arange(queries)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v[0].astype(np.float32)
    np.testing.assert_allclose(out.astype(np.float32), expected, atol=4e-3)


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


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_not_proved(name: str) -> None:
    first, second, code = BROKEN[name]
    text = CAUSAL
    for change in (first, second):
        if change is not None:
            assert change[0] in text
            text = text.replace(*change)
    assert code in {c for c, _ in open_or_refuted(text)}


@needs_triton
@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
def test_it_compiles_without_spilling(text: str) -> None:
    compiled = compile_lowered(lower(expand(kernel(text))))
    assert compiled.spill_stores == 0 and compiled.shared <= 227 * 1024
