"""Optimize a kernel by rules over its policies: only verified variants, ranked by the model or by measured time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from tilewright.frontend import KernelUnit
from tilewright.ir import nodes as ir
from tilewright.source import SourceText
from tilewright_agent.candidates import WORTH, Check, documents, predict, refuse, verify, with_text
from tilewright_agent.rewrite import Point, Source
from tilewright_agent.rules import proposals
from tilewright_agent.runner import Runner, RunResult
from tilewright_agent.search import Search, State
from tilewright_agent.transport import Cancelled, ConnectionFailed
from tilewright_agent.variants import (
    Candidate,
    Optimization,
    as_variant,
    headline,
    rank,
    size_text,
    summary,
    title,
)
from tilewright_analysis import check_unit
from tilewright_analysis.perf import has_model
from tilewright_analysis.perf.shapes import Sizes, broken_assumption, large_shapes, small_shapes

Progress = Callable[[str, float], None]
"""Told what is being done and the share that is done, from 0 to 1."""

MEASURED = 6  # variants that a GPU times, beside the original
SLACK = 1.25  # the model errs; with a GPU variants predicted up to this much slower are tried too
EXPLAINED = 3  # variants without a prediction that are verified all the same, to say what is wrong with them


class OnResult(Protocol):
    """Hears of each run of a variant, such as a history."""

    def __call__(self, unit: KernelUnit, verdict: str, configuration: Point, result: RunResult) -> None:
        """`configuration` are the values of the variant's policies."""
        ...


def optimize(
    unit: KernelUnit,
    *,
    source: SourceText | None = None,
    runner: str | None = None,
    check: Check = check_unit,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    limit: int = 24,
    sizes: Sizes | None = None,
    device: str = "H200",
    on_result: OnResult | None = None,
) -> Optimization:
    """Look for a faster variant of a kernel that the verifier proves and that assumes nothing else.

    Args:
        unit: the kernel, without errors. Compile-time arguments count with their defaults, because those are what a
            rewrite changes; another target than the written one is kept.
        source: the document that holds it; without it the "documents" of the result are the kernel's text.
        runner: `local` or a command that reaches a worker. With a GPU there the best variants are timed beside the
            original; without one the winner is checked for its results only. None: no run at all.
        check: the verifier.
        progress: told about each step.
        cancelled: polled between steps; what was found until then is returned.
        limit: how many variants are verified at most.
        sizes: problem sizes to judge at; by default large ones that the kernel's assumptions allow.
        device: the device of the static model.
        on_result: hears of each run.
    """
    return _Optimizer(unit, source, runner, check, progress, cancelled, limit, sizes, device, on_result).run()


