"""Kernels with rings and their single edits, judged by the engine and by runs of the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analysis.async_ import rings
from analysis.async_.mutants import mutants
from tilewright.interpret import Kind, Violation, replay
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import explore

KERNELS: dict[str, Callable[[], ir.Kernel]] = {
    "3 stages": lambda: rings.stream(3),
    "5 stages, stage and phase": lambda: rings.stream(5, wrapped=True),
    "7 stages": lambda: rings.stream(7),
    "two loops": lambda: rings.stream(3, persistent=False, loops=2),
    "3 copies ahead": lambda: rings.copies_ahead(3),
    "5 copies ahead": lambda: rings.copies_ahead(5),
    "3 loads ahead": lambda: rings.loads_ahead(3),
    "rings of 3 and 2": lambda: rings.two_rings(3, 2),
    "rings of 2 and 5": lambda: rings.two_rings(2, 5, persistent=False),
    "three roles": lambda: rings.three_roles(3, 2),
    "three roles, not persistent": lambda: rings.three_roles(2, 3, persistent=False),
}
SIZES = tuple({"M": m, "N": n} for m, n in ((16, 16), (48, 16), (32, 48), (16, 80), (96, 40), (32, 160), (80, 24)))
# What other checks decide; and bytes that are delivered before they are announced, which a barrier allows.
ELSEWHERE: frozenset[Kind] = frozenset(("uncovered", "rewritten", "bounds"))


def failure(kernel: ir.Kernel, tries: int) -> Violation | None:
    for sizes in SIZES:
        found = replay(kernel, sizes, tries=tries)
        if found is not None and found.kind not in ELSEWHERE and "than were announced" not in found.message:
            return found
    return None


def proved(kernel: ir.Kernel) -> bool:
    return all(o.verdict == "proved" for o in explore(kernel).outcomes)


@pytest.mark.parametrize("name", KERNELS)
def test_a_ring_is_proved_and_runs(name: str) -> None:
    kernel = KERNELS[name]()
    assert proved(kernel)
    assert failure(kernel, 1) is None


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_edits_that_are_proved_never_fails(name: str) -> None:
    for number, (what, mutant) in enumerate(mutants(KERNELS[name]())):
        if number % 9 == 0 and "pm for pn" not in what and proved(mutant):
            assert failure(mutant, 1) is None, what


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_edit_that_is_proved_fails(name: str) -> None:
    refuted = total = 0
    for what, mutant in mutants(KERNELS[name]()):
        if "pm for pn" in what:
            continue
        result = explore(mutant)
        total += 1
        refuted += bool(result.refuted)
        if all(o.verdict == "proved" for o in result.outcomes):
            assert failure(mutant, 3) is None, what
    assert refuted >= 0.75 * total, f"{refuted} of {total}"
