"""Faults seeded into the matrix product, at both levels: each is refuted with a counterexample that replays.

A fault is one textual edit of a clean kernel. The instruction-level ones are applied to the hand-written kernel and to the
printed expansion of the policy kernel, which differ in names only.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from reading import read
from tilewright.expand import expand_policies
from tilewright.printer import module_source
from tilewright_analysis import check_unit

EXAMPLES = Path(__file__).parents[2] / "examples"


def unit_of(text: str):
    module = read(text)
    assert not module.all_problems, module.all_problems
    (unit,) = (u for u in module.units if u.name.startswith("gemm") and u.name != "gemm_sm80")
    return unit


def hand_written() -> str:
    """The instruction-level example with its compile-time values folded as the printer folds them."""
    kernel = unit_of((EXAMPLES / "gemm_instructions.py").read_text()).kernel
    return module_source(kernel)


def expansion() -> str:
    return module_source(expand_policies(unit_of((EXAMPLES / "gemm.py").read_text()).kernel))


def without_comments(text: str) -> str:
    return "\n".join(line.partition("  #")[0] for line in text.splitlines()) + "\n"


@dataclass(frozen=True)
class Fault:
    """One edit, and the codes that may name it: what a reader would call the fault, or what it leads to first."""

    name: str
    before: str
    after: str
    codes: frozenset[str]
    count: int = 1


def fault(name: str, before: str, after: str, *codes: str, count: int = 1) -> Fault:
    return Fault(name, before, after, frozenset(codes), count)


FAULTS = [
    fault("stage off by one", "tw.tma_load(A.tile((pm * 128, k), (128, 64)), a_ring[it % 3]", "tw.tma_load(A.tile((pm * 128, k), (128, 64)), a_ring[(it + 1) % 3]", "TW401", "TW203", "TW204", "TW101"),
    fault("dropped wait for a full stage", "tw.wait(full[it % 3], it // 3 % 2)", "pass", "TW401", "TW203", "TW402"),
    fault("dropped wait for an empty stage", "tw.wait(empty[it % 3], it // 3 % 2 ^ 1)", "pass", "TW401", "TW402", "TW407"),
    fault("dropped fence", "tw.fence_async()", "pass", "TW404"),
    fault("swapped tile origin", "C.tile((pm * 128, pn * 256)", "C.tile((pn * 128, pm * 256)", "TW103", "TW301", "TW303"),
    fault("operand of another column", "B.tile((k, pn * 256)", "B.tile((k, pm * 256)", "TW103"),
    fault("contraction coordinate late", "B.tile((k, pn * 256)", "B.tile((k + 64, pn * 256)", "TW101"),
    fault("missing tail of the contraction", "for k in range(0, K, 64):", "for k in range(0, K // 64 * 64, 64):", "TW102", count=2),
    fault("missing tail of the grid", "tw.programs(tw.cdiv(M, 128) * tw.cdiv(N, 256)", "tw.programs(M // 128 * tw.cdiv(N, 256)", "TW303", count=2),
    fault("fixed width of the last group", "min(16, tw.cdiv(M, 128) - ", "min(16, 16 + 0 * ", "TW301", count=2),
    fault("release of the stage in use", "tw.arrive(empty[(it + 2) % 3])", "tw.arrive(empty[it % 3])", "TW401", "TW403", "TW402", "TW407"),
    fault("release too early", "tw.wgmma_wait(1)", "tw.wgmma_wait(2)", "TW401"),
    fault("too few bytes announced", "tw.expect(full[it % 3], 49152)", "tw.expect(full[it % 3], 49136)", "TW405", "TW403", "TW402"),
    fault("too many bytes announced", "tw.expect(full[it % 3], 49152)", "tw.expect(full[it % 3], 49168)", "TW405", "TW403", "TW402"),
    fault("parity not flipped", "it // 3 % 2 ^ 1", "it // 3 % 2", "TW403", "TW402"),
    fault("store not waited for", "tw.tma_store_wait(0)", "pass", "TW401", "TW406"),
    fault("two arrivals expected", "empty = tw.barrier(3, arrivals=1)", "empty = tw.barrier(3, arrivals=2)", "TW403", "TW407"),
    fault("first iteration skipped", "for k in range(0, K, 64):", "for k in range(64, K, 64):", "TW102", count=2),
]  # fmt: skip


def apply(text: str, fault: Fault) -> str:
    text = without_comments(text).replace("(it + 3 - 1) % 3", "(it + 2) % 3")
    assert text.count(fault.before) >= fault.count, f"'{fault.before}' is not in the kernel"
    return text.replace(fault.before, fault.after, fault.count)


@pytest.mark.parametrize("origin", [hand_written, expansion], ids=["hand-written", "expansion"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "-"))
def test_a_seeded_fault_is_refuted_with_a_replayed_counterexample(fault, origin):
    report = check_unit(unit_of(apply(origin(), fault)))
    refuted = [o for o in report.obligations if o.verdict == "refuted"]
    assert refuted, [(o.code, o.verdict, o.what) for o in report.obligations if o.verdict != "proved"]
    assert {o.code for o in refuted} & fault.codes, [(o.code, o.finding and o.finding.message) for o in refuted]
    for obligation in refuted:
        finding = obligation.finding
        assert finding is not None and finding.counterexample is not None
        assert finding.counterexample.sizes, finding.message
        assert finding.counterexample.replayed, (obligation.code, finding.message)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_clean_kernel_is_proved_at_both_levels(stages):
    for name in ("gemm.py", "gemm_instructions.py"):
        unit = unit_of((EXAMPLES / name).read_text()).with_consts(STAGES=stages, BN=128)
        report = check_unit(unit)
        assert report.verdict == "proved", [
            (o.code, o.verdict, o.what) for o in report.obligations if o.verdict != "proved"
        ]
        assert {"TW101", "TW102", "TW103", "TW401", "TW402", "TW403", "TW404", "TW405"} <= {
            o.code for o in report.obligations
        }
        again = check_unit(unit_of(module_source(expand_policies(unit.kernel))))
        assert again.verdict == "proved"


POLICY_FAULTS = [
    ("missing tail of the grid", "tw.tiles(tw.cdiv(M, BM),", "tw.tiles(M // BM,", "TW303"),
    ("swapped tile origin", "C.tile((pm * BM, pn * BN)", "C.tile((pn * BM, pm * BN)", "TW103"),
    ("tile width of another tile", "(k, pn * BN)", "(k, pn * BM)", "TW103"),
    ("contraction cut short", "tw.pipeline(0, K,", "tw.pipeline(0, K // BK * BK,", "TW102"),
    ("rows not aligned", "    tw.assume(K % 8 == 0)\n", "", "TW501"),
    ("too many stages", "STAGES: Const = 3", "STAGES: Const = 5", "TW601"),
]


@pytest.mark.parametrize(
    ("name", "before", "after", "code"), POLICY_FAULTS, ids=lambda v: v.replace(" ", "-") if " " in v else ""
)
def test_a_fault_in_the_policy_form_is_refuted(name, before, after, code):
    text = (EXAMPLES / "gemm.py").read_text().partition('@tw.kernel(target="sm_80"')[0]
    assert before in text
    report = check_unit(unit_of(text.replace(before, after, 1)))
    assert code in {o.code for o in report.obligations if o.verdict == "refuted"}, [
        (o.code, o.verdict, o.what) for o in report.obligations if o.verdict != "proved"
    ]
