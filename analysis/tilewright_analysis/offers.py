"""Where one assumption about sizes would settle what is unknown, it is offered as a fix.

Candidates are few and fixed: divisibility by a tile, at least and at most a tile, and equality of two sizes. Each is
added to the kernel, which is expanded and checked again; what makes the obligation proved is offered. An assumption
that no sizes satisfy proves everything and is left out, and so is everything once a fault has been found: an assumption
that hides a fault is no help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from time import thread_time

from tilewright.expand import ExpansionError
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.layout import LayoutError
from tilewright.source import Span

from .checks.outcome import assume_fix, assume_text_fix, call_prefix
from .checks.tags.counterfactual import tile_lengths, trial_sizes
from .context import KernelContext
from .integers import Decider, Functions
from .replay import larger_sizes
from .report import Finding, Obligation

_SECONDS = 0.8
_EFFORT = 400_000
_MOST = 24
# What an obligation says that follows from another one, and what a limit ended: neither is a matter of sizes.
_NOT_ASKED = ("not decided", "no end after", "cancelled", "internal error")
# The check itself knows the assumption.
_SAYS_SO = re.compile(r"(tw\.assume\(.+\)) says so")

Key = tuple[str, str, Span]
Run = Callable[[KernelContext], Iterable[Obligation]]


@dataclass
class Offers:
    """The assumptions that settle obligations of one kernel; `explicit` expands a kernel."""

    context: KernelContext
    explicit: Callable[[ir.Kernel], ir.Kernel]
    seconds: float = _SECONDS
    _contexts: dict[ex.Expr, KernelContext | None] = field(default_factory=dict[ex.Expr, "KernelContext | None"])
    _verdicts: dict[tuple[ex.Expr, int], dict[Key, bool]] = field(
        default_factory=dict[tuple[ex.Expr, int], "dict[Key, bool]"]
    )

    def added(self, run: Run, obligation: Obligation) -> Obligation:
        """`obligation`, with a fix if it is unknown and an assumption settles it. `run` is the check that gave it."""
        finding = obligation.finding
        if obligation.verdict != "unknown" or finding is None or finding.fixes or self.context.refuted:
            return obligation
        if any(text in finding.message.lower() for text in _NOT_ASKED):
            return obligation
        if (said := _SAYS_SO.search(finding.message)) is not None:
            text = said[1].replace("tw.", call_prefix(self.context))
            named = assume_text_fix(self.context, text)
            return replace(obligation, finding=replace(finding, fixes=(named,))) if named is not None else obligation
        begin = thread_time()
        try:
            condition = self._settles(run, obligation, finding, begin + self.seconds)
        finally:
            self.seconds -= thread_time() - begin
        fix = assume_fix(self.context, condition) if condition is not None else None
        return replace(obligation, finding=replace(finding, fixes=(fix,))) if fix is not None else obligation

    def _settles(self, run: Run, obligation: Obligation, finding: Finding, end: float) -> ex.Expr | None:
        for condition in islice(self._candidates(finding), _MOST):
            if thread_time() > end or self.context.decider.cancelled():
                return None
            if self._proved(run, condition, end).get(_key(obligation)):
                return condition
        return None

    def _candidates(self, finding: Finding) -> Iterator[ex.Expr]:
        """Conditions on sizes, those of sizes that the finding names first."""
        written = self.context.written
        lengths = tile_lengths(self.context.kernel)
        named = sorted(written.sizes, key=lambda n: n not in finding.message.replace(",", " ").split())
        sizes = [ex.Size(n) for n in named if n not in written.pitches]
        tiled = [(s, ex.Int(lengths[s.name])) for s in sizes if lengths.get(s.name, 1) > 1]
        every = chain(
            (ex.Bin("==", ex.mod(s, n), ex.Int(0)) for s, n in tiled),
            (ex.Bin("<=", n, s) for s, n in tiled),
            (ex.Bin("==", a, b) for a, b in combinations(sizes, 2)),
            (ex.Bin("<=", s, n) for s, n in tiled),
        )
        known = {a.expr for a in written.assumptions}
        return (condition for condition in every if condition not in known)

    def _proved(self, run: Run, condition: ex.Expr, end: float) -> dict[Key, bool]:
        """Whether each obligation of a check holds under an assumption."""
        at = (condition, id(run))
        if at not in self._verdicts:
            if condition not in self._contexts:
                self._contexts[condition] = self._assuming(condition)
            context = self._contexts[condition]
            found: dict[Key, bool] = {}
            if context is not None:
                context.deadline = end
                for obligation in run(context):
                    key = _key(obligation)
                    found[key] = found.get(key, True) and obligation.verdict == "proved"
            self._verdicts[at] = found
        return self._verdicts[at]

    def _assuming(self, condition: ex.Expr) -> KernelContext | None:
        """The context of the kernel with one assumption more; None if no sizes satisfy it, or it cannot be expanded."""
        written = self.context.written
        kernel = replace(written, assumptions=(*written.assumptions, ir.Assumption(condition)))
        if next(chain(trial_sizes(kernel), larger_sizes(kernel, {})), None) is None:
            return None
        try:
            explicit = self.explicit(kernel)
        except (ExpansionError, LayoutError):
            return None
        decider = Decider(_EFFORT, self.context.decider.cancelled, Functions.of(explicit))
        return KernelContext(
            explicit, decider, written=kernel, source=self.context.source, reference=self.context.reference
        )


def _key(obligation: Obligation) -> Key:
    return obligation.code, obligation.what, obligation.span
