"""Edits of kernel text: only the policy changes, and the text means what was asked for."""

from __future__ import annotations

import pytest

from agent.support import FMA, GEMM, GEMM_SM80, unit
from tilewright.ir import nodes as ir
from tilewright_agent.rewrite import Source


def source(text: str) -> Source:
    found = unit(text)
    assert found.kernel is not None, found.problems
    return Source(found.text, found.kernel)


def kernel_of(text: str) -> ir.Kernel:
    found = unit(text)
    assert found.kernel is not None, found.problems
    return found.kernel


def changed_lines(before: str, after: str) -> list[str]:
    return [b for a, b in zip(before.splitlines(), after.splitlines(), strict=True) if a != b]


def test_the_policies_of_a_gemm_are_found() -> None:
    knobs = source(GEMM).knobs
    kinds = {k.name: k.kind for k in knobs.values()}
    assert kinds == {
        "BM": "tile", "BN": "tile", "BK": "tile", "STAGES": "stages", "GROUP": "group", "warps": "warps",
        "persistent": "persistent", "roles": "roles",
    }  # fmt: skip
    assert (knobs["BM"].value, knobs["persistent"].value, knobs["roles"].value) == (128, True, "split")
    assert source(GEMM_SM80).knobs["order"].value == 0


def test_the_text_as_it_is_stays_as_it_is() -> None:
    made = source(GEMM)
    assert made.with_point(dict(made.point())) == made.text


@pytest.mark.parametrize(
    ("text", "knob", "value", "line"),
    [
        (GEMM, "BM", 64, "    *, BM: Const = 64, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 16,"),
        (GEMM, "warps", 4, '@tw.kernel(target="sm_90a", warps=4, reference="C = A.float() @ B.float()")'),
        (
            GEMM, "persistent", False,
            "    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=False):",
        ),
        (
            GEMM_SM80, "persistent", True,
            "    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), persistent=True):",
        ),
        (
            GEMM_SM80, "order", 8,
            "    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(8)):",
        ),
        (FMA, "BLOCK", 512, None),
    ],
)  # fmt: skip
def test_one_policy_changes_one_line(text: str, knob: str, value: int, line: str | None) -> None:
    made = source(text)
    changed = made.with_point({knob: value})
    (only,) = changed_lines(made.text, changed)
    assert line is None or only == line
    assert Source(changed, kernel_of(changed)).knobs[knob].value == value


def test_roles_change_with_the_copies_they_need() -> None:
    made = source(GEMM)
    changed = made.with_point({"roles": "single"})
    assert len(changed_lines(made.text, changed)) == 3
    assert changed.count('via="cp_async"') == 2 and changed.count('via="tma"') == 1
    back = Source(changed, kernel_of(changed)).with_point({"roles": "split"})
    assert back == made.text


def test_literal_stages_are_a_policy_too() -> None:
    text = GEMM.replace("stages=STAGES", "stages=3").replace(" STAGES: Const = 3,", "")
    made = source(text)
    assert made.knobs["stages"].value == 3
    assert "stages=4" in made.with_point({"stages": 4})


def test_among_declared_choices_the_chosen_one_becomes_the_default() -> None:
    made = source(GEMM.replace("BM: Const = 128", "BM: Const = tw.choice(128, 64, 256)"))
    assert made.knobs["BM"].choices == (128, 64, 256)
    changed = made.with_point({"BM": 256})
    assert "BM: Const = tw.choice(256, 128, 64)" in changed
    assert kernel_of(changed).const_values()["BM"] == 256


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_comments_other_letters_and_line_ends_survive(ending: str) -> None:
    text = GEMM.replace(
        "    *, BM: Const = 128,", "    # Größe der Kachel: ∑\n    *, BM: Const = 128,  # Zeilen ≤ 128\n   "
    ).replace("\n", ending)
    made = source(text)
    changed = made.with_point({"BM": 64, "STAGES": 4})
    assert changed == made.text.replace("BM: Const = 128", "BM: Const = 64").replace(
        "STAGES: Const = 3", "STAGES: Const = 4"
    )
