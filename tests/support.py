"""Helpers for tests of whole kernels: check text, apply a fix."""

from __future__ import annotations

from reading import HEADER, read
from tilewright.problem import Fix
from tilewright_analysis import Finding, KernelReport, check_unit


def whole(text: str) -> str:
    """The text of a file: with the usual header unless it has one."""
    return text if "import tilewright" in text else f"{HEADER}\n\n{text}"


def check(text: str) -> KernelReport:
    """The report of the only kernel of a text; spans are relative to the file."""
    module = read(whole(text))
    assert not module.problems, module.problems
    (unit,) = module.units
    return check_unit(unit).shift(unit.offset)


def codes(report: KernelReport) -> list[str]:
    """Codes of the refuted findings, sorted."""
    return sorted(f.code for f in report.findings if f.verdict == "refuted")


def found(report: KernelReport, code: str) -> Finding:
    """The first refuted finding with that code."""
    return next(f for f in report.findings if f.code == code and f.verdict == "refuted")


def apply(text: str, fix: Fix) -> str:
    """The text after the edits of a fix, whose spans are relative to it."""
    data = text.encode()
    for edit in sorted(fix.edits, key=lambda e: e.span, reverse=True):
        data = data[: edit.span.start] + edit.text.encode() + data[edit.span.end :]
    return data.decode()


def check_fix(before: str, after: str, code: str) -> None:
    """The first fix of the first finding with `code` turns `before` into `after`, and the kernel is then free of it."""
    before, after = whole(before), whole(after)
    finding = found(check(before), code)
    assert finding.fixes, f"{code} offers no fix"
    fixed = apply(before, finding.fixes[0])
    assert fixed == after
    assert code not in codes(check(fixed)) or found(check(fixed), code).span != finding.span
