"""The pages of the hints: the first kernel of each gets the hint, the second none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reading import HEADER
from tilewright.frontend import parse_module
from tilewright.source import SourceText
from tilewright_analysis.perf import hints

PAGES = Path(__file__).parents[3] / "docs" / "diagnostics"
SIZES = {"TW704": {"M": 3072, "N": 3072, "K": 3072}}


@pytest.mark.parametrize("code", ["TW701", "TW702", "TW703", "TW704", "TW705"])
def test_the_kernels_of_a_page_differ_by_its_hint(code: str) -> None:
    page = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    hinted, better = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert code in codes(hinted, code)
    assert codes(better, code) == set()


def codes(text: str, page: str) -> set[str]:
    (unit,) = parse_module(SourceText.of(f"{HEADER}\n\n{text}")).units
    assert unit.kernel is not None, unit.problems
    return {f.code for f in hints(unit.kernel, SIZES.get(page))}
