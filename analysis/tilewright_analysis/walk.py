"""Runs the scalars of a kernel, and nothing else, at small sizes: finds the first time a condition fails at a
statement.

For values that the symbolic walk does not track, such as ring counters carried around two loops. Finding nothing
proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from .integers import smallest_first
from .integers.ranges import known_divisors

_MOST_STEPS = 20_000
_MOST_SIZES = 20_000
_PROGRAMS = 3


class _Found(Exception):
    def __init__(self, env: dict[str, int]) -> None:
        super().__init__()
        self.env = env


class _Exhausted(Exception):
    pass


def first_failure(kernel: ir.Kernel, stmt: ir.Stmt, claim: ex.Expr) -> dict[str, int] | None:
    """Values of sizes and scalars when `claim`, in the names of the source, first fails as `stmt` is about to run."""
    walk = _Walk(stmt, claim)
    try:
        for sizes in _sizes(kernel):
            walk.block(kernel.body, dict(sizes))
    except _Found as found:
        return found.env
    except _Exhausted:
        pass
    return None


def _sizes(kernel: ir.Kernel) -> Iterator[dict[str, int]]:
    """One to eight iterations of the loops with a constant step, few tiles of the rest."""
    known = known_divisors(a.expr for a in kernel.assumptions)
    steps = {1}
    for s in ir.walk(kernel.body):
        if isinstance(s, ir.For):
            steps.add(s.step)
    lengths = sorted({1, *(step * n for step in steps for n in (1, 2, 3, 5, 8))})
    rounded = {
        name: sorted({-(-n // known.get(name, 1)) * known.get(name, 1) for n in lengths}) for name in kernel.sizes
    }
    for name in kernel.integers:
        rounded[name] = sorted({-1, 0, *rounded[name]}, key=abs)
    for choice in islice(smallest_first([rounded[n] for n in kernel.sizes]), _MOST_SIZES):
        env = dict(zip(kernel.sizes, choice, strict=True))
        if all(ex.evaluate(a.expr, env) for a in kernel.assumptions):
            yield env


class _Walk:
    def __init__(self, stmt: ir.Stmt, claim: ex.Expr) -> None:
        self.stmt, self.claim = stmt, claim
        self.steps = 0

    def block(self, block: ir.Block, env: dict[str, int]) -> None:
        for stmt in block:
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise _Exhausted
            try:
                self._statement(stmt, env)
            except ex.EvaluationError:
                return

    def _statement(self, stmt: ir.Stmt, env: dict[str, int]) -> None:
        if stmt is self.stmt and not ex.evaluate(self.claim, env):
            raise _Found(dict(env))
        match stmt:
            case ir.Assign(dst=dst, value=value):
                env[dst] = ex.evaluate(value, env)
            case ir.For(var=var, lo=lo, hi=hi, step=step, body=body):
                for value in range(ex.evaluate(lo, env), ex.evaluate(hi, env), step):
                    env[var] = value
                    self.block(body, env)
            case ir.While(cond=cond, body=body):
                while ex.evaluate(cond, env):
                    self.steps += 1
                    if self.steps > _MOST_STEPS:
                        raise _Exhausted
                    self.block(body, env)
            case ir.Programs(var=var, count=count, persistent=persistent, body=body):
                count = ex.evaluate(count, env)
                if persistent:
                    # One program that takes every tile: the most that a counter can see.
                    for value in range(count):
                        env[var] = value
                        self.block(body, env)
                else:
                    for value in range(min(count, _PROGRAMS)):
                        self.block(body, {**env, var: value})
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.block(then if ex.evaluate(cond, env) else orelse, env)
            case ir.Roles(roles=roles):
                for role in roles:
                    self.block(role.body, dict(env))
            case _:
                pass
