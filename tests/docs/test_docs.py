"""The language pages and the README: their kernels do what the pages say, and no name of the language is left out."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright
from reading import HEADER
from specs.test_specs import blocks, mismatches, outcome
from tilewright import surface, surface_instructions, surface_layouts, surface_tiles
from tilewright.frontend.operations import Operations, public_names
from tilewright.targets import TARGETS

ROOT = Path(__file__).parents[2]
LANGUAGE = ROOT / "docs" / "language"
PAGES = [ROOT / "README.md", *sorted(LANGUAGE.glob("*.md"))]
REFERENCE = (LANGUAGE / "reference.md").read_text(encoding="utf-8")

KERNELS = [b for page in PAGES for b in blocks(page) if ".kernel" in b.text]


@pytest.mark.parametrize("block", KERNELS, ids=[b.name for b in KERNELS])
def test_kernels_of_the_pages_get_the_verdict_that_the_page_says(block):
    wrong = mismatches(block.text)
    assert not wrong, "\n".join(wrong)


def test_there_are_proved_and_faulty_kernels():
    faulty = [b for b in KERNELS if "# error[" in b.text]
    assert len(faulty) >= 10 and len(KERNELS) - len(faulty) >= 10


# ------------------------------------------------------------------------------------------------ answers


def answers() -> Iterator[tuple[str, str, str]]:
    """Each `text` block behind a kernel: page, kernel, and the answer that the page prints."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"```python\n((?:(?!```).)*?)```\n\n```text\n(.*?)```", text, re.S):
            yield page.stem, match[1], match[2]


ANSWERS = list(answers())


def without_numbers(text: str) -> str:
    """Counterexamples differ from one version of the solver to the next; the words do not."""
    return re.sub(r"\d+", "0", text)


@pytest.mark.parametrize(("page", "kernel", "answer"), ANSWERS, ids=[f"{p}-{i}" for i, (p, _, _) in enumerate(ANSWERS)])
def test_answers_are_those_of_the_verifier(page, kernel, answer):
    rows, _ = outcome(kernel if "import tilewright" in kernel else f"{HEADER}\n\n{kernel}")
    found = {without_numbers(f"{kind}[{code}]: {message}") for _, kind, code, message in rows}
    for line in answer.strip().splitlines():
        assert without_numbers(line) in found, found


INSTRUCTIONS = next(b.text for b in KERNELS if "def instructions(" in b.text)
CHANGES = [
    ("TW401", "tw.wgmma_wait(1)", "tw.wgmma_wait(2)"),
    ("TW401", "            tw.tma_store_wait(0)  # the store before has read c_tile\n", ""),
    ("TW402", "                tw.wait(empty[it % STAGES], it // STAGES % 2 ^ 1)\n", ""),
    ("TW403", "% 2 ^ 1)", "% 2)"),
    ("TW404", "            tw.fence_async()  # show it to TMA\n", ""),
    ("TW405", "(BM * BK + BK * BN) * 2", "BM * BK * 2"),
    ("TW406", "        tw.tma_store_wait(0)\n\n", "\n"),
]


@pytest.mark.parametrize(("code", "before", "after"), CHANGES, ids=[f"{c}-{b.strip()[:20]}" for c, b, _ in CHANGES])
def test_changing_one_line_gives_the_diagnostic_of_the_table(code, before, after):
    assert INSTRUCTIONS.count(before) == 1
    rows, _ = outcome(f"{HEADER}\n\n{INSTRUCTIONS.replace(before, after)}")
    assert code in {found for _, kind, found, _ in rows if kind == "error"}, rows


def test_pictures_of_layouts_are_what_the_library_draws(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (LANGUAGE / "layouts.md").read_text(encoding="utf-8")
    session = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.S))
    examples = doctest.DocTestParser().get_doctest(session, {}, "layouts.md", "layouts.md", 0)
    assert len(examples.examples) >= 15
    wrong: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(examples, out=wrong.append)
    assert result.failed == 0, "".join(wrong)


# ------------------------------------------------------------------------------------------------ completeness


def documented() -> set[str]:
    """Names in the headings of the reference and at the beginning of its table rows."""
    lines = [line for line in REFERENCE.splitlines() if line.startswith(("#", "| `"))]
    heads = [line.split("|")[1] if line.startswith("|") else line for line in lines]
    return set(re.findall(r"\b[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]*)`", " ".join(heads)))))


@pytest.mark.parametrize("name", sorted({*tilewright.__all__, *public_names()}))
def test_every_public_name_is_in_the_reference(name):
    assert name in documented()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target_is_in_the_reference(name):
    assert f"`{name}`" in REFERENCE


def test_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# ------------------------------------------------------------------------------------------------ signatures

# `min` and `max` are Python's for scalars and reductions for tiles, so the front end takes any number of arguments.
VARIADIC = {"min", "max"}
OPERATIONS = {n.removeprefix("op_"): getattr(Operations, n) for n in dir(Operations) if n.startswith("op_")}
FUNCTIONS = {
    name: function
    for module in (surface, surface_instructions, surface_layouts, surface_tiles)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__
}


def parameters(function) -> list[tuple[str, str, bool]]:
    """Name, kind, and whether it may be left out."""
    found = inspect.signature(function).parameters.values()
    return [
        (p.name, p.kind.name, p.default is not p.empty or p.kind is p.VAR_POSITIONAL)
        for p in found
        if p.name not in ("self", "node")
    ]


def test_surface_and_front_end_have_the_same_operations():
    python = {"range", "len", "int", "float"}
    declarations = {"func", "tag_function"}
    assert set(OPERATIONS) - python == set(FUNCTIONS) - declarations


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) & set(FUNCTIONS) - VARIADIC))
def test_surface_and_front_end_have_the_same_parameters(name):
    assert parameters(FUNCTIONS[name]) == parameters(OPERATIONS[name])


def test_methods_of_the_surface_are_those_of_the_front_end():
    assert parameters(tilewright.Tile.to) == parameters(Operations.method_to)[1:]
    assert parameters(tilewright.Global.tile) == parameters(Operations.method_tile)[1:]
