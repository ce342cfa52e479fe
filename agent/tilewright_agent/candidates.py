"""Judging a variant before it runs: is it a change that may be made, how fast would it be, and is it proved?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tilewright.expand import ExpansionError
from tilewright.frontend import KernelUnit
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError, show
from tilewright.layout import LayoutError
from tilewright.source import SourceText
from tilewright_agent.variants import Candidate, one_line
from tilewright_analysis.perf import estimate
from tilewright_analysis.perf.shapes import Sizes
from tilewright_analysis.report import KernelReport

WORTH = 0.99  # a variant that is not at least this much faster is not worth a change


class Check(Protocol):
    """What verifies: `tilewright_analysis.check_unit`."""

    def __call__(self, unit: KernelUnit, *, cancelled: Callable[[], bool] | None = None) -> KernelReport:
        """The verdict on a kernel."""
        ...


def with_text(unit: KernelUnit, text: str, target: str) -> KernelUnit:
    """The unit with another text, elaborated anew in the same scope: exactly what the person will get."""
    key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return replace(unit, text=text, key=f"{unit.key}/{key}").with_consts(target)


def refuse(kernel: ir.Kernel, candidate: Candidate) -> bool:
    """Whether a candidate is out before the verifier sees it: it is invalid, or assumes other things than `kernel`."""
    changed = candidate.unit.kernel
    errors = [p for p in candidate.unit.problems if p.severity == "error"]
    if changed is None or errors:
        candidate.verdict = "refuted"
        candidate.reason = errors[0].message if errors else "it does not elaborate"
        return True
    before, after = ([show(a.expr) for a in k.assumptions] for k in (kernel, changed))
    if before != after:
        differing = next((a for a in after if a not in before), after[0] if after else "nothing")
        candidate.reason = f"it would assume {differing}, which the kernel as written does not"
        return True
    return False


def predict(candidate: Candidate, sizes: Sizes, device: str) -> None:
    """Give a candidate the time of the static model, or say why it is impossible."""
    kernel = candidate.unit.kernel
    if kernel is None:
        return
    try:
        result = estimate(kernel, sizes, device)
    except (ExpansionError, LayoutError, EvaluationError) as error:
        candidate.impossible, candidate.reason = True, str(error)
        return
    if result.resources.blocks == 0:
        candidate.impossible = True
        candidate.reason = f"a block does not fit the {result.device.name} ({result.resources.limiter})"
        return
    candidate.predicted_us = result.microseconds


def verify(candidate: Candidate, check: Check, cancelled: Callable[[], bool]) -> None:
    """Give a candidate its verdict, with the first finding where it is not proved."""
    report = check(candidate.unit, cancelled=cancelled)
    if cancelled():
        candidate.reason = "cancelled"
        return
    candidate.verdict = report.verdict
    if report.verdict != "proved":
        finding = next((f for f in report.findings if f.verdict == report.verdict), None)
        candidate.reason = one_line(finding) if finding is not None else "not everything is proved"


def documents(source: SourceText | None, unit: KernelUnit, best: KernelUnit) -> tuple[str, str]:
    """The document that holds `unit`, as it is and with `best` in its place; without one the texts of the kernels."""
    if source is None:
        return unit.text, best.text
    data, span = source.data, unit.span
    changed = data[: span.start] + best.text.encode() + data[span.end :]
    return data.decode("utf-8", "replace"), changed.decode("utf-8", "replace")
