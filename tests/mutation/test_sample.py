"""A sample of the mutants of `make mutants`, and that the parts of it work."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mutation import batch
from mutation.__main__ import summary
from mutation.batch import OutOfTime, judged, kept, share
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
    outcomes = ["clean", "refused", "refuted", "refuted", "survivor", "equivalent", "false alarm", "not judged"]
    found = [Judged("k", "written", "" if o == "clean" else "edit", 1, o, "") for o in outcomes]
    assert summary(found) == "killed 3 of 4 (75.0 %), false alarms 1, equivalent 1, not judged 1"


def test_shares_are_all_of_it_once() -> None:
    work = [("k", "written", "edit", i, "") for i in range(7)]
    parts = [share(work, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(job for part in parts for job in part) == work
    assert share(work, "") == work
    for wrong in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(ValueError, match="a share is i/n"):
            share(work, wrong)


def test_a_later_run_takes_up_what_an_earlier_one_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, path = jobs("multiply_add")[:3], tmp_path / "mutants.jsonl"
    first = list(judged(work[:2], 1, 60.0, path, None))
    assert len(path.read_text().splitlines()) == len(first) == 2
    with path.open("a") as file:
        file.write('{"id": "torn')
    assert len(kept(path)) == 2
    again = list(judged(work, 1, 60.0, path, 0.0))
    assert again[:2] == first or again[:2] == first[::-1]
    assert len(again) == 2, "nothing new begins once the time is up"
    monkeypatch.setattr(batch, "version", lambda: "another")
    assert kept(path) == {}


def test_a_mutant_that_takes_too_long_is_not_decided() -> None:
    with pytest.raises(OutOfTime), batch._limit(0.05):
        while True:
            pass
    one = batch._timed(jobs("gemm_sm80")[1], 1e-4)
    assert (one.outcome, one.verdict) == ("undecided", "timeout")
    assert summary([one]) == "killed 0 of 1 (0.0 %), false alarms 0, equivalent 0, not judged 0"


def test_a_sample_of_mutants_is_killed_and_no_clean_kernel_is_refuted() -> None:
    work = [j for name in ("softmax", "layer_norm", "sum_of_parts", "gemm_sm80") for j in jobs(name)]
    clean, edited = [w for w in work if not w[2]], [w for w in work if w[2]]
    found = [judge(*w) for w in (*clean, *random.Random(1).sample(edited, SAMPLE))]
    assert all(j.outcome == "clean" for j in found[: len(clean)])
    assert not [j for j in found if j.outcome == "false alarm"]
    survivors = [(j.kernel, j.operator, j.line, j.verdict, j.failure) for j in found if j.outcome == "survivor"]
    assert not survivors


def test_verdicts_on_random_kernels_hold() -> None:
    found = [attacked(seed) for seed in range(40)]
    assert not [fault for _, fault in found if fault]
    verdicts = [verdict for verdict, _ in found]
    assert verdicts.count("proved") >= 8 and verdicts.count("refuted") >= 15
