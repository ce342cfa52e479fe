"""Reports as JSON; `schema/check.schema.json` describes the result.

Lines and columns are 0-based, columns count UTF-16 code units, as editors do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tilewright.problem import Fix
from tilewright.source import SourceText, Span
from tilewright_analysis.report import Counterexample, Finding, KernelReport
from tilewright_server.output.results import FileResult

VERSION = 1

Json = dict[str, object]


def render(results: Sequence[FileResult]) -> str:
    """The whole run as one JSON document."""
    return json.dumps(document(results), indent=2, ensure_ascii=False)


def document(results: Sequence[FileResult]) -> Json:
    """The whole run as plain values: `version`, `findings`, and `summary` with the counts of each kernel."""
    return {
        "version": VERSION,
        "findings": [finding_object(finding, result.source) for result in results for finding in result.findings],
        "summary": [summary_object(report, result.source) for result in results for report in result.reports],
        "errors": [{"file": result.source.path, "message": line} for result in results for line in result.crashes],
    }


def finding_object(finding: Finding, source: SourceText) -> Json:
    """One finding; `kernel` is null for what concerns the file as a whole."""
    return {
        "file": source.path,
        "kernel": finding.kernel or None,
        "code": finding.code,
        "severity": finding.severity,
        "verdict": finding.verdict,
        "message": finding.message,
        "range": range_object(finding.span, source),
        "counterexample": _counterexample(finding.counterexample, source),
        "related": [{"range": range_object(place.span, source), "message": place.message} for place in finding.related],
        "fixes": [_fix(fix, source) for fix in finding.fixes],
    }


def summary_object(report: KernelReport, source: SourceText) -> Json:
    """Verdict and counts of one kernel."""
    return {
        "file": source.path,
        "kernel": report.kernel,
        "verdict": report.verdict,
        "proved": report.count("proved"),
        "refuted": report.count("refuted"),
        "unknown": report.count("unknown"),
        "milliseconds": round(report.milliseconds, 3),
    }


def range_object(span: Span, source: SourceText) -> Json:
    """`{start: {line, character}, end: {line, character}}`."""
    start, end = source.position(span.start), source.position(span.end)
    return {
        "start": {"line": start.line, "character": start.character},
        "end": {"line": end.line, "character": end.character},
    }


def counterexample_facts(example: Counterexample) -> Iterator[tuple[str, object]]:
    """The fields of a counterexample but its trace, by their names in JSON."""
    yield "sizes", dict(example.sizes)
    yield "program", example.program
    yield "iteration", dict(example.iteration)
    yield "role", example.role or None
    yield "thread", dict(example.thread)
    yield "element", list(example.element)
    yield "values", dict(example.values)
    yield "tables", dict(example.tables)
    yield "replayed", example.replayed


def _counterexample(example: Counterexample | None, source: SourceText) -> Json | None:
    if example is None:
        return None
    trace = [
        {"range": range_object(step.span, source), "role": step.role or None, "text": step.text}
        for step in example.trace
    ]
    return {**dict(counterexample_facts(example)), "trace": trace}


def _fix(fix: Fix, source: SourceText) -> Json:
    edits = [{"range": range_object(edit.span, source), "newText": edit.text} for edit in fix.edits]
    return {"title": fix.title, "edits": edits}
