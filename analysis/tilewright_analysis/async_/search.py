"""Explores all states of a program: depth first to prove, breadth first for the smallest counterexample."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.ends import Ends
from tilewright_analysis.async_.findings import Findings
from tilewright_analysis.async_.machine import Interrupted
from tilewright_analysis.async_.model import Budget, Violation
from tilewright_analysis.async_.normal import Key, Normalizer
from tilewright_analysis.async_.origins import Places, held
from tilewright_analysis.async_.parts import Summand
from tilewright_analysis.async_.reporter import Found
from tilewright_analysis.async_.state import INF, State
from tilewright_analysis.async_.tensor import TensorMachine

# After a violation a kernel often has no period (queues that nobody empties grow), so exploration is cut short then.
STATES_AFTER_VIOLATION = 400


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found. `complete`: every path was followed to its end or to a state seen before.

    `summands`: what programs add to sums, by the statement that adds.
    `places`: where the tiles of stages come from, which holds if the search is complete and found nothing.
    """

    found: dict[tuple[str, str], Found]
    complete: bool
    stopped: str
    states: int
    steps: int
    meets: int
    summands: dict[str, set[Summand]]
    places: Places
    ends: Ends


def search(
    program: c.Program,
    budget: Budget,
    *,
    breadth_first: bool = False,
    meet: bool = True,
    tracing: bool = False,
    until: frozenset[tuple[str, str]] | None = None,
    fixed: dict[int, int] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Searched:
    """Explore until the worklist is empty, a fatal issue ends a path, `until` is found, or the budget is spent.

    `meet` merges states of equal normal form by intersecting what their processes know: fewer states, and still a proof
    when nothing is found, but an issue may then be spurious. `fixed` sets trip counts of oracles to one number in all
    iterations.
    """
    exploration = _Exploration(program, budget, breadth_first, meet, tracing, until, fixed or {}, cancelled)
    stopped = exploration.run()
    machine, reporter = exploration.machine, exploration.reporter
    return Searched(
        reporter.found,
        not stopped and not exploration.fatal and not exploration.work,
        stopped,
        exploration.states,
        machine.steps,
        exploration.meets,
        reporter.summands,
        held(program, machine.met, machine.wrong),
        machine.tags.ends,
    )


@dataclass(slots=True, eq=False)
class _Open:
    """A state at an undecided comparison, both of whose outcomes are to be followed. `waiting`: it is in the queue."""

    state: State
    fork: tuple[int, int, int]
    knowledge: list[int]
    waiting: bool = True


class _Exploration:
    """The queue of a search and what it has seen."""

    def __init__(
        self, program: c.Program, budget: Budget, breadth_first: bool, meet: bool, tracing: bool,
        until: frozenset[tuple[str, str]] | None, fixed: dict[int, int], cancelled: Callable[[], bool] | None,
    ) -> None:  # fmt: skip
        self.program, self.budget, self.until, self.fixed = program, budget, until, fixed
        # Merged states in the order in which they were first seen: most have met all that leads to them by then.
        self.first_in_first_out = breadth_first or meet
        self.meet = meet
        self.cancelled = cancelled or (lambda: False)
        self.deadline = time.thread_time() + budget.seconds
        self.reporter = Findings(program, tracing)
        self.machine = TensorMachine(program, self.reporter, self._interrupted)
        self.normal = Normalizer(program, remember=tracing)
        self.work: deque[_Open] = deque()
        self.seen: dict[Key, _Open] = {}
        self.exact: set[tuple[Key, tuple[int, ...]]] = set()
        self.meets = 0
        self.fatal = False

    @property
    def states(self) -> int:
        """How many different states there were."""
        return len(self.seen) + len(self.exact)

    def run(self) -> str:
        """Follow all paths. Returns why it stopped early; nothing if it did not, or has found what it looked for."""
        limit = self.budget.states
        coming: list[State] = [State(self.program)]
        try:
            while True:
                for s in coming:
                    if self._arrives(s):
                        return ""
                if not self.work:
                    return ""
                if self.until is None and limit == self.budget.states and self._violated():
                    limit = min(limit, self.states + STATES_AFTER_VIOLATION)
                if self.states > limit or self.machine.steps > self.budget.steps:
                    if self._violated():
                        return "not decided because of the first violation"
                    return f"no end after {self.states} states and {self.machine.steps} steps"
                if time.thread_time() > self.deadline:
                    return f"no end after {self.budget.seconds:g} s and {self.states} states"
                if self.cancelled():
                    return "cancelled"
                one = self.work.popleft() if self.first_in_first_out else self.work.pop()
                one.waiting = False
                beside = self.normal.beside(one.state, one.fork[0], one.fork[1])
                more, fewer = _fork(self.program, one.state, *one.fork, beside)
                # Ends loops as early as it can: breadth first because small counts come first, else as the last in.
                order = (fewer, more) if self.first_in_first_out else (more, fewer)
                coming = [x for x in order if x is not None]
        except Interrupted:
            return f"no end after {self.machine.steps} steps and {self.states} states"
        except ZeroDivisionError:
            return "a scalar divides by zero"

    def _violated(self) -> bool:
        """Whether anything was found. What is open about the end of a contraction says nothing against other states."""
        ends = self.machine.tags.ends
        harmless = {f"statement {store}" for store, found in ends.items() if all(end is not None for end, _ in found)}
        return any(
            code != "TW102" or subject not in harmless or not found.issue.unknown
            for (code, subject), found in self.reporter.found.items()
        )

    def _interrupted(self, steps: int) -> bool:
        return steps > self.budget.steps or time.thread_time() > self.deadline or self.cancelled()

    def _arrives(self, s: State) -> bool:
        """Run `s` up to the next comparison and queue it unless it is known. True when the search is over."""
        try:
            fork = self.machine.run(s)
            while fork is not None and fork[0] in self.fixed:
                count = float(self.fixed[fork[0]])
                s.oracles[fork[0], fork[1]] = (count, count)
                fork = self.machine.run(s)
        except Violation:
            self.fatal = True
            return self.until is None or self.until <= self.reporter.violated()
        if self.until is not None and self.until <= self.reporter.violated():
            return True
        if fork is None:
            return False
        key, knowledge, tokens = self.normal.key(s)
        if not self.meet:
            whole = (key, tuple(knowledge))
            if whole not in self.exact:
                self.exact.add(whole)
                self.work.append(_Open(s, fork, knowledge))
            return False
        old = self.seen.get(key)
        if old is None:
            self.seen[key] = new = _Open(s, fork, knowledge)
            self.work.append(new)
            return False
        if all(a & b == a for a, b in zip(old.knowledge, knowledge, strict=True)):
            return False
        self.meets += 1
        old.knowledge = [a & b for a, b in zip(old.knowledge, knowledge, strict=True)]
        self.normal.narrow(s, old.knowledge, tokens)
        old.state, old.fork = s, fork
        if not old.waiting:
            old.waiting = True
            self.work.append(old)
        return False


def _fork(
    program: c.Program, s: State, oracle: int, outer: int, v: int, beside: frozenset[int]
) -> tuple[State | None, State | None]:
    """The states in which the trip count is more than `v`, and at most `v`."""
    other = s.clone()
    o = program.oracles[oracle]
    feasible = [True, True]
    for which, state in enumerate((s, other)):
        low, high = state.oracles.get((oracle, outer), (o.minimum, o.maximum))
        low, high = (max(low, v + 1), high) if which == 0 else (low, min(high, v))
        feasible[which] = low <= high
        state.oracles[oracle, outer] = (low, high)
        # What constants decide holds for all counts of one quantity; larger numbers would keep them apart forever,
        # except for counts that the normal form holds relative to the same position.
        family = frozenset(program.families[oracle]) if v < program.limits[oracle] else beside
        feasible[which] &= _carry_over(program, state, oracle, outer, family)
    return (s if feasible[0] else None), (other if feasible[1] else None)


def _carry_over(program: c.Program, s: State, oracle: int, outer: int, family: frozenset[int]) -> bool:
    """Narrow other counts of the family by what the count says of their common quantity; False if none is left."""
    trip = program.oracles[oracle].trip
    low, high = s.oracles[oracle, outer]
    for j in family:
        o = program.oracles[j]
        if j == oracle or not trip.form.terms:
            continue
        factor = o.trip.form.terms[0][1] / trip.form.terms[0][1]
        least, most = s.oracles.get((j, outer), (o.minimum, o.maximum))
        if low > -INF:  # form > (low - 1) * step, so the other count is above bound / step
            bound = (Fraction(int(low) - 1) * trip.step - trip.form.const) * factor + o.trip.form.const
            least = max(least, float(floor(bound / o.trip.step) + 1))
        if high < INF:
            bound = (Fraction(int(high)) * trip.step - trip.form.const) * factor + o.trip.form.const
            most = min(most, float(ceil(bound / o.trip.step)))
        if least > most:
            return False
        s.oracles[j, outer] = (least, most)
    return True
