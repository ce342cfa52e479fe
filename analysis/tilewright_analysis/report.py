"""What the verifier says: obligations with verdicts, findings with counterexamples. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tilewright.problem import Edit, Fix, Problem, Related, Severity
from tilewright.source import Span

Verdict = Literal["proved", "refuted", "unknown"]
Family = Literal["tags", "memory", "grid", "async", "layout", "resources", "performance"]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One statement on the way to a violation: where it stands, who executed it, and what happened in words."""

    span: Span
    text: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A concrete situation in which an obligation fails.

    `sizes` are problem sizes, `program` the program number, `iteration` the loop variables by name, `role` that which
    executes the statement, `thread` (keys warp, lane, register) and `element` (coordinates) where they apply, `values`
    what differs (for example {"K of A": "64", "K of B": "0"}), `trace` the statements that led there.
    `tables` are the index tensors by name, as nested lists. `replayed` says that the interpreter showed the same
    violation at these sizes.
    """

    sizes: Mapping[str, int]
    program: int | None = None
    iteration: Mapping[str, int] = field(default_factory=dict[str, int])
    role: str = ""
    thread: Mapping[str, int] = field(default_factory=dict[str, int])
    element: tuple[int, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    trace: tuple[TraceStep, ...] = ()
    replayed: bool = False
    tables: Mapping[str, list[object]] = field(default_factory=dict[str, "list[object]"])


@dataclass(frozen=True, slots=True)
class Finding:
    """One message for a person. Spans are relative to the kernel until `shift`."""

    code: str
    message: str
    span: Span
    kernel: str
    verdict: Verdict = "refuted"
    severity: Severity = "error"
    counterexample: Counterexample | None = None
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def shift(self, offset: int) -> Finding:
        """The finding with every span moved by `offset` bytes."""
        moved = self.as_problem().shift(offset)
        example = self.counterexample
        if example is not None:
            example = replace(example, trace=tuple(replace(s, span=s.span.shift(offset)) for s in example.trace))
        return replace(self, span=moved.span, related=moved.related, fixes=moved.fixes, counterexample=example)

    def as_problem(self) -> Problem:
        """Code, message and places without the counterexample."""
        return Problem(self.code, self.message, self.span, self.severity, self.related, self.fixes)

    @staticmethod
    def of(problem: Problem, kernel: str) -> Finding:
        """A problem of the front end as a finding."""
        return Finding(
            problem.code, problem.message, problem.span, kernel, "refuted", problem.severity, None,
            problem.related, problem.fixes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Obligation:
    """One statement that must hold, and whether it does. `finding` is set unless the verdict is proved."""

    code: str
    family: Family
    what: str
    span: Span
    verdict: Verdict
    finding: Finding | None = None
    how: str = ""
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelReport:
    """All that is known about one kernel. `problems` are the front end's; after an error nothing was verified."""

    kernel: str
    span: Span
    obligations: tuple[Obligation, ...] = ()
    problems: tuple[Finding, ...] = ()
    milliseconds: float = 0.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Problems and the findings of obligations that are not proved."""
        return self.problems + tuple(o.finding for o in self.obligations if o.finding is not None)

    def count(self, verdict: Verdict) -> int:
        """Number of obligations with that verdict."""
        return sum(o.verdict == verdict for o in self.obligations)

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is, else unknown if anything is or nothing could be checked, else proved."""
        if any(p.severity == "error" for p in self.problems) or self.count("refuted"):
            return "refuted"
        return "unknown" if self.count("unknown") or not self.obligations else "proved"

    def shift(self, offset: int) -> KernelReport:
        """The report with every span moved by `offset` bytes."""
        return replace(
            self,
            span=self.span.shift(offset),
            problems=tuple(p.shift(offset) for p in self.problems),
            obligations=tuple(
                replace(o, span=o.span.shift(offset), finding=o.finding.shift(offset) if o.finding else None)
                for o in self.obligations
            ),
        )


__all__ = [
    "Counterexample", "Edit", "Family", "Finding", "Fix", "KernelReport", "Obligation", "Problem", "Related",
    "TraceStep", "Verdict",
]  # fmt: skip
