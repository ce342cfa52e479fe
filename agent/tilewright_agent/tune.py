"""Tune a kernel: verify its configurations, run the proved ones on one or several runners, and keep the fastest.

Each decided configuration is in the history as soon as it is known, so a search that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.frontend import KernelUnit
from tilewright.source import SourceText
from tilewright_agent.candidates import WORTH, Check, documents, verify
from tilewright_agent.history import History, Record, Tuning, record_of
from tilewright_agent.jobs import NotRunnable
from tilewright_agent.pool import Pool, Work
from tilewright_agent.runner import Case, RunResult
from tilewright_agent.space import configurations
from tilewright_agent.transport import LOCAL
from tilewright_agent.variants import Candidate, Optimization, as_variant, headline, rank, size_text, summary
from tilewright_analysis import check_unit
from tilewright_analysis.perf.shapes import Sizes, broken_assumption, large_shapes, small_shapes

LIMIT = 64  # configurations


class OnProgress(Protocol):
    """Told of each decided configuration."""

    def __call__(self, done: int, total: int, message: str, /) -> None:
        """`done` of `total` are decided; `message` is about the last one."""
        ...


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came out, as of `optimize`. `resumed` configurations were known before, `decided` of `total` are now."""

    outcome: Optimization
    total: int
    decided: int
    resumed: int


def tune(
    unit: KernelUnit,
    *,
    source: SourceText | None = None,
    runners: Sequence[str] = (LOCAL,),
    shapes: Sequence[Sizes] = (),
    history: History | None = None,
    fresh: bool = False,
    check: Check = check_unit,
    progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
    limit: int = LIMIT,
    device: str = "H200",
) -> Tuned:
    """The fastest proved configuration of a kernel, over its declared choices and the rules of `optimize`.

    Args:
        unit: the kernel, without errors; compile-time arguments count with their defaults.
        source: the document that holds it.
        runners: each does one configuration at a time. All must have the same device, because times are compared.
        shapes: sizes to time at; the geometric mean of the times decides. By default the first large shape.
        history: takes each decided configuration, and has those of a search that was broken off; None: neither.
        fresh: do not go on with a search that was broken off.
        check: the verifier. Only what it proves is run.
        progress: told of each decided configuration.
        cancelled: polled; what was found until then is returned.
        limit: how many configurations are considered.
        device: the device of the static model, which decides the order and, without a GPU, the winner.

    Raises ConnectionFailed when there is no runner (left), Cancelled, HistoryError, and NotRunnable for a kernel that
    has errors, for shapes that its assumptions exclude, and for runners with different devices.
    """
    kernel = unit.kernel
    errors = [p for p in unit.problems if p.severity == "error"]
    if kernel is None or errors:
        raise NotRunnable(f"{unit.name} is not tuned: {errors[0].message if errors else 'it could not be understood'}")
    if any(c.value != c.default for c in kernel.consts):
        unit = unit.with_consts(kernel.target)
        assert unit.kernel is not None
        kernel = unit.kernel
    chosen = list(shapes) or list(large_shapes(kernel)[:1])
    if not chosen:
        raise NotRunnable(f"no large sizes satisfy the assumptions of {kernel.name}; give some")
    for sizes in chosen:
        if broken := broken_assumption(kernel, sizes):
            raise NotRunnable(f"{kernel.name} assumes {broken}, which {size_text(sizes)} breaks")
    stop = cancelled or (lambda: False)
    with Pool(runners, stop) as pool:
        if len(pool.devices) > 1:
            devices = ", ".join(pool.devices)
            raise NotRunnable(f"the runners have different devices, whose times cannot be compared: {devices}")
        if len(pool.versions) > 1:
            pool.notes.append("The runners have different versions of torch or triton, which may compile differently.")
        found = configurations(unit, chosen[0], device, max(1, limit), stop)
        return _Tuner(unit, source, pool, chosen, history, fresh, check, progress, stop, device, found).run()


