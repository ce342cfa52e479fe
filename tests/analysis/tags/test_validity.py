"""TW104: what lanes past an edge hold, fixes, counterexamples, and proofs attacked by the interpreter."""

from itertools import product

import numpy as np
import pytest

from support import check, check_fix, codes, found
from tilewright.dtypes import f32, i32
from tilewright.ir.expr import Size
from tilewright_analysis.checks.tags import masks
from tilewright_analysis.checks.tags.masks import Atom, Index, Mask
from tilewright_analysis.checks.tags.numbers import ANYTHING, FINITE, Number, apply, constant, total

VARIANCE = """
@tw.kernel(target="sm_80", warps=4)
def variance(X: Global[f32, M, N], V: Global[f32, M, 1]):
    tw.assume(N <= 64)
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, 64)), other=0.0)
        d = x - tw.sum(x, axis=1, keep_dims=True) / N
        v = tw.sum(d * d, axis=1, keep_dims=True)
        tw.store(V.tile((i * 4, 0), (4, 1)), v)
"""


def test_a_counterexample_was_run_and_names_both_results() -> None:
    finding = found(check(VARIANCE), "TW104")
    example = finding.counterexample
    assert example is not None and example.replayed
    assert example.sizes["N"] < 64
    got, repaired = (float(v) for v in example.values.values())
    assert got > repaired
    assert "V[0, 0]" in finding.message
    assert [r.message for r in finding.related] == [
        "X is loaded here", "after this, lanes past the edge no longer hold what they were given",
    ]  # fmt: skip


def test_the_fix_masks_the_lanes_past_the_edge() -> None:
    check_fix(VARIANCE, VARIANCE.replace("d * d", "tw.where((tw.arange(64) < N)[None, :], d * d, 0.0)"), "TW104")


def test_the_fix_of_a_maximum_and_of_blocks() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def largest(X: Global[f32, M, N], V: Global[f32, M, 1]):
    for i in tw.tiles(tw.cdiv(M, 4)):
        m = tw.full(f32, (4, 1), -tw.inf)
        for j in range(0, N, 64):
            x = tw.load(X.tile((i * 4, j), (4, 64)), other=0.0)
            m = tw.maximum(m, tw.max(x, axis=1, keep_dims=True))
        tw.store(V.tile((i * 4, 0), (4, 1)), m)
"""
    fixed = text.replace("tw.max(x, ", "tw.max(tw.where((j + tw.arange(64) < N)[None, :], x, -tw.inf), ")
    check_fix(text, fixed, "TW104")


BODY = """
@tw.kernel(target="sm_80", warps=4)
def rows(X: Global[f32, M, N], V: Global[f32, M, 1]):
    {assume}
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, 16)), other={other})
        y = {function}
        tw.store(V.tile((i * 4, 0), (4, 1)), tw.{reduce}(y, axis=1, keep_dims=True))
"""
FUNCTIONS = (
    "x",
    "x * 2.0",
    "x + 1.0",
    "tw.exp(x)",
    "tw.abs(x)",
    "-x",
    "tw.maximum(x, 0.0)",
    "x * x - x",
    "1.0 / (x + 9.0)",
)
REFERENCE = {
    "x": lambda x: x, "x * 2.0": lambda x: x * 2, "x + 1.0": lambda x: x + 1, "tw.exp(x)": np.exp, "tw.abs(x)": np.abs,
    "-x": np.negative, "tw.maximum(x, 0.0)": lambda x: np.maximum(x, 0), "x * x - x": lambda x: x * x - x,
    "1.0 / (x + 9.0)": lambda x: 1 / (x + 9),
}  # fmt: skip
CASES = list(product(FUNCTIONS, ("0.0", "-tw.inf", "1.0"), ("sum", "max", "min")))


@pytest.mark.parametrize(("function", "other", "reduce"), CASES)
def test_verdicts_agree_with_a_reference(function: str, other: str, reduce: str) -> None:
    """Proved kernels give what NumPy gives on the elements alone; refuted ones do not, at the counterexample's sizes."""
    from reading import read
    from support import whole
    from tilewright.expand import expand
    from tilewright.interpret import run

    text = BODY.format(assume="tw.assume(N <= 16)", function=function, other=other, reduce=reduce)
    report = check(text)
    (unit,) = read(whole(text)).units
    assert unit.kernel is not None
    kernel = expand(unit.kernel)
    refuted = [f for f in report.findings if f.code == "TW104" and f.verdict == "refuted"]
    sizes = [(3, 5), (5, 16), (1, 1), (9, 11)]
    if refuted:
        example = refuted[0].counterexample
        assert example is not None
        sizes = [(example.sizes["M"], example.sizes["N"])]
    elif report.verdict == "unknown":
        pytest.fail(f"undecided: {[f.message for f in report.findings]}")
    wrong = False
    for (m, n), seed in product(sizes, (0, 1)):
        x = np.random.default_rng(seed).integers(-4, 5, (m, n)).astype(np.float32) / (1 + 3 * seed)
        out = np.zeros((m, 1), np.float32)
        run(kernel, [x, out])
        want = getattr(np, reduce)(REFERENCE[function](x), axis=1, keepdims=True)
        wrong |= not np.allclose(out, want, rtol=1e-4, atol=1e-4)
    assert wrong == bool(refuted)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_full_row_needs_no_neutral_lanes(function: str) -> None:
    text = BODY.format(assume="tw.assume(N == 16)", function=function, other="1.0", reduce="sum")
    assert check(text).verdict == "proved"


