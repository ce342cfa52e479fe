"""Runs the Markdown files beside it, and the pages of the diagnostics: prose, and kernels with what the checker says about them on their lines.

A block of Python is a file of kernels; the usual header is put before it if it imports nothing. On a line,
`# error[TW301]: text` (also `warning`, `unknown`) says that a finding with that code starts there and that its message
contains `text`; several may stand on a line. Findings without a note and notes without a finding fail. A block with no notes must be proved
completely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reading import HEADER
from tilewright.frontend import parse_module
from tilewright.source import SourceText
from tilewright_analysis import Finding, check_module

FOLDER = Path(__file__).parent
PAGES = FOLDER.parents[1] / "docs" / "diagnostics"
NOTE = re.compile(r"# (error|warning|unknown)\[(TW\d{3})\](?:: *([^#\n]*?))? *(?=#|$)")


@dataclass(frozen=True)
class Block:
    name: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    title, lines = path.stem, path.read_text(encoding="utf-8").split("\n")
    inside: list[str] | None = None
    number = 0
    for line in lines:
        if inside is None and line.startswith("#"):
            title, number = line.lstrip("# "), 0
        elif inside is None and line.strip() == "```python":
            inside, number = [], number + 1
        elif inside is not None and line.strip() == "```":
            yield Block(f"{path.stem}: {title} ({number})", "\n".join(inside) + "\n")
            inside = None
        elif inside is not None:
            inside.append(line)
    assert inside is None, f"{path.name}: the last block is not closed"


def kind(finding: Finding) -> str:
    return "unknown" if finding.verdict == "unknown" else finding.severity


def outcome(text: str) -> tuple[list[tuple[int, str, str, str]], bool]:
    """Findings as (line from 1, kind, code, message), and whether every kernel is proved."""
    source = SourceText.of(text, "spec.py")
    module = parse_module(source)
    reports = check_module(module)
    findings = [Finding.of(p, "") for p in module.problems] + [f for r in reports for f in r.findings]
    rows = [(source.line_of(f.span.start) + 1, kind(f), f.code, f.message) for f in findings]
    return sorted(rows), bool(reports) and all(r.verdict == "proved" for r in reports)


def mismatches(text: str) -> list[str]:
    whole = text if "import tilewright" in text else f"{HEADER}\n\n{text}"
    wanted = [
        (number, m[1], m[2], (m[3] or "").strip())
        for number, line in enumerate(whole.split("\n"), 1)
        for m in NOTE.finditer(line)
    ]
    found, proved = outcome(whole)
    lines = whole.split("\n")
    wrong: list[str] = []
    for number, what, code, message in found:
        note = next((w for w in wanted if w[:3] == (number, what, code) and w[3] in message), None)
        if note is None:
            wrong.append(f"not in the spec: {lines[number - 1].strip()!r}: {what}[{code}]: {message}")
        else:
            wanted.remove(note)
    wrong += [f"not found: {lines[n - 1].strip()!r}: {what}[{code}]: {words}" for n, what, code, words in wanted]
    if not wrong and not found and not proved:
        wrong.append("not proved, and nothing says why")
    return wrong


ALL = [b for path in (*sorted(FOLDER.glob("*.md")), *sorted(PAGES.glob("*.md"))) for b in blocks(path)]


@pytest.mark.parametrize("block", ALL, ids=[b.name for b in ALL])
def test_spec(block: Block) -> None:
    wrong = mismatches(block.text)
    assert not wrong, "\n".join(wrong)


PROVED = """
@tw.kernel(target="sm_80", warps=4)
def scale(X: Global[f32, N], Y: Global[f32, N]):
    for i in tw.tiles(tw.cdiv(N, 1024)):
        x = tw.load(X.tile((i * 1024,), (1024,)), other=0.0)
        tw.store(Y.tile((i * 1024,), (1024,)), x * 2.0)
"""


def test_a_wrong_note_is_seen() -> None:
    assert mismatches(PROVED) == []
    noted = PROVED.replace("x * 2.0)", "x * 2.0)  # error[TW302]: written twice")
    assert [w[:9] for w in mismatches(noted)] == ["not found"]


def test_a_finding_without_a_note_is_seen() -> None:
    faulty = PROVED.replace(", other=0.0", "")
    assert [w[:15] for w in mismatches(faulty)] == ["not in the spec"]


def test_a_note_with_other_words_is_seen() -> None:
    faulty = PROVED.replace(", other=0.0)", ")  # error[TW201]: some other words")
    assert len(mismatches(faulty)) == 2
