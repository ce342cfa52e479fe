"""Small examples first: try sizes around the constants of a question before any proof.

A faulty kernel nearly always fails at sizes near its tile extents, and then the smallest such sizes are what a person
wants to see. Costs a few milliseconds for a claim that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import thread_time

from tilewright.ir import expr as ex

from .compiled import compiled
from .order import smallest_first
from .question import Binder, Question

Model = dict[str, int]
_FREE_VALUES = (0, 1, 2, 3)


def probe(question: Question, *, points: int = 6000, milliseconds: float = 25.0) -> Model | None:
    """Sizes and binder values that satisfy the facts and break the claim, the smallest sizes tried first; or None.

    A claim also breaks where a divisor in it is zero.
    """
    facts, claim = compiled(question.facts), compiled((question.claim,))
    relevant = question.relevant
    by_binder = _facts_by_depth(question)
    deadline = thread_time() + milliseconds / 1000
    budget = points

    def search(depth: int, env: Model) -> Model | None:
        nonlocal budget
        if depth == len(question.binders):
            budget -= 1
            try:
                if not all(facts(env)):
                    return None
            except ZeroDivisionError:
                return None
            try:
                return None if claim(env)[0] else dict(env)
            except ZeroDivisionError:
                return dict(env)
        binder, bounds = question.binders[depth], by_binder[depth]
        for value in _values(binder, bounds, env, binder.name in relevant):
            env[binder.name] = value
            found = search(depth + 1, env)
            if found is not None:
                return found
            if budget <= 0 or (budget % 64 == 0 and thread_time() > deadline):
                break
        env.pop(binder.name, None)
        return None

    for sizes in small_sizes(question.sizes, tuple(question.expressions()), question.ranges):
        found = search(0, dict(sizes))
        if found is not None:
            return found
        if budget <= 0 or thread_time() > deadline:
            return None
    return None


def small_sizes(
    names: Sequence[str], exprs: Sequence[ex.Expr], ranges: Mapping[str, tuple[int, int]]
) -> Iterator[Model]:
    """Assignments of sizes, and of arguments that may be negative, around the constants in `exprs`, smallest first."""
    constants = sorted({abs(i.value) for e in exprs for i in ex.walk(e) if isinstance(i, ex.Int)} - {0, 1})
    near: set[int] = {1, 2, 3, 4}
    for c in constants:
        if c <= 1 << 20:
            near |= {c - 1, c, c + 1, 2 * c, 2 * c + 1, 3 * c + 1}
    candidates = sorted(v for v in near if v >= 1)
    limit = {0: 1, 1: 200, 2: 40}.get(len(names), 14)
    if len(candidates) > limit:
        # Keep the ends of the scale: the smallest, and those next to the largest constants.
        half = limit // 2
        candidates = candidates[:half] + candidates[-(limit - half) :]
    below = [-v for v in candidates]
    lists = [
        candidates if ranges[n][0] >= 1 else [v for v in sorted((0, *candidates, *below), key=abs) if v >= ranges[n][0]]
        for n in names
    ]
    for choice in smallest_first(lists):
        yield dict(zip(names, choice, strict=True))


def _facts_by_depth(question: Question) -> list[Callable[[Model], tuple[int, ...]]]:
    return [compiled((b.lo, b.hi)) for b in question.binders]


def _values(binder: Binder, bounds: Callable[[Model], tuple[int, ...]], env: Model, relevant: bool) -> Sequence[int]:
    if not binder.bounded:
        return _FREE_VALUES if relevant else (0,)
    try:
        lo, hi = bounds(env)
    except ZeroDivisionError:
        return ()
    values = range(lo, hi, binder.step)
    if not relevant:
        return values[:1]
    return values if len(values) <= 40 else (*values[:36], *values[-4:])