def test_rows_past_the_edge_are_stored_but_not_summed() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def both(X: Global[f32, M, N], V: Global[f32, M, 1]):
    tw.assume(N <= 16)
    for i in tw.tiles(tw.cdiv(M, 16)):
        x = tw.load(X.tile((i * 16, 0), (16, 16)), other=-tw.inf)
        m = tw.max(x, axis=1, keep_dims=True)
        tw.store(V.tile((i * 16, 0), (16, 1)), m + tw.log(tw.sum(tw.exp(x - m), axis=1, keep_dims=True)))
"""
    assert check(text).verdict == "proved"


def test_a_regrouped_edge_is_not_taken_for_proved() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def folded(X: Global[f32, N], V: Global[f32, 16, 1]):
    tw.assume(N <= 64)
    for i in tw.tiles(1):
        x = tw.load(X.tile((0,), (64,)), other=1.0)
        y = tw.reshape(x, (16, 4))
        tw.store(V.tile((0, 0), (16, 1)), tw.sum(y, axis=1, keep_dims=True))
"""
    report = check(text)
    assert codes(report) == []
    (finding,) = (f for f in report.findings if f.code == "TW104")
    assert "its axes were regrouped" in finding.message


def test_numbers() -> None:
    minus_inf = constant(float("-inf"))
    assert apply("exp", [apply("sub", [minus_inf, FINITE], f32)], f32).is_zero
    assert apply("mul", [constant(0.0), constant(float("inf"))], f32).kinds == {"nan"}
    assert apply("mul", [constant(0.0), FINITE], f32).is_zero
    assert "nan" in apply("mul", [constant(0.0), ANYTHING], f32).kinds
    assert apply("sub", [minus_inf, minus_inf], f32).kinds == {"nan"}
    assert total(Number(frozenset("+"))).kinds == {"+"}
    assert total(FINITE).kinds == {"-", "0", "+"}
    assert constant(0.0).at_most(Number(frozenset("0+")))
    assert not constant(0.0).at_most(FINITE)
    assert minus_inf.at_most(FINITE)
    assert str(constant(0.5)) == "0.5"


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum", "div"])
def test_numbers_hold_what_arithmetic_gives(op: str) -> None:
    """The kinds of a result cover every pair of numbers of the operands' kinds, division by zero aside."""
    from tilewright.interpret.compute import compute

    numbers = [-7.5, -1.0, -0.001, 0.0, 0.001, 1.0, 12.0, float("inf"), float("-inf")]
    for a, b in product(numbers, repeat=2):
        if op == "div" and b == 0:
            continue
        got = float(compute(op, [np.asarray([a]), np.asarray([b])], f32, (1,), None, False)[0])
        kinds = [Number(constant(v).kinds) for v in (a, b)]
        assert constant(got).kinds <= apply(op, kinds, f32).kinds, (a, op, b)


def test_masks_of_index_tiles() -> None:
    columns = masks.shifted("add", Size("N"), Index(1, Size("M")))
    assert columns is not None and columns.axis == 1
    less = masks.compared("lt", Index(0, Size("M")), Size("N"))
    assert less == Mask(frozenset((Atom(0, Size("M"), Size("N")),)), exact=True)
    assert masks.compared("gt", Size("N"), Index(0, Size("M"))) == less
    past = masks.compared("ge", Index(0, Size("M")), Size("N"))
    assert past is not None and less is not None
    assert masks.combined("not", [past]) == Mask(less.when_true)
    assert masks.compared("eq", Index(0, Size("M")), Size("N")) is None
    assert apply("add", [constant(0), constant(0)], i32).is_zero


def test_lanes_inside_a_softmax_are_put_right_by_what_its_maximum_needs() -> None:
    text = """
@tw.kernel(target="sm_80", warps=4)
def weights(X: Global[f32, M, N], P: Global[f32, M, N]):
    tw.assume(N <= 64)
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, 64)), other=0.0)
        tw.store(P.tile((i * 4, 0), (4, 64)), tw.softmax(x, axis=1))
"""
    fixes = [f.title for finding in check(text).findings for f in finding.fixes]
    # Zeros in the argument would be ones in the sum.
    assert fixes == ["Put -tw.inf into the lanes past the edge"]
