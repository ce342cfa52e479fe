"""Follows references, offsets and scales through the statements of a kernel, loops to their fixpoint.

Each execution of a maximum makes a reference of its own. What a loop carries is expressed in the references that the
loop carries: if `m` and `l` come around, `l` is relative to `m` whatever iteration it is. Where a condition compares
references, both cases are followed apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from tilewright.ir import nodes as ir
from tilewright.ir.dataflow import exposed
from tilewright.ir.expr import Int

from ...context import KernelContext
from .axes import defined
from .references import (
    COMPARISONS,
    DATA,
    SAME,
    UNARY,
    Condition,
    Form,
    Mismatch,
    Relative,
    chosen,
    opaque,
    plus,
    product,
    quotient,
    reference,
    renamed,
    summed,
    total,
)

_ROUNDS = 8
_MOST_FORKS = 3
_BROKEN = "its parts are relative to different maxima"

Values = dict[str, Relative]
Cases = tuple[tuple[int, bool], ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A statement that adds values with scales, or stores one (`right` is None then).

    `agree`: the scales are equal, or nothing is left of them. `lost` says why a scale is not known. `logarithm`: what
    is stored is the logarithm of a value with a scale, and `left` what is left of its maximum there.
    """

    stmt: ir.Stmt
    left: Form
    right: Form | None
    agree: bool
    lost: str = ""
    logarithm: bool = False


class _Fork(Exception):
    def __init__(self, stmt: int) -> None:
        super().__init__()
        self.stmt = stmt


