"""TW205: an index does not fit 32 bits.

Scalars are 32-bit integers. Origins of tiles, tile counts and everything computed on the way to them must stay below
2**31 for all sizes that can be launched; a product of sizes usually does not. The address itself (row times stride)
is computed in 64 bits.

Sizes are at most 2**31 - 2**16 and no tensor is larger than 512 GiB; launching
checks the first, and that there are fewer than 2**31 programs. Counters that a loop
carries are not examined: they count iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext, Site
from ...integers import MAX_SIZE, Decision, Question, smallest_first
from ...integers.magnitude import MAX_TENSOR_BYTES, Magnitudes
from ...integers.ranges import Interval, interval, interval_env, known_divisors
from ...report import Obligation
from ..outcome import Values, assume_fix, fixes_of, proved, settle, unknown

CODE = "TW205"
_LIMIT = 2**31
# What room `MAX_SIZE` leaves.
_OVERHANG = _LIMIT - MAX_SIZE
_MOST_SIZES = 100_000
_MOST_PROGRAMS = 2**31 - 1
_WHAT = "every index fits 32 bits"


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for the kernel: the first index that may not fit, or none."""
    magnitudes = Magnitudes(context.kernel.params)
    seen: set[ex.Expr] = set()
    how = "magnitudes"
    open_: Obligation | None = None
    for site in context.sites:
        for expr in _scalars(site.stmt):
            for part in _parts(expr):
                value = site.value(part)
                if value in seen:
                    continue
                seen.add(value)
                decision = _fits(context, magnitudes, site, value)
                if decision is None:
                    continue
                if decision.verdict == "proved":
                    how = decision.how
                    continue
                if "TW301" in context.refuted:
                    how = "not decided because of the fault in the tile map"
                    yield Obligation(CODE, "memory", _WHAT, site.stmt.span, "unknown", how=how)
                    return
                found = _finding(context, site, part, value, decision)
                if found.verdict != "unknown":
                    yield found
                    return
                # A larger product further on may be decided.
                open_ = open_ or found
    if open_ is not None:
        yield open_
    elif seen:
        yield proved(CODE, "memory", _WHAT, context.kernel.span, how)


def _fits(context: KernelContext, magnitudes: Magnitudes, site: Site, value: ex.Expr) -> Decision | None:
    """None: evidently in range, or not tracked."""
    binders = {b.name: b for b in site.binders}
    names = {e.name for e in ex.walk(value) if isinstance(e, ex.Var)}
    if any(n not in binders or binders[n].kind == "free" for n in names):
        return None
    if any(b.kind == "program" and _divides_count(value, b.hi) for b in site.loops):
        return None
    question = site.question(_claim(value))
    env = interval_env(question)
    for b in site.loops:
        low, high = interval(b.lo, env, positive_divisors=True)[0], magnitudes.at_most(b.hi, binders, env)
        before = env.get(b.name, (None, None))[1]
        high = _smaller(before, None if high is None else high - 1)
        env[b.name] = (low, _smaller(high, _MOST_PROGRAMS - 1) if b.kind == "program" else high)
    low, high = interval(value, env, positive_divisors=True)
    high = _smaller(high, magnitudes.at_most(value, binders, env))
    if _inside((low, high)):
        return None
    limits = tuple(ex.Bin("<=", ex.Size(s, low), ex.Int(high)) for s, (low, high) in question.ranges.items())
    if context.kernel.contracts:  # what tables hold may be compared with any size
        rest = [s for s in context.kernel.sizes if s not in question.ranges and s not in context.kernel.integers]
        limits += tuple(ex.Bin("<=", ex.Size(s), ex.Int(MAX_SIZE)) for s in rest)
    facts = (*question.facts, *limits)
    base, rest = _base(value)
    # What lies inside of an extent is asked once for all the places around it.
    small = abs(rest) < _OVERHANG and (
        any(context.decider.knows(Question(c, facts, question.binders)) for c in _numbers_of_tiles(base, question))
        or context.decider.proves(Question(_small(base), facts, question.binders))
    )
    if small or context.decider.proves(Question(question.claim, facts, question.binders)):
        return Decision("proved", "z3")
    model = _large_example(context, site, value)
    if model is not None:
        return Decision("refuted", "large sizes", model)
    return Decision("unknown", missing="neither a bound nor sizes that break it were found")


