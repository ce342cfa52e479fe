"""Which scalars may enter the normal form modulo a period, and which must enter it exactly.

A function f of the slots is *shifted* by (p, s) in a slot x when f(x + p) = f(x) + s for all values of the others. A
slot may be reduced modulo P if every use of its value is periodic in it (s = 0, p divides P), compares it with a
constant, or adds it to another slot that is reduced by the same P. Any other use makes the slot exact, which is always
sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd, lcm
from typing import TypeVar

from tilewright.ir import expr as ex
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Facts, Form

Shift = dict[str, tuple[int, int]]
T = TypeVar("T", int, str)
_NO_FACTS = Facts({}, {}, {})


@dataclass(slots=True)
class Uses:
    """How one role uses its slots: `exact` values, values `assigned` to slots, `positions` in loops with an oracle."""

    exact: list[ex.Expr] = field(default_factory=list[ex.Expr])
    assigned: list[tuple[str, Form]] = field(default_factory=list[tuple[str, Form]])
    positions: set[str] = field(default_factory=set[str])
    # Which of the exact ones are stages, slots and parities.
    turning: set[int] = field(default_factory=set[int])

    def pinned(self) -> list[ex.Expr]:
        """The exact ones that are neither stages nor slots nor parities."""
        return [e for i, e in enumerate(self.exact) if i not in self.turning]


class _NotPeriodic(Exception):
    def __init__(self, slots: frozenset[str]) -> None:
        self.slots = slots


def classify(role: c.RoleCode, uses: Uses) -> None:
    """Fill in `modes`, `live_slots`, `live_tiles` and `reassigned` of the role."""
    periods, thresholds = reduce_slots(uses)
    by_index = {index: name for name, index in role.slots.items()}
    role.modes = [
        (periods[by_index[i]], thresholds.get(by_index[i], 0)) if by_index[i] in periods else None
        for i in range(len(role.slots))
    ]
    role.live_slots, role.live_tiles, role.reassigned = _liveness(role)


def reduce_slots(uses: Uses) -> tuple[dict[str, int], dict[str, int]]:
    """(period, threshold) of each slot that may be reduced; slots that are missing are exact."""
    assigned: dict[str, list[Form]] = {}
    for name, form in uses.assigned:
        assigned.setdefault(name, []).append(form)
    reduced = set(uses.positions) | {n for n, fs in assigned.items() if all(map(_is_affine, fs))}
    while True:
        exact = list(uses.exact)
        for name, fs in assigned.items():
            if name not in reduced:
                exact += [forms.to_expr(f) for f in fs]
        bad: set[str] = set()
        periods = dict.fromkeys(reduced, 1)
        thresholds: dict[str, int] = {}
        for expr in exact:
            try:
                shift = _shift(expr, reduced, thresholds)
            except _NotPeriodic as e:
                bad |= e.slots
                continue
            for name, (period, step) in shift.items():
                if step:
                    bad.add(name)
                else:
                    periods[name] = lcm(periods[name], period)
        bad |= {n for n in thresholds if not all(_grows(n, f) for f in assigned.get(n, ()))}
        if not bad & reduced:
            break
        reduced -= bad
    # Slots that flow into each other share a period.
    changed = True
    while changed:
        changed = False
        for name, form in uses.assigned:
            group = [name, *(n for n in form.names())]
            group = [n for n in group if n in reduced]
            if name in reduced and group:
                common = lcm(*(periods[n] for n in group))
                for n in group:
                    changed |= periods[n] != common
                    periods[n] = common
    return periods, thresholds


def _is_affine(form: Form) -> bool:
    return all(isinstance(k, ex.Var) and v.denominator == 1 for k, v in form.terms)


def _grows(name: str, form: Form) -> bool:
    """True for `name = constant` and `name = name + constant` with a constant of at least 0."""
    if form.is_constant:
        return True
    return form.terms == ((ex.Var(name), 1),) and form.const >= 0


def _shift(expr: ex.Expr, reduced: set[str], thresholds: dict[str, int]) -> Shift:
    def go(e: ex.Expr) -> Shift:
        match e:
            case ex.Int() | ex.Item():
                return {}
            case ex.Size(name) | ex.Var(name):
                return {name: (1, 1)} if name in reduced else {}
            case ex.Not(arg):
                return periodic(go(arg))
            case ex.Bin("+" | "-" as op, lhs, rhs):
                return total(go(lhs), go(rhs), 1 if op == "+" else -1)
            case ex.Bin("*", lhs, rhs):
                for value, other in ((lhs, rhs), (rhs, lhs)):
                    if isinstance(value, ex.Int):
                        return {n: (p, s * value.value) for n, (p, s) in go(other).items()}
                return total(periodic(go(lhs)), periodic(go(rhs)), 1)
            case ex.Bin("//" | "cdiv", lhs, ex.Int(d)) if d > 0:
                inner = go(lhs)
                return {n: (p * (d // gcd(d, s)), s // gcd(d, s)) for n, (p, s) in inner.items()}
            case ex.Bin("%", lhs, ex.Int(m)) if m > 0:
                return {n: (p * (m // gcd(m, s)), 0) for n, (p, s) in go(lhs).items()}
            case ex.Bin("<" | "<=" | "==" | "!=", lhs, rhs):
                moving = total(go(rhs), go(lhs), -1)
                if any(s for _, s in moving.values()):
                    return against_constant(e)
                return moving
            case ex.Bin(_, lhs, rhs):
                return total(periodic(go(lhs)), periodic(go(rhs)), 1)

    def against_constant(e: ex.Bin) -> Shift:
        gap = forms.canonical(ex.sub(e.rhs, e.lhs), {}, _NO_FACTS)
        if len(gap.terms) == 1 and isinstance(gap.terms[0][0], ex.Var):
            name, factor = gap.terms[0][0].name, abs(gap.terms[0][1])
            thresholds[name] = max(thresholds.get(name, 0), int(abs(gap.const) / factor) + 2)
            return {}
        raise _NotPeriodic(gap.names() & reduced)

    def periodic(shift: Shift) -> Shift:
        moving = frozenset(n for n, (_, s) in shift.items() if s)
        if moving:
            raise _NotPeriodic(moving)
        return shift

    def total(a: Shift, b: Shift, sign: int) -> Shift:
        result: Shift = {}
        for name in a.keys() | b.keys():
            (p, s), (q, t) = a.get(name, (1, 0)), b.get(name, (1, 0))
            both = lcm(p, q)
            result[name] = (both, s * (both // p) + sign * t * (both // q))
        return result

    return go(expr)


def _liveness(role: c.RoleCode) -> tuple[list[tuple[int, ...]], list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Per place in the code: the scalar slots and the register tiles that are read later, and the register operands
    that are assigned again while a wgmma may be reading them. Loop positions are apart.
    """
    positions = frozenset(loop.slot for loop in role.loops)
    operands = frozenset(o.a for o in role.code if isinstance(o, c.Wgmma) and isinstance(o.a, str))
    operands |= {
        o.reads[0]
        for o in role.code
        if isinstance(o, c.Compute) and o.op.op == "convert_layout" and o.writes in operands
    }

    def scalars(instr: c.Instr, live: frozenset[int]) -> frozenset[int]:
        return ((live - {instr.sets}) if instr.sets is not None else live) | (instr.uses - positions)

    def tiles(instr: c.Instr, live: frozenset[str]) -> frozenset[str]:
        return (live - _written(instr)) | frozenset(instr.reads)

    def in_flight(instr: c.Instr, live: frozenset[str]) -> frozenset[str]:
        return live | (_written(instr) & operands)

    return _backwards(role, scalars), _backwards(role, tiles), _backwards(role, in_flight)


