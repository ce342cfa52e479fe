"""The edge of the protocol: our values to LSP values and back. Columns are UTF-16 code units on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from lsprotocol import types
from pygls import uris

from tilewright.problem import Fix
from tilewright.source import Position, SourceText, Span
from tilewright_analysis.report import Counterexample, Finding
from tilewright_server import pages
from tilewright_server.output.words import situation
from tilewright_server.session import Change

SOURCE = "tilewright"
MOST_RELATED = 20

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}


def path_of(uri: str) -> str:
    """The path behind a URI for messages; the URI itself when it is no file."""
    return uris.to_fs_path(uri) or uri


def lsp_range(span: Span, source: SourceText) -> types.Range:
    """An absolute span as a range."""
    start, end = source.position(span.start), source.position(span.end)
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))


def offset(position: types.Position, source: SourceText) -> int:
    """A position as a byte offset."""
    return source.offset(Position(position.line, position.character))


def span(area: types.Range, source: SourceText) -> Span:
    """A range as an absolute span."""
    return Span(offset(area.start, source), offset(area.end, source))


def change(event: types.TextDocumentContentChangeEvent) -> Change:
    """An edit as a client reports it."""
    if isinstance(event, types.TextDocumentContentChangePartial):
        start, end = event.range.start, event.range.end
        return Change(event.text, Position(start.line, start.character), Position(end.line, end.character))
    return Change(event.text)


def diagnostic(finding: Finding, uri: str, source: SourceText) -> types.Diagnostic:
    """A finding with absolute spans. What could not be decided is never an error."""
    severity = finding.severity
    if finding.verdict == "unknown" and severity == "error":
        severity = "warning"
    page = pages.uri(finding.code)
    return types.Diagnostic(
        range=lsp_range(finding.span, source),
        message="\n".join(message_lines(finding)),
        severity=_SEVERITIES[severity],
        code=finding.code,
        code_description=types.CodeDescription(href=page) if page else None,
        source=SOURCE,
        related_information=list(_related(finding, uri, source)) or None,
        data={"kernel": finding.kernel, "verdict": finding.verdict},
    )


def message_lines(finding: Finding) -> Iterator[str]:
    """The message, and the counterexample in words."""
    yield finding.message
    if finding.counterexample is not None:
        yield "counterexample" + (" (replayed in the interpreter):" if finding.counterexample.replayed else ":")
        yield from (f"  {line}" for line in situation(finding.counterexample))


def workspace_edit(fix: Fix, uri: str, version: int, source: SourceText) -> types.WorkspaceEdit:
    """A fix with absolute spans, bound to the version of the document for which it was made."""
    edits = [types.TextEdit(lsp_range(edit.span, source), edit.text) for edit in fix.edits]
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(text_document=document, edits=list(edits))])


def mapping(value: object) -> Mapping[str, object]:
    """The fields of a JSON object of unknown shape, which pygls hands over as a dictionary or a named tuple."""
    if isinstance(value, Mapping):
        return cast(Mapping[str, object], value)
    as_dict = getattr(value, "_asdict", None)
    return cast(Mapping[str, object], as_dict()) if as_dict is not None else {}


def _related(finding: Finding, uri: str, source: SourceText) -> Iterator[types.DiagnosticRelatedInformation]:
    places = [(place.span, place.message) for place in finding.related]
    if finding.counterexample is not None:
        places += _steps(finding.counterexample)
    for where, message in places[:MOST_RELATED]:
        yield types.DiagnosticRelatedInformation(types.Location(uri, lsp_range(where, source)), message)


def _steps(example: Counterexample) -> Iterator[tuple[Span, str]]:
    for number, step in enumerate(example.trace, 1):
        yield step.span, f"{number}. {f'[{step.role}] ' if step.role else ''}{step.text}"
