"""Collects what goes wrong during a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.problem import Fix, Related
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.model import Issue, Violation
from tilewright_analysis.async_.parts import Summand
from tilewright_analysis.async_.state import Event, Instance, Process, State
from tilewright_analysis.async_.words import at, touched


@dataclass(frozen=True, slots=True)
class Found:
    """An issue with the trip counts decided so far and the way to it."""

    issue: Issue
    oracles: dict[Instance, tuple[float, float]]
    events: Event | None


@dataclass(slots=True)
class Reporter:
    """Collects issues: for each obligation the first violation, else what is open. `tracing` keeps the way to each."""

    program: c.Program
    tracing: bool = False
    found: dict[tuple[str, str], Found] = field(default_factory=dict[tuple[str, str], Found])
    # What programs add to sums, by the statement that adds.
    summands: dict[str, set[Summand]] = field(default_factory=dict[str, "set[Summand]"])

    def violated(self) -> frozenset[tuple[str, str]]:
        """The obligations with a violation."""
        return frozenset(key for key, found in self.found.items() if not found.issue.unknown)

    def before(self, s: State, p: Process, o: c.Instr) -> None:
        """Note an operation for the trace."""
        if touched(o) and not (isinstance(o, c.Wait) and self._blocked(s, p, o)):
            s.events = Event(s.events, o, self.role(p), at(p))

    def _blocked(self, s: State, p: Process, o: c.Wait) -> bool:
        i = o.bar.barrier.first + int(o.bar.index(p.env))
        return i < len(s.phases) and s.phases[i].completed % 2 == (int(o.parity(p.env)) & 1)

    def role(self, p: Process) -> str:
        """The process in words."""
        name = p.role.name or "program"
        return f"{name}, warpgroup {p.groups}" if p.role.groups > 1 else name

    def _whose(self, p: Process) -> str:
        """The process as the subject of a sentence. A kernel without roles is itself meant."""
        return f"role {self.role(p)}" if p.role.name else "the kernel"

    def _within(self, p: Process) -> str:
        """In which role something stands, where there are roles."""
        return f", in role {self.role(p)}" if p.role.name else ""

    def note(
        self, s: State, p: Process | None, o: c.Instr, code: str, subject: str, message: str, *, fatal: bool = False,
        related: Iterable[Related] = (), fixes: Iterable[Fix] = (), values: dict[str, str] | None = None,
        touches: frozenset[str] = frozenset(), unknown: str = "", element: tuple[int, ...] = (),
        differs: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None, short: tuple[int, int] | None = None,
        thread: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Record an issue; raise it if it is fatal."""
        issue = Issue(
            code, subject, message, o.stmt.span, self.role(p) if p else "", dict(at(p)) if p else {}, tuple(related),
            tuple(fixes), values or {}, element, touches or touched(o), fatal, unknown, differs, short,
            thread=thread or {},
        )  # fmt: skip
        earlier = self.found.get((code, subject))
        if earlier is None or (earlier.issue.unknown and not unknown):
            self.found[code, subject] = Found(issue, {**s.past, **s.oracles}, s.events)
        if fatal:
            raise Violation(issue)
