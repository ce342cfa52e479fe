"""A question: does a claim hold for all sizes, programs and iterations that satisfy the facts?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tilewright.ir import expr as ex
from tilewright.source import NO_SPAN, Span

# Sizes are at least 1 and leave room below 2**31 for the overhang of a tile and the stride of a persistent grid;
# launching a kernel checks both.
MAX_SIZE = 2**31 - 2**16


@dataclass(frozen=True, slots=True)
class Binder:
    """A symbol that is no size: `lo <= name < hi`, and `name - lo` a multiple of `step`.

    `label` is the name in the source; `name` is unique in the kernel. `free` symbols stand for values that are not
    tracked (a counter carried around a loop); nothing but the facts is known of them, and a counterexample
    that needs them proves nothing. `dies`: the symbol is the tile number that a program takes when the tiles are
    spread over so many dies (`ir.xcd_number`), not the number of the program.
    `data` symbols stand for elements of index tensors (`functions.py`): nothing but the facts is known of them either,
    but an example may choose them.
    """

    name: str
    label: str
    kind: Literal["program", "loop", "free", "data"]
    lo: ex.Expr = ex.Int(0)
    hi: ex.Expr = ex.Int(0)
    step: int = 1
    span: Span = field(default=NO_SPAN, compare=False)
    dies: int = 1

    @property
    def bounded(self) -> bool:
        """True when `lo`, `hi` and `step` say something."""
        return self.kind in ("program", "loop")

    def renamed(self, suffix: str, names: frozenset[str]) -> Binder:
        """The binder with `suffix` on its own name and on those of `names` in its bounds."""
        env: dict[str, ex.Expr] = {n: ex.Var(n + suffix) for n in names}
        return Binder(
            self.name + suffix, self.label, self.kind,
            ex.substitute(self.lo, env), ex.substitute(self.hi, env), self.step, self.span, self.dies,
        )  # fmt: skip


@dataclass(frozen=True)
class Question:
    """`claim` for all sizes and binder values with `facts`. Binders stand in nesting order."""

    claim: ex.Expr
    facts: tuple[ex.Expr, ...] = ()
    binders: tuple[Binder, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.claim, self.facts, self.binders))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes and integer arguments in the claim, the facts and the bounds, sorted."""
        return tuple(sorted(self.ranges))

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """For each of `sizes` the least and the greatest value that a launch may give it."""
        found = {s.name: s.least for e in self.expressions() for s in ex.walk(e) if isinstance(s, ex.Size)}
        return {name: launched(least) for name, least in found.items()}

    @cached_property
    def has_items(self) -> bool:
        """True when elements of tensors occur."""
        return any(isinstance(e, ex.Item) for part in self.expressions() for e in ex.walk(part))

    def without_items(self) -> Question | None:
        """A question from fewer facts, without elements: its proof is one of this. None if the claim has elements."""
        if any(True for _ in ex.items(self.claim)):
            return None
        facts = tuple(f for f in self.facts if not any(True for _ in ex.items(f)))
        binders = tuple(
            Binder(b.name, b.label, "free", span=b.span)
            if b.bounded and any(True for e in (b.lo, b.hi) for _ in ex.items(e))
            else b
            for b in self.binders
        )
        return Question(self.claim, facts, binders)

    @cached_property
    def relevant(self) -> frozenset[str]:
        """Names that the claim depends on, through facts and bounds."""
        reached = set(ex.names(self.claim))
        groups = [ex.names(f) for f in self.facts]
        groups += [ex.names(b.lo) | ex.names(b.hi) | {b.name} for b in self.binders if b.bounded]
        changed = True
        while changed:
            changed = False
            for group in groups:
                if group & reached and not group <= reached:
                    reached |= group
                    changed = True
        return frozenset(reached)

    def expressions(self) -> Iterator[ex.Expr]:
        """Claim, facts and bounds."""
        yield self.claim
        yield from self.facts
        for b in self.binders:
            if b.bounded:
                yield b.lo
                yield b.hi

    @cached_property
    def focused(self) -> Question:
        """The question without facts and binders that share no symbol with the claim, directly or through others.

        If the focused claim holds, so does this one. The reverse needs the rest to be satisfiable.
        """
        facts = tuple(f for f in self.facts if ex.names(f) & self.relevant)
        binders = tuple(b for b in self.binders if b.name in self.relevant)
        return self if len(facts) == len(self.facts) and len(binders) == len(self.binders) else Question(
            self.claim, facts, binders
        )  # fmt: skip


def launched(least: int) -> tuple[int, int]:
    """The values that a launch may give to a size or an integer argument whose least value is `least`."""
    return least, MAX_SIZE if least >= 1 else ex.GREATEST_SCALAR


def sign_claim(value: ex.Expr) -> ex.Expr:
    """`0 <= value`, without positive constant factors."""
    match value:
        case ex.Bin("*", x, ex.Int(c)) | ex.Bin("*", ex.Int(c), x) if c > 0:
            return sign_claim(x)
        case ex.Int(v):
            return ex.Int(int(v >= 0))
        case _:
            return ex.Bin("<=", ex.Int(0), value)


def conjunction(parts: Iterable[ex.Expr]) -> ex.Expr:
    """All of `parts`; 1 when there are none."""
    result: ex.Expr = ex.Int(1)
    for part in parts:
        if isinstance(part, ex.Int):
            if part.value:
                continue
            return ex.Int(0)
        result = part if result == ex.Int(1) else ex.Bin("and", result, part)
    return result


def conjuncts(claim: ex.Expr) -> list[ex.Expr]:
    """The parts of a claim that all must hold; none if it is true as it stands."""
    match claim:
        case ex.Bin("and", lhs, rhs):
            return [*conjuncts(lhs), *conjuncts(rhs)]
        case ex.Int(value) if value:
            return []
        case _:
            return [claim]