class Scaling:
    """Scales of all tiles of one kernel; look at `meetings`, `references` and `exposed` after `run`."""

    def __init__(self, context: KernelContext) -> None:
        self._kernel = context.kernel
        self._meetings: dict[tuple[int, Cases], Meeting] = {}
        self._stored: dict[str, set[Form]] = {}
        self._cases: dict[int, bool] = {}
        self._made: list[set[str]] = []
        self._numbers: dict[int, int] = {}
        self.references: dict[int, ir.Compute] = {}
        self.exposed: set[str] = set()

    def run(self) -> Scaling:
        """Follow the whole kernel."""
        self._runs(self._kernel.body, {})
        return self

    @property
    def meetings(self) -> list[Meeting]:
        """One for each statement: the worst of its cases. A stored value may be relative to references that are
        stored too.
        """
        known = {n for forms in self._stored.values() for f in forms for n, _ in f}
        found: dict[int, Meeting] = {}
        for (number, _), meeting in self._meetings.items():
            if meeting.right is None and meeting.left and {n for n, _ in meeting.left} <= known:
                meeting = replace(meeting, agree=True)
            before = found.get(number)
            if before is None or (before.agree and not before.lost and (meeting.lost or not meeting.agree)):
                found[number] = meeting
        return list(found.values())

    # ------------------------------------------------------------------------------------ statements

    def _runs(self, block: ir.Block, values: Values) -> list[Values]:
        """The outcomes of a block, one for each case of the conditions on references in it."""
        copy = dict(values)
        try:
            for stmt in block:
                self._statement(stmt, copy)
            return [copy]
        except _Fork as fork:
            found: list[Values] = []
            for case in (True, False):
                self._cases[fork.stmt] = case
                found += self._runs(block, values)
                del self._cases[fork.stmt]
            return found

    def _statement(self, stmt: ir.Stmt, values: Values) -> None:
        match stmt:
            case ir.Compute():
                values[stmt.dst] = self._compute(stmt, values)
            case ir.Mma(dst=dst, a=a, b=b, acc=acc):
                term = product(values.get(a, DATA), values.get(b, DATA))
                values[dst] = self._sum(stmt, values.get(acc, DATA), summed(term))
            case ir.Wgmma(dst=dst, a=a, b=b, acc=acc):
                left = a.name if isinstance(a, ir.TileRef) else f"[{a.buffer}]"
                term = product(values.get(left, DATA), values.get(f"[{b.buffer}]", DATA))
                values[dst] = self._sum(stmt, values.get(acc, DATA), summed(term))
            case ir.Tcgen05(a=a, b=b, acc=acc, accumulate=accumulate):
                term = product(values.get(f"[{a.buffer}]", DATA), values.get(f"[{b.buffer}]", DATA))
                before = None if accumulate == Int(0) else values.get(f"[{acc.buffer}]")
                made = summed(term) if before is None else self._sum(stmt, before, summed(term))
                values[f"[{acc.buffer}]"] = made
            case ir.TensorLoad(dst=dst, src=src):
                values[dst] = values.get(f"[{src.buffer}]", DATA)
            case ir.SharedStore(dst=dst, src=src):
                values[f"[{dst.buffer}]"] = values.get(src, DATA)
            case ir.SharedLoad(dst=dst, src=src):
                values[dst] = values.get(f"[{src.buffer}]", DATA)
            case ir.Store(view=view, src=src) | ir.Atomic(view=view, src=src):
                self._store(stmt, view.tensor, values.get(src, DATA))
            case ir.Scatter(tensor=tensor, src=src):
                self._store(stmt, tensor, values.get(src, DATA))
            case ir.TmaStore(view=view, src=src):
                self._store(stmt, view.tensor, values.get(f"[{src.buffer}]", DATA))
            case ir.For(body=body) | ir.Programs(body=body):
                self._loop(stmt, body, values)
            case ir.While():
                self._statement(stmt.counted, values)
            case ir.If():
                self._branch(stmt, values)
            case ir.Roles(roles=roles):
                for role in roles:
                    self._runs(role.body, values)
            case _:
                values |= dict.fromkeys(defined((stmt,)), DATA)

    def _branch(self, stmt: ir.If, values: Values) -> None:
        known = self._cases.get(id(stmt))
        if known is not None:
            for inner in stmt.then if known else stmt.orelse:
                self._statement(inner, values)
            return
        ends: list[Values] = []
        for block in (stmt.then, stmt.orelse):
            end = dict(values)
            for inner in block:
                self._statement(inner, end)
            ends.append(end)
        for name in ends[0].keys() | ends[1].keys():
            one, other = ends[0].get(name), ends[1].get(name)
            if one is None or other is None or one == other:
                values[name] = one or other or DATA
            elif len(self._cases) < _MOST_FORKS and (one.scale, one.offset) != (other.scale, other.offset):
                raise _Fork(id(stmt))
            else:
                values[name] = chosen(one, other) or Relative(lost="branches leave it with different scales")

    # ------------------------------------------------------------------------------------ loops

    def _loop(self, stmt: ir.Stmt, body: ir.Block, values: Values) -> None:
        inside = {id(s) for s in ir.walk(body)}
        # What the loop itself reads of a turn before comes first: its names stand for the references of both.
        read = exposed(body)
        carried = sorted((n for n in self._assigned(body) if n in values), key=lambda n: (n not in read, n))
        head = dict(values)
        ends: list[Values] = []
        for turn in range(_ROUNDS):
            for key in [k for k in self._meetings if k[0] in inside]:
                del self._meetings[key]
            self._made.append(set())
            ends = self._runs(body, head)
            made = self._made.pop()
            after = self._head(stmt, carried, values, head if turn else None, ends, made)
            if self._made:
                self._made[-1] |= made | {self._own(stmt, n) for n in carried}
            if turn == _ROUNDS - 1:
                after = {
                    n: v if v == head[n] else Relative(lost="it changes from turn to turn") for n, v in after.items()
                }
            if all(after[n] == head[n] for n in carried):
                break
            head |= after
        for end in ends:
            for name in end.keys() - values.keys():
                values[name] = end[name]
        values |= {n: head[n] for n in carried}

    def _head(
        self, stmt: ir.Stmt, carried: list[str], before: Values, head: Values | None, ends: list[Values], made: set[str]
    ) -> Values:
        """The values at the head of a loop: those before it, `head` if known, or those of any of its ends."""
        own = {n: self._own(stmt, n) for n in carried}
        pure = [
            n
            for n in carried
            if any((s := _single(e[n])) is not None and (s[0] in made or s[0] == own[n]) for e in ends)
        ]
        # A scaled maximum is as good a reference as the maximum.
        starts = {s[0]: (own[n], 1 / s[1]) for n in reversed(pure) if (s := _single(before[n])) is not None}
        first = {n: renamed(before[n], starts) for n in carried}
        empty = {own[n] for n in pure if before[n].constant == -inf}
        result = {n: reference(own[n]) if n in pure else (head or first)[n] for n in carried}
        for end in ends:
            names = {s[0]: (own[n], 1 / s[1]) for n in reversed(pure) if (s := _single(end[n])) is not None}
            names |= {s: (f"{s}~", 1.0) for s in made | set(own.values()) if s not in names and not s.endswith("~")}
            for n in carried:
                result[n] = _met(result[n], renamed(end[n], names), empty)
        return result

    def _own(self, stmt: ir.Stmt, name: str) -> str:
        return f"{name}#loop{self._number(stmt)}"

    def _assigned(self, body: ir.Block) -> set[str]:
        buffers = {f"[{s.dst.buffer}]" for s in ir.walk(body) if isinstance(s, ir.SharedStore)}
        buffers |= {f"[{s.acc.buffer}]" for s in ir.walk(body) if isinstance(s, ir.Tcgen05)}
        return defined(body) | buffers

    def _number(self, stmt: ir.Stmt) -> int:
        return self._numbers.setdefault(id(stmt), len(self._numbers))

    # ------------------------------------------------------------------------------------ computation

    def _compute(self, stmt: ir.Compute, values: Values) -> Relative:
        args = [_operand(a, values) for a in stmt.args]
        first = args[0] if args else DATA
        op = stmt.op
        if op == "full":
            return first
        if op in SAME:
            return first
        if op in UNARY:
            return UNARY[op](first)
        if op in COMPARISONS:
            return replace(opaque(op), condition=self._condition(stmt, args))
        match op:
            case "not":
                made = first.condition
                return replace(DATA, condition=made and replace(made, inverted=not made.inverted))
            case "add" | "sub":
                return self._sum(stmt, first, args[1], 1.0 if op == "add" else -1.0)
            case "fma":
                return self._sum(stmt, product(first, args[1]), args[2])
            case "mul":
                return product(first, args[1])
            case "div":
                return quotient(first, args[1])
            case "sum" | "cumsum":
                return summed(first)
            case "max" | "min":
                return replace(first, constant=None) if first.scale or first.lost else self._reference(stmt)
            case "maximum" | "minimum":
                return self._extreme(stmt, first, args[1])
            case "where":
                return self._where(stmt, first.condition, args[1], args[2])
            case _:
                return opaque(op, *args)

    def _reference(self, stmt: ir.Compute) -> Relative:
        name = f"{stmt.dst}#{self._number(stmt)}"
        self.references[id(stmt)] = stmt
        for made in self._made:
            made.add(name)
        return reference(name)

    def _extreme(self, stmt: ir.Compute, a: Relative, b: Relative) -> Relative:
        """A reference if one side is one; a constant beside something with a scale keeps it from zero."""
        if a.scale or b.scale:
            found = chosen(a, b)
            return found if found is not None else opaque(stmt.op, a, b)
        # Where nothing was before: a running maximum of what is loaded element by element.
        nothing = -inf if stmt.op == "maximum" else inf
        begins = any(v.constant == nothing for v in (a, b)) and None in (a.constant, b.constant)
        return self._reference(stmt) if a.offset or b.offset or begins else opaque(stmt.op, a, b)

    def _condition(self, stmt: ir.Compute, args: list[Relative]) -> Condition:
        difference = plus(args[0].offset, args[1].offset, -1.0)
        return Condition(id(stmt), forks=len(difference) > 1 and stmt.op not in ("eq", "ne"))

    def _where(self, stmt: ir.Compute, condition: Condition | None, a: Relative, b: Relative) -> Relative:
        if condition is not None and condition.forks:
            known = self._cases.get(condition.stmt)
            if known is not None:
                return a if known != condition.inverted else b
            if (a.offset, a.scale, a.constant) != (b.offset, b.scale, b.constant) and len(self._cases) < _MOST_FORKS:
                raise _Fork(condition.stmt)
        found = chosen(a, b)
        return found if found is not None else Relative(touched=True, lost="where chooses between different scales")

    def _sum(self, stmt: ir.Stmt, a: Relative, b: Relative, sign: float = 1.0) -> Relative:
        key = id(stmt), tuple(sorted(self._cases.items()))
        self._meetings.pop(key, None)
        meets = bool(a.scale or b.scale or ((a.lost or b.lost) and (a.touched or b.touched)))
        try:
            result = total(a, b, sign)
        except Mismatch as wrong:
            self._meetings[key] = Meeting(stmt, wrong.left, wrong.right, False)
            return Relative(touched=True, lost=_BROKEN)
        if meets and not (a.neutral or b.neutral):
            self._meetings[key] = Meeting(stmt, a.scale, b.scale, True, a.lost or b.lost)
        return result

    def _store(self, stmt: ir.Stmt, tensor: str, value: Relative) -> None:
        key = id(stmt), tuple(sorted(self._cases.items()))
        self._meetings.pop(key, None)
        if value.offset and value.touched:
            self._meetings[key] = Meeting(stmt, value.offset, None, False, logarithm=True)
        elif value.offset:
            self.exposed.add(tensor)
            self._stored.setdefault(tensor, set()).add(value.offset)
        elif value.scale or value.lost or value.touched:
            self._meetings[key] = Meeting(stmt, value.scale, None, not value.scale, value.lost)


