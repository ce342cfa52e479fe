"""Explores all states of a program: depth first to prove, breadth first for the smallest counterexample."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.contract import Ends
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
    reporter = Findings(program, tracing)
    deadline = time.perf_counter() + budget.seconds

    def interrupted(steps: int) -> bool:
        return steps > budget.steps or time.perf_counter() > deadline or (cancelled is not None and cancelled())

    machine, normal = TensorMachine(program, reporter, interrupted), Normalizer(program, remember=tracing)
    work: deque[State] = deque([State(program)])
    seen: dict[Key, list[int]] = {}
    exact: set[tuple[Key, tuple[int, ...]]] = set()
    meets, stopped = 0, ""
    fatal = False
    limit = budget.states
    while work:
        s = work.popleft() if breadth_first else work.pop()
        states = len(seen) + len(exact)
        if until is None and limit == budget.states and reporter.found:
            limit = min(limit, states + STATES_AFTER_VIOLATION)
        if states > limit or machine.steps > budget.steps:
            stopped = f"no end after {states} states and {machine.steps} steps"
            if reporter.found:
                stopped = "not decided because of the first violation"
            break
        if time.perf_counter() > deadline:
            stopped = f"no end after {budget.seconds:g} s and {states} states"
            break
        if cancelled is not None and cancelled():
            stopped = "cancelled"
            break
        try:
            fork = machine.run(s)
        except Violation:
            fatal = True
            if until is None or until <= reporter.violated():
                break
            continue
        except Interrupted:
            stopped = f"no end after {machine.steps} steps and {states} states"
            break
        except ZeroDivisionError:
            stopped = "a scalar divides by zero"
            break
        if until is not None and until <= reporter.violated():
            break
        if fork is None:
            continue
        if fixed is not None and fork[0] in fixed:
            s.oracles[fork[0], fork[1]] = (float(fixed[fork[0]]), float(fixed[fork[0]]))
            work.append(s)
            continue
        key, knowledge, tokens = normal.key(s)
        if meet:
            old = seen.get(key)
            if old is None:
                seen[key] = knowledge
            elif all(a & b == a for a, b in zip(old, knowledge, strict=True)):
                continue
            else:
                meets += 1
                seen[key] = both = [a & b for a, b in zip(old, knowledge, strict=True)]
                normal.narrow(s, both, tokens)
        else:
            whole = (key, tuple(knowledge))
            if whole in exact:
                continue
            exact.add(whole)
        # Last in, first out: depth first ends loops as early as it can.
        more, fewer = _fork(program, s, *fork, normal.beside(s, fork[0], fork[1]))
        work.extend(x for x in ((fewer, more) if breadth_first else (more, fewer)) if x is not None)
    complete = not work and not stopped and not fatal
    return Searched(
        reporter.found,
        complete,
        stopped,
        len(seen) + len(exact),
        machine.steps,
        meets,
        reporter.summands,
        held(program, machine.met, machine.wrong),
        machine.tags.ends,
    )


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
