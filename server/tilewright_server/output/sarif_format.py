"""Reports as SARIF 2.1.0 (OASIS standard), for code scanning services and viewers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.source import SourceText, Span
from tilewright_analysis.report import Counterexample, Finding
from tilewright_server import pages
from tilewright_server.output.json_format import Json, counterexample_facts
from tilewright_server.output.results import FileResult
from tilewright_server.output.words import situation

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "information": "note", "hint": "note"}


def render(results: Sequence[FileResult], version: str) -> str:
    """The whole run as one SARIF log; `version` is that of Tilewright."""
    return json.dumps(log(results, version), indent=2, ensure_ascii=False)


def log(results: Sequence[FileResult], version: str) -> Json:
    """The whole run as plain values."""
    codes = sorted({finding.code for result in results for finding in result.findings})
    notifications = [
        {"level": "error", "message": {"text": line}, "locations": [_location(Span(0, 0), result.source)]}
        for result in results
        for line in result.crashes
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "tilewright",
                        "version": version,
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "invocations": [
                    {
                        "executionSuccessful": not notifications,
                        "toolExecutionNotifications": notifications,
                    }
                ],
                "results": [
                    _result(finding, result.source, codes.index(finding.code))
                    for result in results
                    for finding in result.findings
                ],
            }
        ],
    }


def _rule(code: str) -> Json:
    title = pages.title(code)
    return {"id": code, "shortDescription": {"text": title}} if title else {"id": code}


def _result(finding: Finding, source: SourceText, rule: int) -> Json:
    # SARIF wants level "none" with every kind but "fail"; "open" is a check that could not be decided.
    undecided = finding.verdict == "unknown"
    example = finding.counterexample
    text = "\n".join([finding.message, *(situation(example) if example else ())])
    result: Json = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "kind": "open" if undecided else "fail",
        "level": "none" if undecided else _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(finding.span, source)],
        "relatedLocations": [_location(r.span, source, r.message) for r in finding.related],
        "properties": {
            "kernel": finding.kernel or None,
            "verdict": finding.verdict,
            "counterexample": dict(counterexample_facts(example)) if example else None,
        },
    }
    if example is not None and example.trace:
        result["codeFlows"] = [_code_flow(example, source)]
    if finding.fixes:
        result["fixes"] = [
            {
                "description": {"text": fix.title},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": source.path},
                        "replacements": [
                            {
                                "deletedRegion": _region(edit.span, source),
                                "insertedContent": {"text": edit.text},
                            }
                            for edit in fix.edits
                        ],
                    }
                ],
            }
            for fix in finding.fixes
        ]
    return result


def _code_flow(example: Counterexample, source: SourceText) -> Json:
    steps = [
        {"location": _location(step.span, source, f"{step.role}: {step.text}" if step.role else step.text)}
        for step in example.trace
    ]
    return {"threadFlows": [{"locations": steps}]}


def _location(span: Span, source: SourceText, message: str = "") -> Json:
    location: Json = {"physicalLocation": {"artifactLocation": {"uri": source.path}, "region": _region(span, source)}}
    if message:
        location["message"] = {"text": message}
    return location


def _region(span: Span, source: SourceText) -> Json:
    """SARIF counts lines and columns from 1; the end column is the one after the last character."""
    start, end = source.position(span.start), source.position(span.end)
    return {
        "startLine": start.line + 1,
        "startColumn": start.character + 1,
        "endLine": end.line + 1,
        "endColumn": end.character + 1,
    }
