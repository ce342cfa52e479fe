"""TW105: every single change to a right online softmax is refuted, with a counterexample that was run; right ones are proved."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from reading import read
from support import check, codes, found, whole
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright_analysis.checks.tags.references import (
    Mismatch,
    Relative,
    chosen,
    exponential,
    logarithm,
    plus,
    reference,
    total,
    words,
)
from tilewright_analysis.checks.tags.references import product as times

EXAMPLE = Path(__file__).parents[3] / "examples" / "online_softmax.py"

ATTENTION = """
@tw.kernel(target="sm_80", warps=4)
def attention(Q: Global[f16, M, 16], K: Global[f16, N, 16], V: Global[f16, N, 16], OUT: Global[f32, M, 16]):
    cols = tw.arange(16)[None, :]
    for i in tw.tiles(tw.cdiv(M, 16)):
        q = tw.load(Q.tile((i * 16, 0), (16, 16)), other=0.0)
        m = tw.full(f32, (16, 1), -tw.inf)
        total = tw.zeros(f32, (16, 1))
        acc = tw.zeros(f32, (16, 16))
        for j in range(0, N, 16):
            k = tw.load(K.tile((j, 0), (16, 16)), other=0.0)
            v = tw.load(V.tile((j, 0), (16, 16)), other=0.0)
            s = tw.mma(q, tw.transpose(k), tw.zeros(f32, (16, 16))) * 0.25
            s = tw.where(j + cols < N, s, -tw.inf)
            m_new = tw.maximum(m, tw.max(s, axis=1, keep_dims=True))
            p = tw.exp(s - m_new)
            alpha = tw.exp(m - m_new)
            total = total * alpha + tw.sum(p, axis=1, keep_dims=True)
            acc = tw.mma(p.to(f16), v, acc * alpha)
            m = m_new
        tw.store(OUT.tile((i * 16, 0), (16, 16)), acc / total)
"""
RIGHT = {
    "two factors": ("acc * alpha", "acc * tw.exp2(m * 1.4426950408889634) * tw.exp2(m_new * -1.4426950408889634)"),
    "a guarded denominator": ("acc / total", "acc / tw.maximum(total, 1e-20)"),
    "a small number beside it": ("acc / total", "acc / (total + 1e-9)"),
    "a product with the inverse": ("acc / total", "acc * (1.0 / total)"),
    "a zero row chosen": ("acc / total", "acc / tw.where(total == 0.0, 1.0, total)"),
    "another name for the maximum": ("m = m_new", "m = m_new * 1.0"),
    "the maximum of an empty row": ("s - m_new)", "s - tw.where(m_new == -tw.inf, 0.0, m_new))"),
    "weights scaled by a constant": ("p = tw.exp(s - m_new)", "p = tw.exp(s - m_new) * 1.0"),
}
WRONG = {
    "sums not rescaled": ("total * alpha", "total"),
    "accumulator not rescaled": ("acc * alpha)", "acc)"),
    "sums rescaled twice": ("total * alpha", "total * alpha * alpha"),
    "accumulator rescaled twice": ("acc * alpha)", "acc * alpha * alpha)"),
    "coefficient upside down": ("tw.exp(m - m_new)", "tw.exp(m_new - m)"),
    "weights relative to the old maximum": ("tw.exp(s - m_new)", "tw.exp(s - m)"),
    "weights relative to nothing": ("tw.exp(s - m_new)", "tw.exp(s)"),
    "maximum not kept": ("            m = m_new\n", ""),
    "maximum kept too early": ("            p = tw", "            m = m_new\n            p = tw"),
    "result not divided": ("acc / total", "acc"),
    "result divided twice": ("acc / total", "acc / total / total"),
    "result multiplied": ("acc / total", "acc * total"),
    "another base": ("alpha = tw.exp(", "alpha = tw.exp2("),
    "weights of another base": ("p = tw.exp(", "p = tw.exp2("),
    "weights squared": ("tw.sum(p, ", "tw.sum(p * p, "),
    "rescaled after adding": ("total * alpha + tw.sum(p, axis=1, keep_dims=True)", "(total + tw.sum(p, axis=1, keep_dims=True)) * alpha"),
}  # fmt: skip


def changed(replacement: tuple[str, str]) -> str:
    assert ATTENTION.count(replacement[0]) == 1
    return ATTENTION.replace(*replacement)


def reference_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q.astype(np.float64) @ k.astype(np.float64).T * 0.25
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v.astype(np.float64) / p.sum(axis=1, keepdims=True)


def is_right(text: str, sizes: tuple[tuple[int, int], ...]) -> bool:
    (unit,) = read(whole(text)).units
    assert unit.kernel is not None
    kernel = expand(unit.kernel)
    for (m, n), seed in product(sizes, (0, 1)):
        draw = np.random.default_rng(seed)
        q, k, v = (draw.normal(size=(s, 16)).astype(np.float16) * 2 for s in (m, n, n))
        out = np.zeros((m, 16), np.float32)
        run(kernel, [q, k, v, out])
        if not np.allclose(out, reference_attention(q, k, v), rtol=2e-2, atol=1e-2):
            return False
    return True


def test_attention_is_proved_and_right() -> None:
    assert check(ATTENTION).verdict == "proved"
    assert is_right(ATTENTION, ((5, 40), (16, 7), (1, 1)))


@pytest.mark.parametrize("name", RIGHT)
def test_other_right_forms_are_not_refuted(name: str) -> None:
    text = changed(RIGHT[name])
    assert is_right(text, ((5, 40),))
    report = check(text)
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("name", WRONG)
def test_every_change_is_refuted_and_shown(name: str) -> None:
    text = changed(WRONG[name])
    assert not is_right(text, ((5, 40),))
    finding = found(check(text), "TW105")
    assert finding.counterexample is not None and finding.counterexample.replayed
    assert finding.counterexample.values


def test_one_fault_is_reported_once() -> None:
    assert codes(check(changed(WRONG["accumulator not rescaled"]))) == ["TW105"]


def test_the_example_is_right_at_odd_sizes() -> None:
    (unit,) = read(EXAMPLE.read_text(encoding="utf-8")).units
    assert unit.kernel is not None
    kernel = expand(unit.kernel)
    for m, n in ((1, 1), (3, 511), (5, 513), (4, 1024), (2, 1537)):
        x = np.random.default_rng(n).normal(size=(m, n)).astype(np.float32) * 5
        out = np.zeros_like(x)
        run(kernel, [x, out])
        e = np.exp(x - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_the_example_is_proved() -> None:
    report = check(EXAMPLE.read_text(encoding="utf-8"))
    assert report.verdict == "proved"
    assert {"TW104", "TW105"} <= {o.code for o in report.obligations}


def test_kernels_without_maxima_have_no_obligations() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def activation(X: Global[f32, N], Y: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, 256)):
        x = tw.load(X.tile((i * 256,), (256,)), other=0.0)
        tw.store(Y.tile((i * 256,), (256,)), tw.exp(x) / (1.0 + tw.exp(x)))
"""
    assert not [o for o in check(text).obligations if o.code == "TW105"]