class _Tuner:
    def __init__(
        self, unit: KernelUnit, source: SourceText | None, pool: Pool, shapes: Sequence[Sizes],
        history: History | None, fresh: bool, check: Check, progress: OnProgress | None, cancelled: Callable[[], bool],
        device: str, found: Sequence[Candidate],
    ) -> None:  # fmt: skip
        self.unit, self.document, self.pool, self.shapes = unit, source, pool, shapes
        self.history, self.fresh, self.check = history, fresh, check
        self.progress, self.cancelled, self.model = progress, cancelled, device
        self.candidates = list(found)
        self.decided: set[int] = set()
        self.lost: set[int] = set()  # could not be run, and may be when the search goes on
        self.tuning: Tuning | None = None
        self.resumed = 0
        self.label = ""

    def run(self) -> Tuned:
        if self.history is not None:
            self.tuning = self.history.begin_tuning(self._identity(), self.unit.name, self.unit.path, fresh=self.fresh)
            self._recall(self.tuning.done)
        waiting = 0
        for i, candidate in enumerate(self.candidates):
            if self.cancelled():
                break
            if i in self.decided:
                continue
            if candidate.verdict == "not checked":
                verify(candidate, self.check, self.cancelled)
            if candidate.verdict == "proved":
                self.pool.submit(self._work(i, candidate))
                waiting += 1
            elif not self.cancelled():
                result = RunResult(self.unit.name, "not run", message=candidate.reason)
                self._decide(i, result)
            waiting -= self._collect(0.0)
        while waiting > 0 and not self.cancelled():
            waiting -= self._collect(0.2)
        if self.history is not None and self.tuning is not None and len(self.decided) == len(self.candidates):
            self.history.finish_tuning(self.tuning.id)
        return self._tuned()

    def _identity(self) -> str:
        """What must be equal for a search to go on: the kernel, what is tried, at which sizes, on which device."""
        parts = [
            self.unit.key, [c.unit.key for c in self.candidates], [dict(s) for s in self.shapes], self.pool.devices,
            self.pool.versions, self.pool.has_gpu,
        ]  # fmt: skip
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def _work(self, number: int, candidate: Candidate) -> Work:
        if not self.pool.has_gpu:
            return Work(number, candidate.unit, None, 0)  # large shapes would take the interpreter hours
        assert candidate.unit.kernel is not None
        checked = [*self.shapes, *small_shapes(candidate.unit.kernel)]
        return Work(number, candidate.unit, checked, len(self.shapes))

    def _collect(self, wait: float) -> int:
        """Take in results; how many there were."""
        count = 0
        while (found := self.pool.result(wait if not count else 0.0)) is not None:
            work, result = found
            count += 1
            if result.failure == "connection":
                self.lost.add(work.number)
                self.candidates[work.number].reason = result.message.splitlines()[0]
            else:
                self.label = result.label or self.label
                self._decide(work.number, result)
        return count

    def _decide(self, number: int, result: RunResult) -> None:
        candidate = self.candidates[number]
        self.decided.add(number)
        if self.history is not None and self.tuning is not None:
            record = record_of(
                "tune", candidate.unit, self.unit.path, result, verdict=candidate.verdict,
                configuration=dict(candidate.point), tuning=self.tuning.id,
            )  # fmt: skip
            self.history.add(record)
        self._judge(candidate, result.status, result.correct, result.message, result.cases)
        if self.progress is not None:
            time = f"{candidate.measured_ms:.4g} ms" if candidate.measured_ms is not None else candidate.reason
            words = f"{candidate.title}: {time or 'correct'}"
            self.progress(len(self.decided), len(self.candidates), words)

    def _recall(self, records: Sequence[Record]) -> None:
        """Take over what was decided before the search was broken off."""
        numbers = {c.unit.key: i for i, c in enumerate(self.candidates)}
        for record in records:
            number = numbers.get(record.key)
            if number is None or number in self.decided:
                continue
            candidate = self.candidates[number]
            candidate.verdict = record.verdict
            self._judge(candidate, record.status, record.correct, record.message, record.cases)
            self.decided.add(number)
            self.label = self.label or record.device
        self.resumed = len(self.decided)
        if self.resumed and self.progress is not None:
            self.progress(self.resumed, len(self.candidates), f"{self.resumed} are known from before")

    def _judge(
        self, candidate: Candidate, status: str, correct: bool | None, message: str, cases: Sequence[Case]
    ) -> None:
        if status != "ok" or correct is False:
            candidate.reason = (message.splitlines() or ["it failed"])[0]
            return
        times = [_at(cases, sizes) for sizes in self.shapes]
        candidate.measured_ms = _mean([c.median_ms if c else None for c in times])
        candidate.baseline_ms = _mean([c.baseline_ms if c else None for c in times])
        if self.pool.has_gpu and candidate.measured_ms is None:
            candidate.reason = "it was not timed at every shape"

    # ---------------------------------------------------------------------------------------- results

    def _tuned(self) -> Tuned:
        original = self.candidates[0]
        good = [c for i, c in enumerate(self.candidates) if i in self.decided and not c.reason]
        best = min(good, key=self._score, default=original)
        if original in good and self._score(best) >= WORTH * self._score(original):
            best = original
        for candidate in self.candidates:
            if candidate.verdict == "not checked" and not candidate.reason:
                candidate.reason = "cancelled"
        where = size_text(self.shapes[0]) + (f" and {len(self.shapes) - 1} more" if len(self.shapes) > 1 else "")
        device = self.label or self.pool.devices[0]
        notes = list(dict.fromkeys(self.pool.notes))
        if best is original and original.reason:
            words = f"No configuration of `{self.unit.name}` is proved and right: {original.reason}"
        else:
            words = headline(
                self.unit.name, f"{where} on {device if self.pool.has_gpu else self.model}", original, best
            )
        if not self.pool.has_gpu:
            notes.append(f"Run on the {device}: results are compared on small shapes, and all times are predictions.")
        ranked = tuple(as_variant(c) for c in sorted(self.candidates, key=lambda c: rank(c, best)))
        before, after = documents(self.document, self.unit, best.unit)
        outcome = Optimization(
            self.unit.name, before, after, best.verdict, summary(words, notes, ranked), ranked, self.shapes[0], device,
            self.cancelled(),
        )  # fmt: skip
        return Tuned(outcome, len(self.candidates), len(self.decided), self.resumed)

    def _score(self, candidate: Candidate) -> float:
        score = candidate.measured_ms if self.pool.has_gpu else candidate.predicted_us
        return score if score is not None else math.inf


def _at(cases: Sequence[Case], sizes: Sizes) -> Case | None:
    return next((c for c in cases if dict(c.sizes) == dict(sizes)), None)


def _mean(times: Sequence[float | None]) -> float | None:
    """The geometric mean; None when one is missing."""
    known = [t for t in times if t is not None and t > 0]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if len(known) == len(times) else None
