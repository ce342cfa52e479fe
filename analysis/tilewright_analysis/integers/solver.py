"""The edge to z3: proofs and models over unbounded integers. The only module that imports it.

Expressions become z3 integers with direct div and mod. z3 divides as Euclid does, which equals rounding down only for
positive divisors; so every divisor that is not a positive constant must be shown positive before an answer counts.
Measured: direct div/mod proves grouped-order maps in 15–150 ms with all sizes symbolic, where bit vectors time out.
Naming quotient and remainder of each division by a symbolic divisor (`named`) is two to four times faster there, but
it diverges on other questions, so both forms are tried. Effort is bounded in z3's own units, which do not depend on
the load of the machine; the time limit is for what those units miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import z3  # pyright: ignore[reportMissingTypeStubs]

from tilewright.ir import expr as ex

from .question import Question
from .ranges import interval, interval_env

Answer = Literal["holds", "fails", "unknown"]
_Z3 = cast(Any, z3)
_DIVISOR_EFFORT = 400_000
_SHRINK_EFFORT = 100_000


class Untranslatable(Exception):
    """An expression that has no counterpart over unbounded integers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`model` is set for `fails`: values of sizes and binders as z3 found them."""

    answer: Answer
    model: dict[str, int] | None = None
    reason: str = ""


class Solver:
    """z3 with a context of its own, so that solvers of different threads do not meet."""

    def __init__(self, timeout_ms: int = 30_000) -> None:
        self._context: Any = _Z3.Context()
        self._timeout_ms = timeout_ms
        self._positive: dict[Question, bool] = {}

    def solve(self, question: Question, effort: int, *, minimize: bool = True) -> Reply:
        """Does the claim follow from facts and bounds? Giving up is `unknown`, and so is a divisor that may not be
        positive.

        `effort` counts steps of z3, half a microsecond each or less. With `minimize`, sizes and then binder values of
        a model are made small, one after the other.
        """
        try:
            divisors = self._check_divisors(question)
        except Untranslatable as error:
            return Reply("unknown", reason=str(error))
        for named in (True, False) if divisors else (False,):
            solver, translation = self._assert(question, effort, named=named)
            result = solver.check()
            if result == _Z3.unsat:
                return Reply("holds")
            if result == _Z3.sat:
                model = translation.values(solver.model())
                if minimize:
                    order = [*question.sizes, *(b.name for b in question.binders)]
                    model = self._shrink(solver, translation, model, order)
                return Reply("fails", model)
        return Reply("unknown", reason="the solver gave up")

    def _assert(self, question: Question, effort: int, *, named: bool) -> tuple[Any, _Translation]:
        translation = _Translation(self._context, named=named)
        solver: Any = _Z3.SimpleSolver(ctx=self._context)
        solver.set("rlimit", max(1, effort))
        solver.set("timeout", self._timeout_ms)
        for c in (*bounds(question), *question.facts):
            solver.add(translation.condition(c))
        solver.add(_Z3.Not(translation.condition(question.claim), self._context))
        solver.add(*translation.definitions)
        return solver, translation

    def _check_divisors(self, question: Question) -> bool:
        """True if there are symbolic divisors. Raises Untranslatable where one may not be positive."""
        divisors = _divisors((*bounds(question), *question.facts, question.claim))
        for divisor in divisors:
            if not self._is_positive(question, divisor):
                raise Untranslatable(f"the divisor {ex.show(divisor)} may be zero or negative")
        return bool(divisors)

    def _shrink(
        self, solver: Any, translation: _Translation, model: dict[str, int], order: Iterable[str]
    ) -> dict[str, int]:
        """Bisect each value down while the constraints stay satisfiable; a timeout leaves it where it is."""
        solver.set("rlimit", _SHRINK_EFFORT)
        for name in order:
            if name not in translation.symbols:
                continue
            symbol, low = translation.symbols[name], 0
            while low < model[name]:
                middle = (low + model[name]) // 2
                solver.push()
                solver.add(symbol <= middle)
                result = solver.check()
                if result == _Z3.sat:
                    model = translation.values(solver.model())
                    solver.pop()
                    continue
                solver.pop()
                if result != _Z3.unsat:
                    break
                low = middle + 1
            solver.add(symbol <= model[name])
        return model

    def _is_positive(self, question: Question, divisor: ex.Expr) -> bool:
        claim = ex.Bin("<", ex.Int(0), divisor)
        # Facts are seldom needed, and without them the question is that of many others.
        return self._is_shown(Question(claim, (), question.binders).focused, divisor) or (
            bool(question.facts) and self._is_shown(Question(claim, question.facts, question.binders).focused, divisor)
        )

    def _is_shown(self, about: Question, divisor: ex.Expr) -> bool:
        if about not in self._positive:
            # Divisors inside this one have been shown positive before it.
            low = interval(divisor, interval_env(about), positive_divisors=True)[0]
            self._positive[about] = (low is not None and low >= 1) or any(
                self._assert(about, _DIVISOR_EFFORT, named=named)[0].check() == _Z3.unsat for named in (True, False)
            )
        return self._positive[about]


def bounds(question: Question) -> list[ex.Expr]:
    """What sizes and binders satisfy by their kind."""
    found: list[ex.Expr] = [ex.Bin("<=", ex.Int(low), ex.Size(s, low)) for s, (low, _) in question.ranges.items()]
    # Most proofs need no upper bound of sizes; a bound on arguments costs nothing where there are none.
    found += [ex.Bin("<=", ex.Size(s, low), ex.Int(high)) for s, (low, high) in question.ranges.items() if low < 1]
    for b in question.binders:
        if b.bounded:
            var = ex.Var(b.name)
            found += [ex.Bin("<=", b.lo, var), ex.Bin("<", var, b.hi)]
            if b.step > 1:
                # A count of iterations instead of a remainder: linear, and easier on the solver.
                count = ex.Var(b.name + "#")
                found += [
                    ex.Bin("<=", ex.Int(0), count),
                    ex.Bin("==", var, ex.add(b.lo, ex.mul(ex.Int(b.step), count))),
                ]
    return found


class _Translation:
    def __init__(self, context: Any, *, named: bool) -> None:
        self.context = context
        self.named = named
        self.definitions: list[Any] = []
        self.symbols: dict[str, Any] = {}
        self._integers: dict[ex.Expr, Any] = {}
        self._quotients: dict[tuple[int, int], tuple[Any, Any, Any, Any]] = {}

    def values(self, model: Any) -> dict[str, int]:
        return {name: int(model.eval(symbol, model_completion=True).as_long()) for name, symbol in self.symbols.items()}

    def condition(self, e: ex.Expr) -> Any:
        match e:
            case ex.Int(value):
                return _Z3.BoolVal(bool(value), self.context)
            case ex.Not(arg):
                return _Z3.Not(self.condition(arg), self.context)
            case ex.Bin("and", lhs, rhs):
                return _Z3.And(self.condition(lhs), self.condition(rhs))
            case ex.Bin("or", lhs, rhs):
                return _Z3.Or(self.condition(lhs), self.condition(rhs))
            case ex.Bin("<", lhs, rhs):
                return self.integer(lhs) < self.integer(rhs)
            case ex.Bin("<=", lhs, rhs):
                return self.integer(lhs) <= self.integer(rhs)
            case ex.Bin("==", lhs, rhs):
                return self.integer(lhs) == self.integer(rhs)
            case ex.Bin("!=", lhs, rhs):
                return self.integer(lhs) != self.integer(rhs)
            case _:
                return self.integer(e) != 0

    def integer(self, e: ex.Expr) -> Any:
        if e not in self._integers:
            self._integers[e] = self._integer(e)
        return self._integers[e]

    def _integer(self, e: ex.Expr) -> Any:
        match e:
            case ex.Int(value):
                return _Z3.IntVal(value, self.context)
            case ex.Size(name) | ex.Var(name):
                return self.symbols.setdefault(name, _Z3.Int(name, self.context))
            case ex.Bin("+", lhs, rhs):
                return self.integer(lhs) + self.integer(rhs)
            case ex.Bin("-", lhs, rhs):
                return self.integer(lhs) - self.integer(rhs)
            case ex.Bin("*", lhs, rhs):
                return self.integer(lhs) * self.integer(rhs)
            case ex.Bin("//" | "%" | "cdiv" as op, lhs, rhs):
                a, b = self.integer(lhs), self.integer(rhs)
                if op == "cdiv":
                    a, op = a + b - 1, "//"
                if self.named and not isinstance(rhs, ex.Int):
                    quotient, remainder = self._named(a, b)
                    return quotient if op == "//" else remainder
                return a / b if op == "//" else a % b
            case ex.Bin("min", lhs, rhs):
                a, b = self.integer(lhs), self.integer(rhs)
                return _Z3.If(a <= b, a, b, self.context)
            case ex.Bin("max", lhs, rhs):
                a, b = self.integer(lhs), self.integer(rhs)
                return _Z3.If(a <= b, b, a, self.context)
            case ex.Bin("^", lhs, ex.Int(1)):
                # Flipping the lowest bit: +1 for even values, -1 for odd ones, negative ones too.
                a = self.integer(lhs)
                return _Z3.If(a % 2 == 0, a + 1, a - 1, self.context)
            case ex.Bin("^", _, _):
                raise Untranslatable(f"{ex.show(e)} is no integer arithmetic")
            case _:
                one, zero = _Z3.IntVal(1, self.context), _Z3.IntVal(0, self.context)
                return _Z3.If(self.condition(e), one, zero, self.context)

    def _named(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Quotient and remainder as symbols of their own; the divisor is known to be positive."""
        key = (a.get_id(), b.get_id())
        if key not in self._quotients:
            number = len(self._quotients)
            q, r = (_Z3.Int(f"{name}!{number}", self.context) for name in ("quotient", "remainder"))
            self.definitions += [b >= 1, a == b * q + r, r >= 0, r < b]
            # The terms are kept alive with their names: z3 reuses the numbers of dead ones.
            self._quotients[key] = (q, r, a, b)
        return self._quotients[key][:2]


def _divisors(exprs: Iterable[ex.Expr]) -> list[ex.Expr]:
    """The symbolic divisors, those inside a divisor before it. Raises Untranslatable for one that is not positive."""
    found: dict[ex.Expr, None] = {}
    for e in exprs:
        for part in reversed(ex.walk(e)):
            match part:
                case ex.Bin("//" | "%" | "cdiv", _, ex.Int(value)):
                    if value < 1:
                        raise Untranslatable(f"the divisor {value} is not positive")
                case ex.Bin("//" | "%" | "cdiv", _, divisor):
                    found[divisor] = None
                case ex.Bin("^", _, mask) if mask != ex.Int(1):
                    raise Untranslatable(f"{ex.show(part)} is no integer arithmetic")
                case _:
                    pass
    return list(found)


def in_range(question: Question, values: Mapping[str, int]) -> bool:
    """True when every size and integer argument may be launched with its value."""
    return all(low <= values[s] <= high for s, (low, high) in question.ranges.items())
