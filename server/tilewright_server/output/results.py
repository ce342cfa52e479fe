"""What `tilewright check` found in one file, the input of every output format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.source import SourceText
from tilewright_analysis.report import Finding, KernelReport


@dataclass(frozen=True, slots=True)
class FileResult:
    """All that is known about one file; every span is absolute.

    `problems` belong to no kernel. `crashes` are errors of Tilewright itself, a line each.
    """

    source: SourceText
    problems: tuple[Finding, ...] = ()
    reports: tuple[KernelReport, ...] = ()
    crashes: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, in the order of the text."""
        found = [*self.problems, *(f for report in self.reports for f in report.findings)]
        return tuple(sorted(found, key=lambda f: (f.span.start, f.span.end, f.code)))


def exit_status(results: Sequence[FileResult], *, strict: bool) -> int:
    """0 clean, 1 refuted or invalid (with `strict` also when something stays unknown), 2 after a crash of our own."""
    if any(result.crashes for result in results):
        return 2
    failed = any(fails(finding, strict=strict) for result in results for finding in result.findings)
    undecided = strict and any(report.verdict == "unknown" for report in _reports(results))
    return int(failed or undecided)


def fails(finding: Finding, *, strict: bool) -> bool:
    """True when a finding makes the run fail: a refutation or an error; what is unknown only with `strict`."""
    if finding.verdict == "unknown":
        return strict
    return finding.severity == "error"


def _reports(results: Sequence[FileResult]) -> Iterator[KernelReport]:
    for result in results:
        yield from result.reports
