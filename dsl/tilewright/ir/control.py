"""Statements about scalars and what they decide: assignments, branches, counted loops, loops with a condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.ir.base import Block, Stmt
from tilewright.ir.expr import Bin, Expr, Int, Var, add, names, sub


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """`dst = value` for a scalar."""

    dst: str
    value: Expr


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(lo, hi, step)`: `step` is positive; the trip count may be zero.

    `unroll`: how many iterations the generated code has in a row; what the loop does is the same for all.
    """

    var: str
    lo: Expr
    hi: Expr
    step: int
    body: Block
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """A branch on a scalar, so uniform in the program."""

    cond: Expr
    then: Block
    orelse: Block = ()


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """`while cond`: the condition is evaluated before each turn. The body holds no synchronization and no policies.

    `turn` names the number of the turn, from 0, in what is said about the loop; nothing reads it.
    `counted` is the loop for those who know ranges only. Where a counter decides, it is the same loop, but that the
    counter has no value behind it. Otherwise it is some number of turns, of which nothing is known, each under the
    condition: every run of the loop is one of `counted`, and then the condition is false.
    """

    cond: Expr
    body: Block
    turn: str = field(compare=False)
    counted: For = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        loop = _over_counter(self)
        if loop is None:
            body = (If(self.cond, self.body, span=self.span),)
            loop = For(self.turn, Int(0), Var(f"{self.turn} count"), 1, body, span=self.span)
        object.__setattr__(self, "counted", loop)

    @property
    def counter(self) -> str:
        """The scalar that counts the turns: all that the condition reads of what changes. Empty if there is none."""
        return "" if self.counted.var == self.turn else self.counted.var


def _over_counter(loop: While) -> For | None:
    """`while i < hi: …; i += step` as a range, if nothing else changes `i` and nothing changes `hi`."""
    match loop.cond:
        case Bin("<" | "<=" as op, Var(name), hi):
            pass
        case Bin("<" | "<=" as op, Bin("+", Var(name), Int() as ahead), end):
            hi = sub(end, ahead)
        case _:
            return None
    hi = add(hi, Int(1)) if op == "<=" else hi
    changes = [s for s in _assigned(loop.body) if s.dst == name]
    if (
        len(changes) != 1
        or not any(s is changes[0] for s in loop.body)
        or names(hi) & {s.dst for s in _assigned(loop.body)}
    ):
        return None
    match changes[0].value:
        case Bin("+", Var(other), Int(step)) if other == name and step > 0:
            return For(name, Var(name), hi, step, loop.body, span=loop.span)
        case _:
            return None


def _assigned(block: Block) -> Iterator[Assign]:
    for stmt in block:
        match stmt:
            case Assign():
                yield stmt
            case For(body=body) | While(body=body):
                yield from _assigned(body)
            case If(then=then, orelse=orelse):
                yield from _assigned(then)
                yield from _assigned(orelse)
            case _:
                pass
