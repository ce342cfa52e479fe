"""Reports as workflow commands of GitHub Actions, which turn into annotations of the changed lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.source import SourceText
from tilewright_analysis.report import Finding
from tilewright_server.output.results import FileResult
from tilewright_server.output.words import situation

_LEVELS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def render(results: Sequence[FileResult]) -> str:
    """One line a finding; lines and columns are 1-based."""
    lines: list[str] = []
    for result in results:
        lines += [_annotation(finding, result.source) for finding in result.findings]
        lines += [f"::error file={_property(result.source.path)}::{_data(line)}" for line in result.crashes]
    return "\n".join(lines)


def _annotation(finding: Finding, source: SourceText) -> str:
    start, end = source.position(finding.span.start), source.position(finding.span.end)
    places = {
        "file": source.path,
        "line": start.line + 1,
        "endLine": end.line + 1,
        "title": f"{finding.code} {finding.kernel}".strip(),
    }
    if start.line == end.line:  # GitHub ignores an annotation with columns on several lines
        places |= {"col": start.character + 1, "endColumn": end.character + 1}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items())
    return f"::{_LEVELS[finding.severity]} {properties}::{_data(chr(10).join(_message(finding)))}"


def _message(finding: Finding) -> Iterator[str]:
    yield finding.message
    if finding.counterexample is not None:
        yield from situation(finding.counterexample)
    yield from (f"fix: {fix.title}" for fix in finding.fixes)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
