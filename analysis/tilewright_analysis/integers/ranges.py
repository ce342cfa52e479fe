"""Cheap reasoning about expressions: intervals, and known divisors. No search, a few microseconds each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from tilewright.ir import expr as ex

from .question import Question, conjuncts

Interval = tuple[int | None, int | None]  # inclusive; None is unbounded
ANY: Interval = (None, None)


def interval_env(question: Question) -> dict[str, Interval]:
    """Intervals of sizes and binders from bounds and from facts that compare one name with a constant."""
    env: dict[str, Interval] = dict(question.ranges)
    for fact in question.facts:
        _refine(env, fact)
    for b in question.binders:
        if not b.bounded:
            env[b.name] = ANY
            continue
        low, high = interval(b.lo, env)[0], interval(b.hi, env)[1]
        env[b.name] = (low, None if high is None else high - 1)
    for fact in question.facts:
        _refine(env, fact)
    return env


def _refine(env: dict[str, Interval], fact: ex.Expr) -> None:
    match fact:
        case ex.Bin("and", lhs, rhs):
            _refine(env, lhs)
            _refine(env, rhs)
        case ex.Bin("<=" | "<" | "==" as op, ex.Size(name) | ex.Var(name), ex.Int(value)):
            low, high = env.get(name, ANY)
            bound = value - (op == "<")
            env[name] = (
                value if op == "==" else low,
                bound if high is None else min(high, bound),
            )
        case ex.Bin("<=" | "<" as op, ex.Int(value), ex.Size(name) | ex.Var(name)):
            low, high = env.get(name, ANY)
            bound = value + (op == "<")
            env[name] = (bound if low is None else max(low, bound), high)
        case _:
            pass


def interval(e: ex.Expr, env: Mapping[str, Interval], *, positive_divisors: bool = False) -> Interval:
    """An interval that holds every value of `e`; conditions are 0 or 1.

    With `positive_divisors` every divisor is taken to be at least 1, because that is shown elsewhere.
    """
    match e:
        case ex.Int(value):
            return value, value
        case ex.Size(name) | ex.Var(name):
            return env.get(name, ANY)
        case ex.Item():
            return ANY
        case ex.Not(arg):
            return _flip(truth(interval(arg, env, positive_divisors=positive_divisors)))
        case ex.Bin(op, lhs, rhs):
            a = interval(lhs, env, positive_divisors=positive_divisors)
            b = interval(rhs, env, positive_divisors=positive_divisors)
            if positive_divisors and op in ("//", "%", "cdiv"):
                b = (max(1, b[0] or 1), b[1])
            return _binary(op, a, b)


def truth(value: Interval) -> Interval:
    """Interval of the truth value of something in `value`."""
    low, high = value
    if low == 0 and high == 0:
        return 0, 0
    if (low is not None and low > 0) or (high is not None and high < 0):
        return 1, 1
    return 0, 1


def _flip(value: Interval) -> Interval:
    """Interval of `not x` for a truth value x in `value`."""
    if value == (0, 0):
        return 1, 1
    return (0, 0) if value == (1, 1) else (0, 1)


def _binary(op: ex.Op, a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = a, b
    match op:
        case "+":
            return _sum(al, bl), _sum(ah, bh)
        case "-":
            return _sum(al, _neg(bh)), _sum(ah, _neg(bl))
        case "*":
            return _product(a, b)
        case "min":
            return _least((al, bl), None), _least((ah, bh), "skip")
        case "max":
            return _neg(_least((_neg(al), _neg(bl)), "skip")), _neg(_least((_neg(ah), _neg(bh)), None))
        case "//" | "cdiv":
            return _quotient(op, a, b)
        case "%":
            if bl is None or bl < 1:
                return ANY
            if al is None or al < 0:
                return 0, None if bh is None else bh - 1
            if ah is not None and ah < bl:
                return a
            return 0, _least((ah, None if bh is None else bh - 1), "skip")
        case "^":
            if al is None or bl is None or al < 0 or bl < 0 or ah is None or bh is None:
                return ANY
            return (al ^ bl, al ^ bl) if al == ah and bl == bh else (0, (1 << max(ah, bh).bit_length()) - 1)
        case "<":
            return _compare(ah, bl, al, bh, strict=True)
        case "<=":
            return _compare(ah, bl, al, bh, strict=False)
        case "==":
            return _equal(a, b)
        case "!=":
            return _flip(_equal(a, b))
        case "and":
            ta, tb = truth(a), truth(b)
            return (ta[0] or 0) & (tb[0] or 0), (ta[1] or 0) & (tb[1] or 0)
        case "or":
            ta, tb = truth(a), truth(b)
            return (ta[0] or 0) | (tb[0] or 0), (ta[1] or 0) | (tb[1] or 0)


def _sum(x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else x + y


def _neg(x: int | None) -> int | None:
    return None if x is None else -x


def _least(values: tuple[int | None, int | None], unbounded: str | None) -> int | None:
    """The smaller of two bounds; an unbounded one wins, or is skipped."""
    x, y = values
    if x is None or y is None:
        return (y if x is None else x) if unbounded == "skip" else None
    return min(x, y)


def _product(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = a, b
    if al is not None and ah is not None and bl is not None and bh is not None:
        corners = (al * bl, al * bh, ah * bl, ah * bh)
        return min(corners), max(corners)
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return al * bl, None if ah is None or bh is None else ah * bh
    return ANY


def _quotient(op: ex.Op, a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = a, b
    if bl is None or bl < 1:
        return ANY

    def divide(x: int, y: int) -> int:
        return ex.OPERATIONS[op](x, y)

    # Towards an unbounded divisor the quotient tends to 0 (from below: -1 for //, to 1 for cdiv from above).
    low: int | None = None
    if al is not None:
        low = divide(al, bl) if al < 0 else divide(al, bh) if bh is not None else 0
        if al > 0 and bh is None:
            low = 1 if op == "cdiv" else 0
    high: int | None = None
    if ah is not None:
        high = divide(ah, bl) if ah >= 0 else divide(ah, bh) if bh is not None else (-1 if op == "//" else 0)
    return low, high


def _compare(ah: int | None, bl: int | None, al: int | None, bh: int | None, *, strict: bool) -> Interval:
    if ah is not None and bl is not None and (ah < bl or (not strict and ah == bl)):
        return 1, 1
    if al is not None and bh is not None and (al > bh or (strict and al == bh)):
        return 0, 0
    return 0, 1


def _equal(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = a, b
    if al is not None and al == ah == bl == bh:
        return 1, 1
    if (ah is not None and bl is not None and ah < bl) or (al is not None and bh is not None and al > bh):
        return 0, 0
    return 0, 1


def known_divisors(facts: Iterable[ex.Expr]) -> dict[str, int]:
    """For each name, a number known to divide it, from facts of the form `name % d == 0`."""
    found: dict[str, int] = {}
    for fact in facts:
        match fact:
            case ex.Bin("==", ex.Bin("%", ex.Size(name) | ex.Var(name), ex.Int(d)), ex.Int(0)) if d > 0:
                before = found.get(name, 1)
                found[name] = before * d // gcd(before, d)
            case ex.Bin("and", lhs, rhs):
                for name, d in known_divisors((lhs, rhs)).items():
                    before = found.get(name, 1)
                    found[name] = before * d // gcd(before, d)
            case _:
                pass
    return found


def divisor(e: ex.Expr, known: Mapping[str, int]) -> int:
    """A number that divides every value of `e`; 0 when `e` is 0."""
    match e:
        case ex.Int(value):
            return abs(value)
        case ex.Size(name) | ex.Var(name):
            return known.get(name, 1)
        case ex.Bin("*", lhs, rhs):
            return divisor(lhs, known) * divisor(rhs, known)
        case ex.Bin("+" | "-" | "min" | "max", lhs, rhs):
            return gcd(divisor(lhs, known), divisor(rhs, known))
        case ex.Bin("%", lhs, ex.Int(m)) if m > 0:
            return gcd(divisor(lhs, known), m)
        case _:
            return 1


def holds_cheaply(question: Question) -> str:
    """Why the claim holds, in a word, if intervals or divisors show it; else empty."""
    env = interval_env(question)
    known = known_divisors(question.facts)
    for b in question.binders:
        if b.bounded:
            known[b.name] = gcd(divisor(b.lo, known), b.step)

    def why(claim: ex.Expr) -> str:
        if interval(claim, env) == (1, 1):
            return "intervals"
        match claim:
            case ex.Bin("==", ex.Bin("%", value, ex.Int(m)), ex.Int(0)) if m > 0 and divisor(value, known) % m == 0:
                return "divisibility"
            case ex.Bin("<=", x, ex.Bin("max", a, b)) if x in (a, b):
                return "intervals"
            case _:
                return "assumptions" if claim in question.facts else ""

    reasons = [why(part) for part in conjuncts(question.claim)]
    return (reasons[0] if reasons else "intervals") if all(reasons) else ""