class _Optimizer:
    def __init__(
        self, unit: KernelUnit, source: SourceText | None, runner: str | None, check: Check,
        progress: Progress | None, cancelled: Callable[[], bool] | None, limit: int, sizes: Sizes | None, device: str,
        on_result: OnResult | None,
    ) -> None:  # fmt: skip
        if unit.kernel is not None and any(c.value != c.default for c in unit.kernel.consts):
            unit = unit.with_consts(unit.kernel.target)
        self.unit, self.document, self.runner, self.check = unit, source, runner, check
        self.progress, self.limit, self.device = progress or _silent, max(1, limit), device
        self.cancelled = cancelled or (lambda: False)
        self.wanted, self.on_result = sizes, on_result
        self.sizes: Sizes = {}
        self.seen: dict[str, Candidate] = {}
        self.notes: list[str] = []
        self.timed_on = ""
        self.written_target = ""

    def run(self) -> Optimization:
        kernel = self.unit.kernel
        errors = [p for p in self.unit.problems if p.severity == "error"]
        original = Candidate((), self.unit, "as written")
        if kernel is None or errors:
            reason = errors[0].message if errors else "it could not be understood"
            return self._nothing(original, f"`{self.unit.name}` is not optimized: {reason}")
        if not has_model(kernel):
            return self._nothing(original, f"there is no performance model for {kernel.target} to rank variants by")
        found = self.wanted or next(iter(large_shapes(kernel)), None)
        if found is None:
            return self._nothing(original, f"no large sizes satisfy the assumptions of `{kernel.name}`; give some")
        self.sizes = found
        if broken := broken_assumption(kernel, found):
            return self._nothing(original, f"`{kernel.name}` assumes {broken}, which {size_text(found)} breaks")
        self.progress(f"checking {self.unit.name} as written", 0.0)
        source = Source(self.unit.text, kernel)
        as_written = self.unit.with_consts().kernel
        self.written_target = as_written.target if as_written is not None else kernel.target
        original.point = source.point()
        verify(original, self.check, self.cancelled)
        predict(original, self.sizes, self.device)
        self.seen[self.unit.text] = original
        if original.verdict == "refuted":
            return self._nothing(original, f"`{kernel.name}` is refuted; fix that first: {original.reason}")
        return self._result(original, self._search(source, kernel, original))

    # ---------------------------------------------------------------------------------------- search

    def _search(self, source: Source, kernel: ir.Kernel, original: Candidate) -> Candidate:
        """The best variant by the model, or with a GPU by its clock."""
        with contextlib.ExitStack() as stack:
            session: Runner | None = None
            if self.runner is not None:
                self.progress("starting the worker", 0.0)
                try:
                    session = stack.enter_context(Runner(self.runner, self.cancelled))
                except Cancelled:
                    return original
                except ConnectionFailed as error:
                    self.notes.append(f"Nothing was run: {error}")
            gpu = session is not None and session.has_gpu
            best = self._climb(source, kernel, original, SLACK if gpu else 1.0)
            self._explain()
            if session is None or self.cancelled():
                return best
            try:
                return self._measure(session, original) if gpu else self._confirm(session, original, best)
            except Cancelled:
                self.notes.append("Cancelled before all variants were run.")
            except ConnectionFailed as error:
                self.notes.append(f"The runs were broken off: {error}")
            # Results that were not confirmed are not proposed.
            return original

    def _climb(self, source: Source, kernel: ir.Kernel, original: Candidate, slack: float) -> Candidate:
        start = original.predicted_us if original.predicted_us is not None else float("inf")
        search = Search(original, start, self.limit, slack)
        while search.state is not State.DONE and not self.cancelled():
            if search.state is State.PROPOSE:
                search.propose(self._proposed(source, kernel, search.best))
            else:
                candidate = search.current
                self.progress(f"checking {candidate.title}", 0.8 * search.verified / self.limit)
                verify(candidate, self.check, self.cancelled)
                search.record(candidate.verdict == "proved")
        return search.best

    def _proposed(self, source: Source, kernel: ir.Kernel, best: Candidate) -> Iterator[tuple[float, Candidate]]:
        for proposal in proposals(source.knobs, best.point, self.written_target):
            if self.cancelled():
                return
            text = source.with_point(dict(proposal.point))
            if text in self.seen:
                continue
            unit = with_text(self.unit, text, kernel.target)
            candidate = Candidate(proposal.point, unit, title(source.point(), proposal.point))
            self.seen[text] = candidate
            if refuse(kernel, candidate):
                continue
            predict(candidate, self.sizes, self.device)
            if candidate.predicted_us is not None:
                yield candidate.predicted_us, candidate

    def _explain(self) -> None:
        """Let the verifier say why some of the variants that the model has no time for are impossible."""
        impossible = [c for c in self.seen.values() if c.impossible and c.verdict == "not checked"]
        for candidate in impossible[:EXPLAINED]:
            if self.cancelled():
                return
            self.progress(f"checking {candidate.title}", 0.8)
            verify(candidate, self.check, self.cancelled)

    # ---------------------------------------------------------------------------------------- runs

    def _measure(self, session: Runner, original: Candidate) -> Candidate:
        """The fastest proved variant whose results are right; the original unless it is worth a change."""
        proved = [c for c in self.seen.values() if c.verdict == "proved" and c is not original]
        chosen = sorted(proved, key=lambda c: c.predicted_us or float("inf"))[:MEASURED]
        for i, candidate in enumerate([original, *chosen]):
            self.progress(f"timing {candidate.title}", 0.8 + 0.2 * i / (len(chosen) + 1))
            assert candidate.unit.kernel is not None
            result = session.run(candidate.unit, [self.sizes, *small_shapes(candidate.unit.kernel)], measured=1)
            self.timed_on = result.label or self.timed_on
            self._judge(candidate, result)
            candidate.measured_ms, candidate.baseline_ms = result.median_ms, result.baseline_ms
        if original.measured_ms is None:
            self.notes.append(f"The kernel as written could not be timed, so nothing is proposed: {original.reason}")
            return original
        timed = [c for c in chosen if c.measured_ms is not None and not c.reason]
        best = min(timed, key=lambda c: c.measured_ms or 0.0, default=original)
        return best if (best.measured_ms or 0.0) < WORTH * original.measured_ms else original

    def _confirm(self, session: Runner, original: Candidate, best: Candidate) -> Candidate:
        """`best` if an interpreter finds its results right."""
        if best is original:
            return best
        self.progress(f"running {best.title} on the interpreter", 0.85)
        result = session.run(best.unit)
        self._judge(best, result)
        if best.reason:
            self.notes.append(f"{best.title} was dropped after a run on the {result.label}: {best.reason}")
            return original
        checked = "agree with the reference" if result.correct else "could not be compared: there is no reference"
        self.notes.append(f"Run on the {result.label}: its results {checked}. All times are predictions.")
        return best

    def _judge(self, candidate: Candidate, result: RunResult) -> None:
        if self.on_result is not None:
            self.on_result(candidate.unit, candidate.verdict, candidate.point, result)
        if result.status != "ok" or result.correct is False:
            candidate.reason = (result.message.splitlines() or ["it failed"])[0]

    # ---------------------------------------------------------------------------------------- results

    def _result(self, original: Candidate, best: Candidate) -> Optimization:
        if best.measured_ms is None and best.predicted_us is not None and original.predicted_us is not None:
            best = best if best.predicted_us < WORTH * original.predicted_us else original
        for candidate in self.seen.values():
            if candidate.verdict == "not checked" and not candidate.reason:
                candidate.reason = "not predicted to be faster" if not self.cancelled() else "cancelled"
        ranked = sorted(self.seen.values(), key=lambda c: rank(c, best))
        variants = tuple(as_variant(c) for c in ranked)
        device = self.timed_on or self.device
        words = headline(self.unit.name, f"{size_text(self.sizes)} on {device}", original, best)
        before, after = documents(self.document, self.unit, best.unit)
        return Optimization(
            self.unit.name, before, after, best.verdict, summary(words, self.notes, variants), variants, self.sizes,
            device, self.cancelled(),
        )  # fmt: skip

    def _nothing(self, original: Candidate, why: str) -> Optimization:
        before, after = documents(self.document, self.unit, self.unit)
        return Optimization(
            self.unit.name, before, after, original.verdict, why, (as_variant(original),), self.sizes, self.device,
            self.cancelled(),
        )  # fmt: skip


def _silent(message: str, share: float) -> None:
    """No one listens."""