def _base(value: ex.Expr) -> tuple[ex.Expr, int]:
    """`value` as an expression and a constant that is added to it."""
    rest = 0
    while isinstance(value, ex.Bin) and value.op in ("+", "-") and isinstance(value.rhs, ex.Int):
        rest += value.rhs.value if value.op == "+" else -value.rhs.value
        value = value.lhs
    return value, rest


def _numbers_of_tiles(value: ex.Expr, question: Question) -> Iterator[ex.Expr]:
    """That a value is where a tile of some size begins: claims each of which makes it less than an extent."""
    match value:
        case ex.Bin("*", number, ex.Int(length)) if length > 0:
            parts = (part for e in question.expressions() for part in ex.walk(e))
            for count in dict.fromkeys(p for p in parts if isinstance(p, ex.Bin) and p.op == "cdiv"):
                if _is_positive_count(count) and count.rhs == ex.Int(length):
                    yield ex.Bin("and", ex.Bin("<=", ex.Int(0), number), ex.Bin("<", number, count))
        case _:
            pass


def _small(value: ex.Expr) -> ex.Expr:
    """That a value is at most an extent, so that a little more or less fits 32 bits, too."""
    return ex.Bin("and", ex.Bin("<=", ex.Int(0), value), ex.Bin("<=", value, ex.Int(MAX_SIZE)))


def _divides_count(value: ex.Expr, count: ex.Expr) -> bool:
    """True for a product of some of the factors of the number of programs, which is below 2**31 where one runs.

    The others are at least 1 then, if they are sizes, numbers of tiles of a size, or constants.
    """
    factors = list(_factors(count))
    if not all(isinstance(f, ex.Int) or _is_positive_count(f) for f in factors):
        return False
    for f in _factors(value):
        if f not in factors:
            return False
        factors.remove(f)
    return all(not isinstance(f, ex.Int) or f.value > 0 for f in factors)


def _factors(value: ex.Expr) -> Iterator[ex.Expr]:
    if isinstance(value, ex.Bin) and value.op == "*":
        yield from _factors(value.lhs)
        yield from _factors(value.rhs)
    else:
        yield value


def _is_positive_count(value: ex.Expr) -> bool:
    match value:
        case ex.Size(least=least):
            return least >= 1
        case ex.Bin("cdiv", ex.Size(least=least), ex.Int(tile)):
            return tile > 0 and least >= 1
        case _:
            return False


def _claim(value: ex.Expr) -> ex.Expr:
    return ex.Bin("and", ex.Bin("<=", ex.Int(-_LIMIT), value), ex.Bin("<", value, ex.Int(_LIMIT)))


def _large_example(context: KernelContext, site: Site, value: ex.Expr) -> dict[str, int] | None:
    """Powers of two for the sizes that matter, smallest product first, at the last program and iteration."""
    matter = {n for e in (value, *(e for b in site.loops for e in (b.lo, b.hi))) for n in ex.names(e)}
    names = [n for n in context.kernel.sizes if n in matter]
    known = known_divisors(context.assumptions)
    least = {n: known.get(n, 1) for n in context.kernel.sizes}
    exponents = range(0, 31) if len(names) <= 2 else range(0, 31, 5)
    ends = {31: ex.GREATEST_SCALAR, 32: ex.LEAST_SCALAR}  # of arguments that may be negative
    integers = context.kernel.integers
    choices = [[*exponents, *ends] if n in integers else exponents for n in names]
    for choice in islice(smallest_first(choices), _MOST_SIZES):
        env = {**least, **{n: ends.get(k, least[n] << k) for n, k in zip(names, choice, strict=True)}}
        if all(v <= MAX_SIZE for n, v in env.items() if n not in integers) and _breaks(context, site, value, env):
            return env
    return None


