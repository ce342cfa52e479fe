"""A sample of the mutants of `make mutants`, and that the parts of it work."""

from __future__ import annotations

import random

import pytest

from mutation.__main__ import summary
from mutation.cases import CASES, EXAMPLES
from mutation.fuzz import attacked
from mutation.judge import Judged, jobs, judge, run
from mutation.operators import mutants
from reading import read

SAMPLE = 40
ROWS = "softmax"


def case(name: str):
    return next(c for c in CASES if c.kernel == name)


def test_every_kernel_of_the_examples_is_mutated() -> None:
    names = {u.name for path in EXAMPLES.glob("*.py") for u in read(path.read_bytes()).units}
    assert names - {"faulty_gemm"} == {c.kernel for c in CASES}
    assert len({c.kernel for c in CASES}) == len(CASES)


@pytest.mark.parametrize("name", [c.kernel for c in CASES if c.file in ("softmax", "rotary", "activations")])
def test_the_meaning_of_an_example_is_what_it_computes(name: str) -> None:
    for text in case(name).texts().values():
        runs, failure = run(read(text).units[0].kernel, case(name))
        assert runs >= 5 and not failure


def test_a_wrong_kernel_fails_when_it_is_run() -> None:
    text = case(ROWS).policy_text().replace("axis=1, keep_dims=True))", "axis=1, keep_dims=True) + 1.0)")
    _, failure = run(read(text).units[0].kernel, case(ROWS))
    assert "should be" in failure


def test_an_edit_changes_one_place() -> None:
    text = case(ROWS).policy_text()
    found = list(mutants(text, ROWS))
    assert len({m.text for m in found}) == len(found) > 20
    assert all(m.text != text for m in found)
    assert "other deleted" in {m.operator for m in found}


def test_the_summary_counts_kills_among_those_that_are_not_equivalent() -> None:
    outcomes = ["clean", "refused", "refuted", "refuted", "survivor", "equivalent", "false alarm"]
    judged = [Judged("k", "written", "" if o == "clean" else "edit", 1, o, "") for o in outcomes]
    assert summary(judged) == "killed 3 of 4 (75.0 %), false alarms 1, equivalent 1"


def test_a_sample_of_mutants_is_killed_and_no_clean_kernel_is_refuted() -> None:
    work = [j for name in ("softmax", "layer_norm", "sum_of_parts", "gemm_sm80") for j in jobs(name)]
    clean, edited = [w for w in work if not w[2]], [w for w in work if w[2]]
    judged = [judge(*w) for w in (*clean, *random.Random(1).sample(edited, SAMPLE))]
    assert all(j.outcome == "clean" for j in judged[: len(clean)])
    assert not [j for j in judged if j.outcome == "false alarm"]
    survivors = [(j.kernel, j.operator, j.line, j.verdict, j.failure) for j in judged if j.outcome == "survivor"]
    assert len([s for s in survivors if s[3] == "proved"]) <= 2, survivors
    assert len(survivors) <= SAMPLE // 4, survivors


def test_verdicts_on_random_kernels_hold() -> None:
    found = [attacked(seed) for seed in range(40)]
    assert not [fault for _, fault in found if fault]
    verdicts = [verdict for verdict, _ in found]
    assert verdicts.count("proved") >= 8 and verdicts.count("refuted") >= 15
