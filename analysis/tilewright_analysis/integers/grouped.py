"""Tiles taken in groups of rows: what holds of them for all sizes, so that no solver need show it for each kernel.

Program p of m·n takes, in groups of G rows (`tw.grouped`, and whatever is written alike),

    first = p // (G·n) · G        height = min(G, m − first)
    row = first + p % (G·n) % height        column = p % (G·n) // height

For 0 ≤ p < m·n with n ≥ 1 and G ≥ 1 this is one-to-one onto 0 ≤ row < m, 0 ≤ column < n. With q = p // (G·n) and
r = p % (G·n): q·G·n ≤ p < m·n, so first < m and height ≥ 1, and row is in [first, first + height), within [0, m). If
height = G then r < G·n = height·n; else first + height = m and r = p − first·n < height·n; so column < n. Back: q is
row // G, since height ≤ G; with it first and height are known, r = column·height + row − first, and p = q·G·n + r.

So a row and a column are any two numbers below m and n, and a question about them needs no division.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from tilewright.ir import expr as ex

from .question import Binder, Question


@dataclass(frozen=True, slots=True)
class Grouped:
    """The tiles of one program number: `rows` times `columns` in groups of `group` rows."""

    program: ex.Expr
    rows: ex.Expr
    columns: ex.Expr
    group: int

    @property
    def row(self) -> ex.Var:
        """The symbol for the row."""
        return ex.Var(f"row of {self._name}")

    @property
    def column(self) -> ex.Var:
        """The symbol for the column."""
        return ex.Var(f"column of {self._name}")

    @property
    def _name(self) -> str:
        return f"{ex.show(self.program)} in {self.group}, {ex.show(self.rows)}, {ex.show(self.columns)}"

    def number(self, model: Mapping[str, int]) -> int:
        """The program that takes the row and column of a model. Raises EvaluationError, KeyError."""
        rows, columns = ex.evaluate(self.rows, model), ex.evaluate(self.columns, model)
        row, column = model[self.row.name], model[self.column.name]
        first = row // self.group * self.group
        return first * columns + column * min(self.group, rows - first) + row - first


def ungrouped(question: Question) -> tuple[Question, Callable[[dict[str, int]], dict[str, int]]] | None:
    """An equivalent question with symbols for rows and columns, and what gives its models program numbers.

    None if nothing is grouped. It is equivalent where the programs occur in nothing else; a proof of it is always one.
    """
    programs = {b.name: b for b in question.binders if b.bounded and b.lo == ex.Int(0) and b.step == 1}
    found: dict[Grouped, None] = {}
    memo: dict[ex.Expr, ex.Expr] = {}

    def change(e: ex.Expr) -> ex.Expr:
        if e not in memo:
            memo[e] = _changed(e)
        return memo[e]

    def _changed(e: ex.Expr) -> ex.Expr:
        matched = _row(e) or _column(e)
        if matched is not None and _counts(matched[0], programs):
            found[matched[0]] = None
            return matched[1]
        match e:
            case ex.Bin(op, lhs, rhs):
                a, b = change(lhs), change(rhs)
                return e if a is lhs and b is rhs else ex.Bin(op, a, b)
            case ex.Not(arg):
                return ex.Not(change(arg))
            case _:
                return e

    claim, facts = change(question.claim), [change(f) for f in question.facts]
    binders = [
        Binder(b.name, b.label, b.kind, change(b.lo), change(b.hi), b.step, b.span, b.dies) if b.bounded else b
        for b in question.binders
    ]
    if not found:
        return None
    for g in found:
        binders += [Binder(v.name, v.name, "free") for v in (g.row, g.column)]
        for value, bound in ((g.row, g.rows), (g.column, g.columns)):
            facts += [ex.Bin("<=", ex.Int(0), value), ex.Bin("<", value, bound)]
    for a, b in combinations(found, 2):
        if (a.rows, a.columns, a.group) == (b.rows, b.columns, b.group):
            differ = ex.Bin("or", ex.Bin("!=", a.row, b.row), ex.Bin("!=", a.column, b.column))
            facts.append(ex.Bin("or", differ, ex.Bin("==", a.program, b.program)))

    def numbered(model: dict[str, int]) -> dict[str, int]:
        try:
            return {**model, **{g.program.name: g.number(model) for g in found if isinstance(g.program, ex.Var)}}
        except (ex.EvaluationError, KeyError):
            return model

    return Question(claim, tuple(facts), tuple(binders)), numbered


def _row(e: ex.Expr) -> tuple[Grouped, ex.Expr] | None:
    match e:
        case ex.Bin("+", ex.Bin("*", ex.Bin("//"), ex.Int()) as first, ex.Bin("%", rest, height)):
            found = _matched(first, rest, height)
            return (found, found.row) if found is not None else None
        case _:
            return None


def _column(e: ex.Expr) -> tuple[Grouped, ex.Expr] | None:
    match e:
        case ex.Bin("//", rest, ex.Bin("min", ex.Int(), ex.Bin("-", _, first)) as height) | ex.Bin(
            "//", rest, ex.Bin("min", ex.Bin("-", _, first), ex.Int()) as height
        ):
            found = _matched(first, rest, height)
            return (found, found.column) if found is not None else None
        case _:
            return None


def _matched(first: ex.Expr, rest: ex.Expr, height: ex.Expr) -> Grouped | None:
    match first, rest, height:
        case (
            ex.Bin("*", ex.Bin("//", program, size), ex.Int(a)),
            ex.Bin("%", other, modulus),
            ex.Bin("min", ex.Int(b), ex.Bin("-", rows, less)) | ex.Bin("min", ex.Bin("-", rows, less), ex.Int(b)),
        ) if a == b >= 1 and other == program and modulus == size and less == first:
            columns = _other_factor(size, a)
            return None if columns is None else Grouped(program, rows, columns, a)
        case _:
            return None


def _other_factor(product: ex.Expr, factor: int) -> ex.Expr | None:
    match product:
        case ex.Bin("*", ex.Int(value), other) | ex.Bin("*", other, ex.Int(value)) if value == factor:
            return other
        case _:
            return None


def _counts(found: Grouped, programs: dict[str, Binder]) -> bool:
    """True if program numbers are those of the tiles, of which there is at least one along each dimension."""
    product = (ex.Bin("*", found.rows, found.columns), ex.Bin("*", found.columns, found.rows))
    match found.program:
        case ex.Var(name):
            below = name in programs and programs[name].hi in product
        case ex.Bin("%", _, modulus):
            below = modulus in product
        case _:
            below = False
    return below and _positive(found.rows) and _positive(found.columns)


def _positive(count: ex.Expr) -> bool:
    match count:
        case ex.Size(least=least) | ex.Bin("cdiv", ex.Size(least=least), ex.Int()):
            return least >= 1
        case _:
            return False
