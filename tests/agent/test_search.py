"""The search by itself, and the rules that feed it."""

from __future__ import annotations

from agent.support import GEMM, GEMM_SM80, SOFTMAX, unit
from tilewright_agent.rewrite import Source
from tilewright_agent.rules import RULES, proposals
from tilewright_agent.search import Search, State


def test_it_climbs_to_the_best_proved_candidate() -> None:
    # Scores of integers: the distance from 7; neighbours one step away; 5 cannot be proved, so 6 is met through 4 only.
    search = Search(0, 7.0, limit=20)
    while search.state is not State.DONE:
        if search.state is State.PROPOSE:
            search.propose((abs(7 - v), v) for v in (search.best - 1, search.best + 1, search.best + 2))
        else:
            search.record(search.current != 5)
    assert (search.best, search.best_score) == (7, 0.0)
    assert 5 not in [v for _, v in search.proved]


def test_candidates_that_promise_nothing_are_not_verified() -> None:
    search = Search("start", 10.0, limit=5)
    search.propose([(10.0, "equal"), (11.0, "worse")])
    assert search.state is State.DONE
    assert search.verified == 0


def test_slack_lets_nearly_as_good_ones_in() -> None:
    search = Search("start", 10.0, limit=5, slack=1.2)
    search.propose([(11.0, "nearly"), (13.0, "worse")])
    assert search.current == "nearly"
    search.record(True)
    assert search.state is State.DONE
    assert (search.best, search.proved) == ("start", [(11.0, "nearly")])


def test_the_most_promising_is_verified_first_and_the_limit_holds() -> None:
    search = Search("start", 10.0, limit=2)
    search.propose([(3.0, "c"), (1.0, "a"), (2.0, "b")])
    seen: list[str] = []
    while search.state is State.VERIFY:
        seen.append(search.current)
        search.record(False)
    assert seen == ["a", "b"]
    assert search.best == "start"


def test_without_candidates_it_ends() -> None:
    search = Search("start", 10.0, limit=2)
    search.propose([])
    assert search.state is State.DONE


def points(text: str, target: str) -> list[dict[str, object]]:
    found = unit(text)
    assert found.kernel is not None
    source = Source(found.text, found.kernel)
    return [dict(p.point) for p in proposals(source.knobs, source.point(), target)]


def test_every_rule_has_something_to_say_about_a_gemm() -> None:
    found = unit(GEMM)
    assert found.kernel is not None
    source = Source(found.text, found.kernel)
    names = {p.rule.name for p in proposals(source.knobs, source.point(), "sm_90a")}
    assert names == {r.name for r in RULES}


def test_roles_are_split_only_where_the_hardware_has_them() -> None:
    assert any(p["roles"] == "split" for p in points(GEMM_SM80, "sm_90a"))
    assert not any(p["roles"] == "split" for p in points(GEMM_SM80, "sm_80"))


def test_declared_choices_bound_a_tile() -> None:
    text = GEMM.replace("BM: Const = 128", "BM: Const = tw.choice(128, 64)")
    assert {p["BM"] for p in points(text, "sm_90a")} == {128, 64}


def test_a_kernel_without_a_pipeline_has_fewer_rules() -> None:
    keys = set(points(SOFTMAX, "sm_80")[0])
    assert "roles" not in keys and "ROWS" in keys
