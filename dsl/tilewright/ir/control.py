"""Statements that decide what runs: branches, counted loops, and loops with a condition."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.base import Block, Stmt
from tilewright.ir.expr import Expr, Int, Var


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(lo, hi, step)`: `step` is positive; the trip count may be zero."""

    var: str
    lo: Expr
    hi: Expr
    step: int
    body: Block


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
    `counted` is the loop for those who need not know when it ends: some number of turns, of which nothing is known,
    each under the condition. Every run of the loop is one of `counted`, and then the condition is false.
    """

    cond: Expr
    body: Block
    turn: str = field(compare=False)
    counted: For = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        turns = Var(f"{self.turn} count")
        body = (If(self.cond, self.body, span=self.span),)
        object.__setattr__(self, "counted", For(self.turn, Int(0), turns, 1, body, span=self.span))
