"""The engine as a function: a kernel goes in, a verdict on each obligation comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import lcm

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.encode import encode
from tilewright_analysis.async_.explain import example, refuted
from tilewright_analysis.async_.flow import contractions
from tilewright_analysis.async_.forms import Facts, to_expr
from tilewright_analysis.async_.model import Addend, AsyncOutcome, AsyncResult, Budget, ReplayRequest, Unsupported
from tilewright_analysis.async_.obligations import Obligation, obligations
from tilewright_analysis.async_.reporter import Found
from tilewright_analysis.async_.search import Searched, search
from tilewright_analysis.async_.sizes import solve
from tilewright_analysis.report import Counterexample

# What a verdict on the left rests on: with a violation on the right, values or schedules are not what was executed.
CONTROL = frozenset({"TW402", "TW403", "TW405", "TW407"})
ORDER = frozenset({"TW401", "TW404"})
CONTENT = frozenset({"TW203", "TW204"})
TAGS = frozenset({"TW101", "TW102", "TW103", "TW106"})
EXIT = frozenset({"TW406"})
# Sizes up to this many steps of a loop are tried when trip counts of different tiles disagree.
SAME_COUNT_LIMIT = 8
SAME_COUNT_SECONDS = 1.5

Key = tuple[str, str]


def explore(
    kernel: ir.Kernel, *, budget: Budget | None = None, cancelled: Callable[[], bool] | None = None
) -> AsyncResult:
    """Decide the asynchronous and tag obligations of an explicit kernel, automatic syncs included, for all sizes.

    Refuted outcomes carry sizes, iteration, role and a trace; unknown ones say what is missing. Never raises for a
    kernel that the front end accepts.
    """
    budget = budget or Budget()
    start = time.perf_counter()
    todo = obligations(kernel)
    try:
        program = encode(kernel)
    except Unsupported as e:
        missing = e.missing
        outcomes = [AsyncOutcome(o.code, o.what, o.span, "unknown", missing, missing=missing) for o in todo]
        return AsyncResult(tuple(outcomes), milliseconds=_ms(start))
    first = search(program, budget, cancelled=cancelled)
    steps, states = first.steps, first.states
    confirmed: dict[Key, AsyncOutcome] = {}
    doubtful: dict[Key, str] = {}
    if first.found:
        confirmed, doubtful = _confirm(program, first, budget, cancelled)
        # What processes know decides the order of accesses and phases; tags and contents are the same with and without.
        by_order = any(code not in CONTENT | TAGS for code, _ in first.found)
        if by_order and not confirmed and first.meets and set(doubtful) == set(first.found):
            # Everything found may come from merged states: decide without merging.
            again = search(program, budget, meet=False, cancelled=cancelled)
            steps, states = steps + again.steps, states + again.states
            if again.complete:
                first = again
                confirmed, doubtful = _confirm(program, first, budget, cancelled) if first.found else ({}, {})
    if any(code == "TW101" for code, _ in doubtful):
        # Whether a contraction has happened hangs on whether two dimensions of a product are one.
        for key in [k for k, o in confirmed.items() if k[0] == "TW102" and _of_nothing(o)]:
            del confirmed[key]
            doubtful[key] = "not decided while it is open which dimensions meet in a product"
    outcomes = [_outcome(program, o, first, confirmed, doubtful) for o in todo]
    summands = {
        subject: frozenset(Addend(to_expr(program.dims[a.dim]), a.index, a.length) for a in found)
        for subject, found in first.summands.items()
    }
    # What is open about the end of a contraction, or where a result belongs, says nothing against what stages hold.
    harmless = all(f.issue.code in ("TW102", "TW103") and f.issue.unknown for f in first.found.values())
    if not first.complete or not harmless:
        return AsyncResult(tuple(outcomes), summands, states, steps, _ms(start))
    ends = {
        store: tuple((end, forms.to_expr(program.dims[dim])) for end, dim in found if end is not None)
        for store, found in first.ends.items()
        if all(end is not None for end, _ in found)
    }
    contracts = {
        id(role.code[number].stmt): frozenset(forms.to_expr(program.dims[d]) for d in dims)
        for role in program.roles
        for (name, number), dims in (contractions(program).over if ends else {}).items()
        if name == role.name
    }
    return AsyncResult(tuple(outcomes), summands, states, steps, _ms(start), first.places, ends, contracts)


def _of_nothing(outcome: AsyncOutcome) -> bool:
    example = outcome.counterexample
    return example is not None and example.values.get("contracted") == "nothing"


def replay_request(outcome: AsyncOutcome) -> ReplayRequest | None:
    """What to run in the interpreter to see a refuted outcome; None for other verdicts."""
    found = outcome.counterexample
    if found is None:
        return None
    tiles = found.values.get("tiles per program")
    return ReplayRequest(
        outcome.code, found.sizes, int(tiles) if tiles else None, outcome.span, found.role, found.iteration
    )  # fmt: skip


def _ms(start: float) -> float:
    return 1e3 * (time.perf_counter() - start)


def _confirm(
    program: c.Program, first: Searched, budget: Budget, cancelled: Callable[[], bool] | None
) -> tuple[dict[Key, AsyncOutcome], dict[Key, str]]:
    """(refuted outcomes, what is missing) for what a search found.

    Searches again breadth first, without merging, with traces.
    """
    confirmed: dict[Key, AsyncOutcome] = {}
    doubtful: dict[Key, str] = {}
    open_keys: set[Key] = set()
    for key, found in first.found.items():
        if found.issue.unknown:
            doubtful[key] = found.issue.unknown
        else:
            open_keys.add(key)
    # A tile of an earlier iteration may be the wrong one: then some tag is wrong, which the second search follows.
    stale = any(code == "TW204" for code, _ in doubtful)
    if not open_keys and not stale:
        return confirmed, doubtful
    small = replace(budget, states=min(budget.states, 1500), seconds=min(budget.seconds, 1.5))
    wanted = frozenset(open_keys - confirmed.keys()) or None
    if wanted is not None or stale:
        second = search(
            program, small, breadth_first=True, meet=False, tracing=True, until=wanted, cancelled=cancelled
        )  # fmt: skip
        for key, found in second.found.items():
            if found.issue.unknown:
                doubtful.setdefault(key, found.issue.unknown)
            elif key not in confirmed:
                sizes = solve(program, found)
                if sizes is not None:
                    confirmed[key] = refuted(program, found, sizes)
                else:
                    open_keys.add(key)
    if open_keys - confirmed.keys():
        # No sizes give the trip counts of that path: say, tiles had different counts of one size. Try equal ones.
        confirmed = {**_with_equal_counts(program, small, cancelled), **confirmed}
    for key in open_keys - confirmed.keys():
        doubtful[key] = "sizes at which this happens"
    return confirmed, {k: v for k, v in doubtful.items() if k not in confirmed}


def _with_equal_counts(
    program: c.Program, budget: Budget, cancelled: Callable[[], bool] | None
) -> dict[Key, AsyncOutcome]:
    """What goes wrong with each size the same in all tiles: trip counts of sizes alone fixed, for a few small sizes."""
    alone = [
        (i, o) for i, o in enumerate(program.oracles)
        if not o.is_programs and o.trip.form.names() <= set(program.kernel.sizes)
    ]  # fmt: skip
    if not alone:
        return {}
    names = sorted({n for _, o in alone for n in o.trip.form.names()})
    multiple = Facts.of(program.kernel.assumptions).multiple
    grain = lcm(*(multiple.get(n, 1) for n in names))
    unit = lcm(max(o.trip.step for _, o in alone), grain)
    end = time.thread_time() + SAME_COUNT_SECONDS
    for n in range(1, SAME_COUNT_LIMIT + 1):
        for size in dict.fromkeys((n * unit, n * unit - grain, (n - 1) * unit + grain)):
            if time.thread_time() > end:
                return {}
            env = dict.fromkeys(names, size)
            fixed = {i: ex.evaluate(o.trip.expr, env) for i, o in alone}
            quick = replace(budget, states=300, seconds=0.2)
            r = search(
                program, quick, breadth_first=True, meet=False, tracing=True, fixed=fixed, cancelled=cancelled
            )  # fmt: skip
            solved = {k: (f, solve(program, f)) for k, f in r.found.items() if not f.issue.unknown}
            shown = {k: refuted(program, f, s) for k, (f, s) in solved.items() if s is not None}
            if shown:
                return shown
    return {}


def _candidate(program: c.Program, found: Found | None) -> Counterexample | None:
    """Where to look whether a stage was kept from an earlier iteration on purpose; the engine does not follow it."""
    if found is None or found.issue.code != "TW204":
        return None
    sizes = solve(program, found)
    return None if sizes is None else example(program, found, sizes)


def _outcome(
    program: c.Program, o: Obligation, searched: Searched, confirmed: dict[Key, AsyncOutcome], doubtful: dict[Key, str]
) -> AsyncOutcome:
    keys = [(o.code, o.subject), *([(o.code, "*")] if o.code in ("TW102", "TW106") else [])]
    for key in keys:
        if key in confirmed:
            return replace(confirmed[key], what=o.what, subject=o.subject)
    for key in keys:
        if key in doubtful:
            found: Found | None = searched.found.get(key)
            message = found.issue.message if found is not None else ""
            related = found.issue.related if found is not None else ()
            span = found.issue.span if found is not None else o.span
            shown = _candidate(program, found)
            return AsyncOutcome(
                o.code, o.what, span, "unknown", message, shown, related, missing=doubtful[key], subject=o.subject,
                tried=found is not None and (found.issue.tried or (o.code == "TW106" and not found.issue.unknown)),
            )  # fmt: skip
    broken = {code for code, _ in confirmed} | {code for code, _ in doubtful}
    missing = ""
    if not searched.complete:
        missing = searched.stopped or "not decided because of the first violation"
    elif broken & CONTROL and o.code not in CONTROL:
        missing = "not decided because of the first violation"
    elif broken & ORDER and o.code in CONTENT | TAGS | EXIT:
        missing = "not decided while accesses to shared memory race"
    elif broken & CONTENT and o.code in TAGS:
        missing = "not decided while a stage is read that does not hold its tile"
    if missing:
        return AsyncOutcome(o.code, o.what, o.span, "unknown", missing, missing=missing, subject=o.subject)
    return AsyncOutcome(o.code, o.what, o.span, "proved", subject=o.subject)
