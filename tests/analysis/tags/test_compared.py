"""A kernel beside its reference: what counts as a difference, at which sizes, and what does not."""

from __future__ import annotations

import pytest

from reading import read
from support import check, found
from tilewright.expand import expand
from tilewright.frontend import KernelUnit
from tilewright.interpret.execution import outputs
from tilewright_analysis import check_kernel
from tilewright_analysis.checks.tags.compared import Comparison
from tilewright_reference import parse_reference

HEADER = 'import tilewright as tw\nfrom tilewright import Const, Global, Scalar, bf16, f16, f32, i8, i32\n\nM, N = tw.sizes("M", "N")\n\n\n'


def kernel(value: str, reference: str, dtype: str = "f32", out: str = "f32", assume: str = "N > 0") -> str:
    return HEADER + (
        f'@tw.kernel(target="sm_80", warps=4, reference="{reference}")\n'
        f"def k(A: Global[{dtype}, M, N], B: Global[{dtype}, M, N], C: Global[{out}, M, N]):\n"
        f"    tw.assume({assume})\n"
        "    for m, n in tw.tiles(tw.cdiv(M, 8), tw.cdiv(N, 32)):\n"
        "        a = tw.load(A.tile((m * 8, n * 32), (8, 32)), other=0)\n"
        "        b = tw.load(B.tile((m * 8, n * 32), (8, 32)), other=0)\n"
        f"        tw.store(C.tile((m * 8, n * 32), (8, 32)), {value})\n"
    )


def unit(text: str) -> KernelUnit:
    (only,) = read(text).units
    return only


def verdict(text: str) -> str:
    return check(text).verdict


def test_a_difference_has_the_smallest_sizes_and_both_values() -> None:
    finding = found(check(kernel("a - b", "A + B")), "TW108")
    example = finding.counterexample
    assert example is not None and example.replayed
    assert example.sizes == {"M": 1, "N": 1} and example.element == (0, 0)
    assert (
        set(example.values) == {"computed", "reference"} and example.values["computed"] != example.values["reference"]
    )
    assert "`A + B` gives" in finding.message and "M = 1, N = 1" in finding.message


def test_a_difference_of_larger_sizes_only_is_found_there() -> None:
    text = kernel("tw.where((n * 32 + tw.arange(32) < 33)[None, :], a, b)", "C = A")
    finding = found(check(text), "TW108")
    assert finding.counterexample is not None and finding.counterexample.sizes["N"] > 33


@pytest.mark.parametrize(
    ("value", "reference", "dtype", "out"),
    [
        ("a + b", "A + B", "f32", "f32"),
        ("(a.to(f32) + b.to(f32)).to(f16)", "A + B", "f16", "f16"),
        ("(a * b * a).to(f16)", "A * B * A", "f16", "f16"),
        ("(a * b * a).to(bf16)", "A * B * A", "bf16", "bf16"),
        ("tw.exp(a)", "exp(A)", "f32", "f32"),
        ("tw.log(a)", "log(A)", "f32", "f32"),
        ("a / b", "A / B", "f32", "f32"),
        ("a + b", "A + B", "i8", "i8"),
        ("a // 2", "A // 2", "i32", "i32"),
    ],
)
def test_what_agrees_is_proved_without_an_obligation_of_its_own(
    value: str, reference: str, dtype: str, out: str
) -> None:
    report = check(kernel(value, reference, dtype, out))
    assert report.verdict == "proved", report.findings
    assert "TW108" not in {o.code for o in report.obligations}


@pytest.mark.parametrize(
    ("value", "reference", "dtype", "out"),
    [
        ("a * b", "A * B * 1.01", "f32", "f32"),
        ("(a.to(f32) + 0.1).to(f16)", "A", "f16", "f16"),
        ("tw.exp(a) / (tw.exp(a) + tw.exp(b))", "sigmoid(A - B)", "f32", "f32"),
        ("a / tw.abs(a)", "A / maximum(abs(A), 1e-30 + A * 0)", "f32", "f32"),
        ("a + 1", "A", "i32", "i32"),
        ("a + b", "A", "i8", "i8"),
    ],
)
def test_what_differs_is_refuted(value: str, reference: str, dtype: str, out: str) -> None:
    assert verdict(kernel(value, reference, dtype, out)) == "refuted"


def test_without_a_reference_nothing_is_compared() -> None:
    assert verdict(kernel("a - b", "A + B").replace(', reference="A + B"', "")) == "proved"


def test_another_fault_is_told_first() -> None:
    text = kernel("a - b", "A + B").replace("m * 8, n * 32), (8, 32)), a - b", "m * 8, n * 32 + 32), (8, 32)), a - b")
    assert "TW108" not in {f.code for f in check(text).findings}


def test_sizes_that_an_assumption_gives() -> None:
    assert verdict(kernel("a - b", "A + B", assume="M == 3 * N + 5")) == "refuted"


def test_scalar_arguments_have_the_same_value_on_both_sides() -> None:
    text = kernel("a * scale", "A * scale").replace("C: Global", "scale: Scalar[f32], C: Global")
    assert verdict(text) == "proved"
    assert verdict(text.replace("a * scale", "a + scale")) == "refuted"


def test_a_reference_of_another_shape_differs() -> None:
    assert "shape" in found(check(kernel("a", "A.sum(1)")), "TW108").message


def test_constants_of_the_file_and_of_the_kernel_stand_for_their_values() -> None:
    text = kernel("a * TWICE + SHIFT", "A * TWICE + SHIFT").replace("M, N =", "TWICE = 2\nM, N =")
    text = text.replace("C: Global[f32, M, N])", "C: Global[f32, M, N], *, SHIFT: Const = 3)")
    assert unit(text).reference == "A * 2 + 3"
    assert unit(text).with_consts(SHIFT=4).reference == "A * 2 + 4"
    assert verdict(text) == "proved"


def test_what_cannot_run_is_not_taken_for_agreement() -> None:
    report = check(kernel("a", "A[:, 7]"))
    assert report.verdict in ("unknown", "refuted")
    assert {f.code for f in report.findings} == {"TW108"}


def test_time_that_is_used_up_leaves_the_question_open() -> None:
    only = unit(kernel("a - b", "A + B"))
    assert only.kernel is not None
    explicit = expand(only.kernel)
    comparison = Comparison(
        explicit, parse_reference("A + B", [a.name for a in explicit.arguments], outputs(explicit), explicit.sizes)
    )
    assert comparison.first_difference(-1.0) is None
    assert comparison.first_difference(10.0) is not None


def test_a_kernel_without_its_text_has_a_reference_too() -> None:
    only = unit(kernel("a - b", "A + B"))
    assert only.kernel is not None
    assert check_kernel(only.kernel, reference="A + B").verdict == "refuted"
    assert check_kernel(only.kernel).verdict == "proved"


def test_a_fault_that_the_interpreter_runs_into_is_not_made_up_for_by_other_sizes() -> None:
    text = kernel("a + tw.where((n * 32 + tw.arange(32) < 40)[None, :], 0.0, tw.load_shared(tile))", "A")
    text = text.replace("    for m, n", "    tile = tw.shared(f32, (8, 32))\n    for m, n")
    only = unit(text)
    assert only.kernel is not None, only.problems
    explicit = expand(only.kernel)
    comparison = Comparison(
        explicit, parse_reference("A", [a.name for a in explicit.arguments], outputs(explicit), explicit.sizes)
    )
    assert comparison.first_difference(10.0) is None
    assert "the interpreter stops" in comparison.failed and "uninitialized" in comparison.failed