def _written(instr: c.Instr) -> frozenset[str]:
    """The tiles that have a new value after an instruction, however it goes."""
    if isinstance(instr, c.Choice):
        then, orelse = (frozenset(o.writes for o in part if o.writes) for part in (instr.then, instr.orelse))
        return then & orelse
    return frozenset((instr.writes,)) if instr.writes is not None else frozenset()


def _backwards(role: c.RoleCode, before: Callable[[c.Instr, frozenset[T]], frozenset[T]]) -> list[tuple[T, ...]]:
    """The least solution of `live before = before(instruction, live after)`, per place in the code."""
    found: list[frozenset[T]] = [frozenset[T]()] * (len(role.code) + 1)
    changed = True
    while changed:
        changed = False
        for i in range(len(role.code) - 1, -1, -1):
            instr = role.code[i]
            live = before(instr, frozenset[T]().union(*(found[j] for j in _successors(instr, i))))
            if live != found[i]:
                found[i], changed = live, True
    return [tuple(sorted(names)) for names in found]


def _successors(instr: c.Instr, at: int) -> tuple[int, ...]:
    match instr:
        case c.LoopHead(loop=loop):
            return (at + 1, loop.end)
        case c.LoopBack(loop=loop):
            return (loop.start + 1, at + 1)
        case c.Branch(target=target):
            return (at + 1, target)
        case c.Jump(target=target):
            return (target,)
        case _:
            return (at + 1,)