def _operand(operand: ir.Operand, values: Mapping[str, Relative]) -> Relative:
    if isinstance(operand, ir.TileRef):
        return values.get(operand.name, DATA)
    if isinstance(operand, float | int):
        return Relative(constant=float(operand))
    value = getattr(operand, "value", None)
    return Relative(constant=float(value)) if isinstance(value, int) else DATA


def _single(value: Relative) -> tuple[str, float] | None:
    """The reference that a value is a multiple of, and the factor; or None."""
    return value.offset[0] if len(value.offset) == 1 and not value.scale else None


def _met(one: Relative, other: Relative, empty: set[str]) -> Relative:
    """Either of two values at the head of a loop. Before the first turn a sum may be zero, or anything if all its
    references are still minus infinity: the first rescaling multiplies it by zero.
    """
    if one == other or other.lost == _BROKEN:
        return one  # said where it broke
    touched = one.touched or other.touched
    for a, b in ((one, other), (other, one)):
        if a.constant == 0 or (a.constant is not None and b.scale and {n for n, _ in b.scale} <= empty):
            return (
                replace(b, touched=touched, constant=None) if b.constant != a.constant else replace(b, touched=touched)
            )
    found = None if one.constant is not None or other.constant is not None else chosen(one, other)
    if found is not None:
        return found
    if not (one.scale or other.scale or one.lost or other.lost):
        return Relative(touched=touched)
    return Relative(touched=True, lost=one.lost or other.lost or "the turns of a loop leave it with different scales")