def test_a_largest_magnitude_is_no_reference_of_an_exponential() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def quantize(X: Global[f32, M, N], Y: Global[f32, M, N], S: Global[f32, M, 1]):
    tw.assume(N <= 64)
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, 64)), other=0.0)
        largest = tw.maximum(tw.max(tw.abs(x), axis=1, keep_dims=True), 1e-6)
        tw.store(Y.tile((i * 4, 0), (4, 64)), x / largest * 127.0)
        tw.store(S.tile((i * 4, 0), (4, 1)), largest)
"""
    assert check(text).verdict == "proved"


def test_a_lost_scale_is_not_taken_for_proved() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def odd(X: Global[f32, M, N], Y: Global[f32, M, N]):
    tw.assume(N <= 64)
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, 64)), other=-tw.inf)
        e = tw.exp(x - tw.max(x, axis=1, keep_dims=True))
        tw.store(Y.tile((i * 4, 0), (4, 64)), tw.tanh(e))
"""
    report = check(text)
    assert report.verdict == "unknown"
    assert "tanh was applied to it" in report.findings[0].message


def test_forms() -> None:
    m, new = reference("m#1"), reference("m_new#2")
    weight = exponential(total(Relative(), new, -1.0), np.e)
    alpha = exponential(total(m, new, -1.0), np.e)
    assert words(weight.scale) == "relative to m_new"
    assert words(alpha.scale) == "with the factor exp(m - m_new)"
    assert total(Relative(constant=0.0), weight).scale == weight.scale
    with pytest.raises(Mismatch):
        total(weight, alpha)
    assert total(new, logarithm(weight, np.e)).offset == ()
    assert times(weight, exponential(new, np.e)).scale == ()
    assert exponential(total(m, new, -1.0), 2.0).scale == plus((), alpha.scale, np.log(2))
    assert chosen(weight, alpha) is None
    assert chosen(weight, Relative(constant=1.0)) is not None