def _breaks(context: KernelContext, site: Site, value: ex.Expr, env: dict[str, int]) -> bool:
    """Whether `value` leaves 32 bits at these sizes; puts the values of the binders into `env`."""
    try:
        if not all(ex.evaluate(a, env) for a in context.assumptions) or not _in_memory(context, env):
            return False
        for b in site.loops:
            values = range(ex.evaluate(b.lo, env), ex.evaluate(b.hi, env), b.step)
            if not values:
                return False
            if b.kind == "program" and len(values) > _MOST_PROGRAMS:
                return False
            env[b.name] = values[-1]
        return all(ex.evaluate(c, env) for c in site.conditions) and not ex.evaluate(_claim(value), env)
    except ex.EvaluationError:
        return False


def _in_memory(context: KernelContext, env: Values) -> bool:
    for p in context.kernel.params:
        total = p.type.dtype.bytes
        for extent in p.type.shape:
            total *= ex.evaluate(extent, env)
        if total > MAX_TENSOR_BYTES:
            return False
    return True


def _finding(context: KernelContext, site: Site, part: ex.Expr, value: ex.Expr, decision: Decision) -> Obligation:
    text = ex.show(part)
    if decision.verdict == "unknown":
        sizes = sorted({e.name for e in ex.walk(value) if isinstance(e, ex.Size)} | _bounding(site, value))
        missing = (
            f"how large {text} gets is not known: bounds on {', '.join(sizes)} say so, as tw.assume({sizes[0]} <= 1024)"
            if sizes
            else f"how large {text} gets is not known: nothing bounds what it is computed from"
        )
        return unknown(context, CODE, "memory", _WHAT, site.stmt.span, missing)

    def message(m: Values) -> str:
        return f"{text} is {ex.evaluate(value, m)} here and does not fit a 32-bit integer (below {_LIMIT})."

    sizes_only = not any(isinstance(e, ex.Var) for e in ex.walk(value))
    fix = assume_fix(context, ex.Bin("<", value, ex.Int(_LIMIT))) if sizes_only else None
    return settle(
        context, site, CODE, "memory", _WHAT, decision, message,
        fixes=fixes_of(fix), values=lambda m: {text: str(ex.evaluate(value, m))},
    )  # fmt: skip


def _bounding(site: Site, value: ex.Expr) -> set[str]:
    """Sizes that bound the symbols of an expression."""
    used = {e.name for e in ex.walk(value) if isinstance(e, ex.Var)}
    bounds = [e for b in site.loops if b.name in used for e in (b.lo, b.hi)]
    return {s.name for e in bounds for s in ex.walk(e) if isinstance(s, ex.Size)}


def _scalars(stmt: ir.Stmt) -> Iterator[ex.Expr]:
    """Scalar expressions that a statement computes. The launch computes and checks the number of programs itself."""
    if isinstance(stmt, ir.Programs):
        return
    for operand in ir.operands(stmt):
        match operand:
            case ex.Int() | ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
                yield operand
            case ir.View(origin=origin):
                yield from origin
            case ir.BufRef(stage=index) | ir.BarRef(slot=index):
                yield index
            case _:
                pass


def _parts(expr: ex.Expr) -> Iterator[ex.Expr]:
    """Sub-expressions that can leave the range of their operands, innermost first."""
    found = [e for e in ex.walk(expr) if isinstance(e, ex.Bin) and e.op in ("+", "-", "*")]
    return reversed(found)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _inside(value: Interval) -> bool:
    low, high = value
    return low is not None and high is not None and low >= -_LIMIT and high < _LIMIT
