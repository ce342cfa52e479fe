"""The state of the language server: open documents, settings, and what is known about each kernel.

Only the event loop touches it. Everything else works on snapshots, which are frozen; a snapshot that is no longer the
current one of its document is obsolete, and what was computed from it is dropped or kept by content.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.frontend import KernelUnit, Module
from tilewright.source import Position, SourceText, Span
from tilewright_analysis.report import Finding, KernelReport, Obligation
from tilewright_server import engine

CACHED_REPORTS = 512


@dataclass(frozen=True, slots=True)
class Settings:
    """What the person has chosen. An empty `target` means the one of each kernel; `runner` is "local" or a command."""

    target: str = ""
    runner: str = "local"
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class KernelState:
    """What is known about one kernel of a snapshot. Spans are relative to the kernel.

    `obligations` grow while the kernel is checked, until `report` is there. `stale` are findings of the text before the
    last edit, moved along, shown until newer ones are known. `failure` says why there will be no report.
    """

    unit: KernelUnit
    obligations: tuple[Obligation, ...] = ()
    report: KernelReport | None = None
    stale: tuple[Finding, ...] = ()
    failure: str = ""

    @property
    def done(self) -> bool:
        """True when nothing more will become known without an edit."""
        return self.report is not None or bool(self.failure)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What to show now: problems of the front end, and the best known findings of the verifier."""
        problems = tuple(Finding.of(problem, self.unit.name) for problem in self.unit.problems)
        if self.report is not None:
            known = {(p.code, p.span) for p in problems}
            return problems + tuple(f for f in self.report.findings if (f.code, f.span) not in known)
        decided = tuple(o.finding for o in self.obligations if o.finding is not None)
        places = {(f.code, f.span) for f in decided}
        return problems + decided + tuple(f for f in self.stale if (f.code, f.span) not in places)

    @property
    def errors(self) -> int:
        """Number of problems because of which the kernel could not be verified."""
        problems = self.report.problems if self.report is not None else self.unit.problems
        return sum(problem.severity == "error" for problem in problems)

    def count(self, verdict: str) -> int:
        """Number of obligations decided so far with that verdict."""
        decided = self.report.obligations if self.report is not None else self.obligations
        return sum(obligation.verdict == verdict for obligation in decided)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a document with all that is known about it."""

    uri: str
    version: int
    module: Module
    kernels: tuple[KernelState, ...]

    @property
    def source(self) -> SourceText:
        """The text."""
        return self.module.source

    def kernel(self, name: str) -> KernelState | None:
        """The kernel of that name."""
        return next((state for state in self.kernels if state.unit.name == name), None)

    def kernel_at(self, offset: int) -> KernelState | None:
        """The kernel whose text holds the byte at an absolute offset."""
        for state in self.kernels:
            if state.unit.span.start <= offset <= state.unit.span.end:
                return state
        return None


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a document: replace the text between two positions, or the whole text when they are None."""

    text: str
    start: Position | None = None
    end: Position | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of a document, ahead of its snapshot while edits come faster than it can be parsed."""

    source: SourceText
    version: int
    parse_seconds: float = 0.0


class Session:
    """All open documents. Methods return the new snapshot, which the caller publishes."""

    def __init__(self) -> None:
        self.settings = Settings()
        self._texts: dict[str, _Text] = {}
        self._documents: dict[str, Snapshot] = {}
        self._reports: OrderedDict[tuple[str, str], KernelReport] = OrderedDict()

    def snapshot(self, uri: str) -> Snapshot | None:
        """The current state of an open document."""
        return self._documents.get(uri)

    def documents(self) -> tuple[Snapshot, ...]:
        """The current states of all open documents."""
        return tuple(self._documents.values())

    def open(self, uri: str, path: str, text: str, version: int) -> Snapshot:
        """A document has been opened."""
        self._texts[uri] = _Text(SourceText.of(text, path), version)
        return self.parse(uri)

    def edit(self, uri: str, changes: Sequence[Change], version: int) -> float:
        """A document has been edited; changes apply one after another. `parse` then makes the snapshot.

        Returns how many seconds parsing is likely to take, so that the caller can wait for the end of a burst of edits.
        Raises KeyError if the document is not open.
        """
        source = self._texts[uri].source
        for change in changes:
            source = _apply(source, change)
        self._texts[uri] = replace(self._texts[uri], source=source, version=version)
        return self._texts[uri].parse_seconds

    def parse(self, uri: str) -> Snapshot:
        """The snapshot of the present text. Raises KeyError if the document is not open."""
        text, before = self._texts[uri], self._documents.get(uri)
        begin = time.perf_counter()
        module = engine.parse(text.source, before.module if before else None)
        self._texts[uri] = replace(text, parse_seconds=time.perf_counter() - begin)
        old = {state.unit.name: state for state in before.kernels} if before else {}
        states = tuple(self._state(unit, old.get(unit.name)) for unit in module.units)
        return self._store(Snapshot(uri, text.version, module, states))

    def close(self, uri: str) -> None:
        """A document has been closed."""
        self._texts.pop(uri, None)
        self._documents.pop(uri, None)

    def forget_verdicts(self) -> tuple[Snapshot, ...]:
        """The settings have changed: take verdicts from the cache or drop them. All documents."""
        for snapshot in self.documents():
            states = tuple(self._state(state.unit, None) for state in snapshot.kernels)
            self._store(replace(snapshot, kernels=states))
        return self.documents()

    def recheck(self, uri: str, unit: KernelUnit) -> Snapshot | None:
        """Drop the verdict on one kernel, also from the cache; None when there is nothing to check again."""
        if unit.kernel is None:
            return None
        self._reports.pop((unit.key, self.settings.target), None)
        return self.update(uri, unit, obligations=(), report=None, failure="", stale=())

    def update(self, uri: str, unit: KernelUnit, **changes: object) -> Snapshot | None:
        """Set fields of the state of a kernel, wherever that kernel now stands; None if it is no longer there."""
        snapshot = self._documents.get(uri)
        if snapshot is None:
            return None
        if all(state.unit.key != unit.key for state in snapshot.kernels):
            return None
        states = tuple(
            replace(state, **changes) if state.unit.key == unit.key else state  # pyright: ignore[reportArgumentType]
            for state in snapshot.kernels
        )
        return self._store(replace(snapshot, kernels=states))

    def remember(self, unit: KernelUnit, report: KernelReport) -> None:
        """Keep a verdict, so that an unchanged kernel is not verified again."""
        self._reports[unit.key, self.settings.target] = report
        while len(self._reports) > CACHED_REPORTS:
            self._reports.popitem(last=False)

    def _state(self, unit: KernelUnit, before: KernelState | None) -> KernelState:
        if unit.kernel is None or any(problem.severity == "error" for problem in unit.problems):
            problems = tuple(Finding.of(problem, unit.name) for problem in unit.problems)
            return KernelState(unit, report=KernelReport(unit.name, Span(0, len(unit.text)), (), problems))
        cached = self._reports.get((unit.key, self.settings.target))
        if cached is not None:
            self._reports.move_to_end((unit.key, self.settings.target))
            return KernelState(unit, report=cached)
        if before is None:
            return KernelState(unit)
        if before.unit.key == unit.key:
            return replace(before, unit=unit)
        return KernelState(unit, stale=moved_along(before, unit.text))

    def _store(self, snapshot: Snapshot) -> Snapshot:
        self._documents[snapshot.uri] = snapshot
        return snapshot


def moved_along(state: KernelState, text: str) -> tuple[Finding, ...]:
    """The verifier's findings of a kernel, at their places in its edited text, without those that the edit touches."""
    old, new = state.unit.text.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    moved: list[Finding] = []
    for finding in state.findings[len(state.unit.problems) :]:
        bare = replace(finding, related=(), fixes=(), counterexample=None)  # their places may not have moved alike
        if finding.span.end <= head:
            moved.append(bare)
        elif finding.span.start >= len(old) - tail:
            moved.append(bare.shift(len(new) - len(old)))
    return tuple(moved)


def _apply(source: SourceText, change: Change) -> SourceText:
    new = change.text.encode("utf-8", "surrogatepass")
    if change.start is None or change.end is None:
        return SourceText(new, source.path)
    start, end = source.offset(change.start), source.offset(change.end)
    return SourceText(source.data[:start] + new + source.data[max(start, end) :], source.path)
