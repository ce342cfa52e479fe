"""The driver: order, streaming, cancellation, failures inside a check, policies, problems, fixes."""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, sleep

import pytest

from analysis import kernels as build
from reading import read
from support import apply, check, check_fix, codes, found, whole
from tilewright.ir import nodes as ir
from tilewright.source import Span
from tilewright_analysis import Budget, KernelReport, Obligation, check_kernel, check_module, check_unit
from tilewright_analysis.checks import CHECKS, Check
from tilewright_analysis.context import KernelContext

SCALE = """
@tw.kernel(target="sm_80", warps=4)
def scale(X: Global[f32, N], Y: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, 1024)):
        x = tw.load(X.tile((i * 1024,), (1024,)), other=0.0)
        tw.store(Y.tile((i * 1024,), (1024,)), x * 2.0)
"""
WITHOUT_OTHER = SCALE.replace(", other=0.0", "")
COPY = """
@tw.kernel(target="sm_90a", warps=4)
def copy(X: Global[f16, M, N], Y: Global[f16, M, N]):
    tile = tw.shared(f16, (64, 64))
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        x = tw.load(X.tile((pm * 64, pn * 64), (64, 64)), other=0.0)
        tw.store_shared(tile, x)
        tw.fence_async()
        tw.tma_store(Y.tile((pm * 64, pn * 64), (64, 64)), tile)
        tw.tma_store_wait(0)
"""


def test_obligations_stream_in_the_order_of_the_report() -> None:
    seen: list[Obligation] = []
    report = check_kernel(build.fma(), on_obligation=seen.append)
    assert tuple(seen) == report.obligations
    assert report.verdict == "proved"
    families = [o.family for o in report.obligations]
    assert families.index("layout") < families.index("grid")


def test_cancelling_ends_the_run_and_keeps_what_was_decided() -> None:
    seen: list[Obligation] = []
    report = check_kernel(build.split_gemm(), on_obligation=seen.append, cancelled=lambda: len(seen) >= 5)
    assert len(report.obligations) == 5


def broken(context: KernelContext) -> Iterator[Obligation]:
    yield from CHECKS[0].run(context)
    raise RuntimeError("seeded failure")


def test_a_check_that_fails_is_unknown_and_hides_no_other() -> None:
    checks = (Check("seeded", "layout", ("TW999",), broken), *CHECKS)
    report = check_kernel(build.fma(), checks=checks)
    (unknown,) = (o for o in report.obligations if o.verdict == "unknown")
    assert unknown.code == "TW999"
    assert "internal error in check seeded: RuntimeError: seeded failure" in (
        unknown.finding.message if unknown.finding else ""
    ).replace("Internal", "internal")
    assert len(report.obligations) == len(check_kernel(build.fma()).obligations) + 2
    assert report.verdict == "unknown"


def test_what_there_was_no_time_for_is_unknown() -> None:
    report = check_kernel(build.fma(), budget=Budget(seconds=0.0), reference="X * Y + X")
    assert report.count("proved") == 0
    assert report.count("unknown") == len(CHECKS)
    # A kernel without a reference has nothing to be compared with, so nothing is missing.
    assert check_kernel(build.fma(), budget=Budget(seconds=0.0)).count("unknown") == len(CHECKS) - 1


def test_waiting_does_not_use_up_the_time() -> None:
    def busy() -> bool:
        sleep(0.05)
        return False

    begin = perf_counter()
    report = check_kernel(build.fma(), budget=Budget(seconds=1.0), cancelled=busy)
    assert perf_counter() - begin > 1.0
    assert report.verdict == "proved"


def test_policies_are_expanded_first() -> None:
    report = check(SCALE)
    assert report.verdict == "proved"
    assert {o.family for o in report.obligations} >= {"memory", "grid", "tags", "layout", "resources"}


def test_a_unit_with_errors_is_not_verified() -> None:
    report = check(SCALE.replace("x * 2.0", "y * 2.0"))
    assert report.obligations == ()
    assert [p.code for p in report.problems] == ["TW002"]
    assert report.verdict == "refuted"


def test_a_policy_that_cannot_be_expanded_is_a_problem() -> None:
    text = SCALE.replace("other=0.0)", 'other=0.0, via="tma")')
    report = check(text)
    assert [p.code for p in report.problems] == ["TW009"]
    assert "tw.pipeline" in report.problems[0].message


def test_spans_of_a_module_are_absolute() -> None:
    text = whole(SCALE) + WITHOUT_OTHER.replace("scale", "other")
    good, bad = check_module(read(text))
    assert good.verdict == "proved"
    span = found(bad, "TW201").span
    assert text.encode()[span.start : span.end] == b"X.tile((i * 1024,), (1024,))"
    assert span.start > text.index("def other")


def test_reports_do_not_depend_on_the_text_above() -> None:
    (one,) = read(whole(WITHOUT_OTHER)).units
    (two,) = read("# a comment\n\n" + whole(WITHOUT_OTHER)).units

    def strip(r: KernelReport) -> list[tuple[object, ...]]:
        return [(o.code, o.span, o.verdict, o.finding) for o in r.obligations]

    assert strip(check_unit(one)) == strip(check_unit(two))


