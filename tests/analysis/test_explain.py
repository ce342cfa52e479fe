"""Every code that is emitted has a page, and the pages are in the package."""

import re
import tomllib
from pathlib import Path

import pytest

from tilewright_analysis import UnknownCode, codes, explain
from tilewright_analysis.explain import title

ROOT = Path(__file__).parents[2]


def emitted() -> set[str]:
    found: set[str] = set()
    for folder in ("dsl", "analysis"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r'"(TW\d{3})"', path.read_text(encoding="utf-8")))
    return found


def test_every_emitted_code_has_a_page_and_no_page_is_left_over() -> None:
    assert emitted() == set(codes())


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "diagnostics" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\[(TW\d{3})\]\(\1\.md\)", index)) == set(codes())
    for code in codes():
        assert f"| {title(code)} |" in index


@pytest.mark.parametrize("code", codes())
def test_a_page_says_what_why_and_what_to_do(code: str) -> None:
    page = explain(code)
    assert page.startswith(f"# {code}: ")
    assert "## Why" in page
    assert "## What to do" in page
    if "## Faulty" in page:
        assert re.search(rf"(error|warning)\[{code}\]", page.partition("## Faulty")[2].partition("## Fixed")[0])


def test_a_code_is_found_in_lower_case_and_an_unknown_one_is_refused() -> None:
    assert explain("tw301") == explain("TW301")
    with pytest.raises(UnknownCode, match="there is no diagnostic 'TW999'"):
        explain("TW999")


def test_the_pages_are_in_the_wheel() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"]["docs/diagnostics"] == "tilewright_analysis/pages"
