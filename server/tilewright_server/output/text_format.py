"""Reports for people: the source line, a caret, the counterexample and the fix; colour on a terminal only."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tilewright.problem import Edit, Fix
from tilewright.source import SourceText, Span
from tilewright_analysis.report import Counterexample, Finding, KernelReport, Obligation
from tilewright_server.output.results import FileResult
from tilewright_server.output.words import counts, duration, plural, situation

TAB_WIDTH = 4
_STYLES = {"error": "bold red", "warning": "bold yellow", "information": "bold blue", "hint": "bold cyan"}
_MARKS = {"proved": ("✓", "green"), "refuted": ("✗", "red"), "unknown": ("?", "yellow")}


def print_results(results: Sequence[FileResult], console: Console, *, verbose: bool = False) -> None:
    """Print every finding, then a line for each kernel and, if there is any file, one for the run.

    `verbose` adds the obligations of each kernel with how each was decided.
    """
    for result in results:
        for finding in result.findings:
            _print(console, *_finding(finding, result.source), Text())
    for result in results:
        for report in result.reports:
            _print(console, _summary(report, result.source))
            if verbose:
                _print(console, *(_obligation(o, result.source) for o in report.obligations))
        for line in result.crashes:
            _print(console, Text.assemble((f"{result.source.path}: internal error: ", "bold red"), line))
    if results:
        _print(console, _totals(results))


def render(results: Sequence[FileResult], *, verbose: bool = False) -> str:
    """The same as plain text."""
    console = Console(file=io.StringIO(), force_terminal=False, color_system=None, width=100)
    print_results(results, console, verbose=verbose)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def _print(console: Console, *lines: Text) -> None:
    """Long lines stay whole, so that a pipe gets one line where we say one line."""
    for line in lines:
        console.print(line, soft_wrap=True)


def _finding(finding: Finding, source: SourceText) -> Iterator[Text]:
    style = _STYLES[finding.severity]
    label = "unknown" if finding.verdict == "unknown" else finding.severity
    yield Text.assemble(
        (f"{place(finding.span, source)}: ", "bold"), (f"{label}[{finding.code}]", style), f": {finding.message}"
    )
    yield from _excerpt(finding.span, source, style)
    if finding.counterexample is not None:
        yield from _counterexample(finding.counterexample, source)
    for related in finding.related:
        yield Text.assemble(("  note: ", "bold cyan"), f"{place(related.span, source)}: {related.message}")
        yield from _excerpt(related.span, source, "cyan")
    for fix in finding.fixes:
        yield from _fix(fix, source)
    yield Text.assemble(("  help: ", "bold green"), f"tilewright explain {finding.code}")


def _excerpt(span: Span, source: SourceText, style: str) -> Iterator[Text]:
    """The line where a span starts, and carets under it; a span of several lines is marked to the end of the first."""
    start, last = source.line_of(span.start), source.line_of(max(span.start, span.end - 1))
    text = source.line_text(start)
    begin = source.line_starts[start]
    before = source.data[begin : span.start].decode("utf-8", "replace")
    marked = source.data[span.start : span.end].decode("utf-8", "replace").splitlines()
    column = cell_len(before.expandtabs(TAB_WIDTH))
    width = cell_len((before + (marked[0] if marked else "")).expandtabs(TAB_WIDTH)) - column
    number = str(start + 1)
    margin = " " * (len(number) + 1)
    until = f" … to line {last + 1}" if last > start else ""
    yield Text.assemble((f"  {number} │ ", "blue"), text.expandtabs(TAB_WIDTH))
    yield Text.assemble((f"  {margin}│ ", "blue"), (" " * column + "^" * max(1, width) + until, style))


def _counterexample(example: Counterexample, source: SourceText) -> Iterator[Text]:
    replayed = ", replayed in the interpreter" if example.replayed else ""
    yield Text.assemble(("  counterexample", "bold"), f"{replayed}:")
    for line in situation(example):
        yield Text(f"    {line}")
    if example.trace:
        yield Text("    what happens:")
    for number, step in enumerate(example.trace, 1):
        who = f" [{step.role}]" if step.role else ""
        yield Text(f"      {number}. line {source.line_of(step.span.start) + 1}{who}: {step.text}")


def _fix(fix: Fix, source: SourceText) -> Iterator[Text]:
    yield Text.assemble(("  fix: ", "bold green"), fix.title)
    for first, last, edits in _by_lines(fix, source):
        old = [source.line_text(line) for line in range(first, last + 1)]
        new, at = "", source.line_starts[first]
        for edit in edits:
            new += source.data[at : edit.span.start].decode("utf-8", "replace") + edit.text
            at = edit.span.end
        new += source.line_text(last)[_characters(source, last, at) :]
        for line in old:
            yield Text(f"    - {line}", style="red")
        for line in new.splitlines():
            yield Text(f"    + {line}", style="green")


def _by_lines(fix: Fix, source: SourceText) -> Iterator[tuple[int, int, list[Edit]]]:
    """The edits in the order of the text, those that share a line together, with their first and last line."""
    found: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(fix.edits, key=lambda e: (e.span.start, e.span.end)):
        first, last = source.line_of(edit.span.start), source.line_of(edit.span.end)
        if found and first <= found[-1][1]:
            start, end, edits = found.pop()
            found.append((start, max(end, last), [*edits, edit]))
        else:
            found.append((first, last, [edit]))
    yield from found


def _characters(source: SourceText, line: int, offset: int) -> int:
    return len(source.data[source.line_starts[line] : offset].decode("utf-8", "replace"))


def _summary(report: KernelReport, source: SourceText) -> Text:
    mark, style = _MARKS[report.verdict]
    line = Text.assemble(
        (f"{mark} {report.verdict}", f"bold {style}"),
        (f" {source.path}::{report.kernel}", "bold"),
        f": {counts(report)} in {duration(report.milliseconds)}",
    )
    if _invalid(report):
        return Text.assemble(
            ("✗ invalid", "bold red"), (f" {source.path}::{report.kernel}", "bold"), ": not verified, see above"
        )
    return line


def _invalid(report: KernelReport) -> bool:
    """True for a kernel with errors of the front end, which was not verified."""
    return not report.obligations and any(p.severity == "error" for p in report.problems)


def _obligation(obligation: Obligation, source: SourceText) -> Text:
    mark, style = _MARKS[obligation.verdict]
    how = f" ({obligation.how})" if obligation.how else ""
    line = source.line_of(obligation.span.start) + 1
    return Text.assemble((f"    {mark} ", style), f"{obligation.code} line {line}: {obligation.what}", (how, "dim"))


def _totals(results: Sequence[FileResult]) -> Text:
    reports = [report for result in results for report in result.reports]
    if not reports:
        found = sum(len(result.findings) for result in results)
        return Text(
            f"no kernels in {plural(len(results), 'file')}" + (f", {plural(found, 'problem')}" if found else "")
        )
    shown = ["invalid" if _invalid(r) else r.verdict for r in reports]
    verdicts = [f"{n} {v}" for v in ("proved", "refuted", "invalid", "unknown") if (n := shown.count(v))]
    return Text(f"{plural(len(reports), 'kernel')}: {', '.join(verdicts)}", style="bold")


def place(span: Span, source: SourceText) -> str:
    """`file:line:column` with 1-based line and column; columns count characters, as compilers do."""
    line = source.line_of(span.start)
    return f"{source.path}:{line + 1}:{_characters(source, line, span.start) + 1}"