def test_a_missing_other_is_inserted() -> None:
    check_fix(WITHOUT_OTHER, SCALE, "TW201")


def test_a_missing_assumption_is_inserted_as_a_line() -> None:
    fixed = COPY.replace("    tile = tw", "    tw.assume(N % 8 == 0)\n    tile = tw")
    check_fix(COPY, fixed, "TW501")
    assert check(fixed).verdict == "proved"


def test_an_assumption_goes_before_the_others_with_their_indentation() -> None:
    text = COPY.replace("    tile = tw", "    tw.assume(M % 2 == 0)\n    tile = tw").replace("    ", "\t")
    fixed = text.replace("\ttw.assume(M", "\ttw.assume(N % 8 == 0)\n\ttw.assume(M")
    check_fix(text, fixed, "TW501")


def test_an_assumption_uses_the_name_that_the_file_gives_the_module() -> None:
    text = whole(COPY).replace("import tilewright as tw", "import tilewright as t").replace("tw.", "t.")
    finding = found(check(text), "TW501")
    assert "    t.assume(N % 8 == 0)\n    tile = t.shared" in apply(text, finding.fixes[0])


def test_a_fence_is_inserted_where_it_was_missing() -> None:
    text = COPY.replace("    tile = tw", "    tw.assume(N % 8 == 0)\n    tile = tw")
    faulty = text.replace("        tw.fence_async()\n", "")
    finding = found(check(faulty), "TW404")
    fixed = apply(whole(faulty), finding.fixes[0])
    assert "TW404" not in codes(check(fixed))


@pytest.mark.parametrize("code", ["TW201", "TW303"])
def test_a_counterexample_names_sizes_program_and_place(code: str) -> None:
    text = WITHOUT_OTHER if code == "TW201" else SCALE.replace("tw.tiles(tw.cdiv(N, 1024))", "tw.tiles(N // 1024)")
    finding = found(check(text), code)
    example = finding.counterexample
    assert example is not None
    assert example.sizes == {"N": 1}
    assert example.replayed
    assert "N = 1" in finding.message


def test_a_counterexample_that_does_not_replay_is_no_refutation() -> None:
    def seeded(context: KernelContext) -> Iterator[Obligation]:
        from tilewright_analysis.checks.outcome import refuted
        from tilewright_analysis.report import Counterexample

        example = Counterexample({"N": 1})
        yield refuted(context, "TW302", "grid", "no tile is stored twice", Span(0, 1), "Wrong.", example=example)

    report = check_kernel(build.fma(), checks=(Check("seeded", "grid", ("TW302",), seeded),))
    (obligation,) = report.obligations
    assert obligation.verdict == "unknown"
    assert obligation.finding is not None
    assert obligation.finding.severity == "information"
    assert "did not replay" in obligation.finding.message


def test_sizes_too_large_for_the_interpreter_stay_refuted() -> None:
    text = SCALE.replace("Global[f32, N]", "Global[f32, M * N]").replace("tw.cdiv(N", "tw.cdiv(M * N")
    text = text.replace("(X: ", "(ROWS: Global[f32, M], COLUMNS: Global[f32, N], X: ")
    example = found(check(text), "TW205").counterexample
    assert example is not None
    assert example.sizes["M"] * example.sizes["N"] >= 2**31
    assert not example.replayed


def test_an_explicit_kernel_without_layouts_gets_the_better_message() -> None:
    kernel = build.split_gemm(bm=32, warps=4)
    report = check_kernel(kernel)
    assert report.problems == ()
    assert "TW503" in {o.code for o in report.obligations if o.verdict == "refuted"}


def test_assumptions_of_the_kernel_hold_in_every_counterexample() -> None:
    kernel = replace(
        build.softmax(), assumptions=(ir.Assumption(build.x("N % 3 == 0")), ir.Assumption(build.x("5 < M")))
    )
    example = next(f.counterexample for f in check_kernel(kernel).findings if f.code == "TW303")
    assert example is not None
    assert example.sizes["N"] % 3 == 0
    assert example.sizes["M"] > 5


def test_a_fault_of_a_tile_in_pieces_is_told_once() -> None:
    report = check("""
@tw.kernel(target="sm_80", warps=4)
def softmax(X: Global[f32, M, N], Y: Global[f32, M, N]):
    tw.assume(N <= 96)
    for i in tw.tiles(M):
        x = tw.load(X.tile((i, 0), (1, 96)), other=0.0)
        e = tw.exp(x)
        tw.store(Y.tile((i, 0), (1, 96)), e / tw.sum(e, axis=1, keep_dims=True))
""")
    (finding,) = report.findings
    assert finding.code == "TW104" and finding.counterexample is not None and finding.counterexample.replayed
    # A mask of one piece would not fit the tile that the text speaks of.
    assert not finding.fixes
