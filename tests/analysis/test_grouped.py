"""Tiles in groups of rows: the theorem, and questions that need no division because of it."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.ir import expr as ex
from tilewright_analysis.integers import Binder, Decider, Question
from tilewright_analysis.integers.grouped import ungrouped

ROWS, COLUMNS = ex.Size("M"), ex.cdiv(ex.Size("N"), ex.Int(64))
PROGRAM = Binder("p", "p", "program", ex.Int(0), ex.mul(ROWS, COLUMNS))


def tile(program: ex.Expr, group: int, rows: ex.Expr = ROWS, columns: ex.Expr = COLUMNS) -> tuple[ex.Expr, ex.Expr]:
    """Row and column, as kernels compute them."""
    size = ex.mul(ex.Int(group), columns)
    first = ex.mul(ex.floordiv(program, size), ex.Int(group))
    height, rest = ex.binary("min", ex.Int(group), ex.sub(rows, first)), ex.mod(program, size)
    return ex.add(first, ex.mod(rest, height)), ex.floordiv(rest, height)


def below(value: ex.Expr, bound: ex.Expr) -> ex.Expr:
    return ex.Bin("and", ex.Bin("<=", ex.Int(0), value), ex.Bin("<", value, bound))


@pytest.mark.parametrize("group", [2, 3, 8])
def test_every_tile_is_taken_once(group: int) -> None:
    for rows, columns in product(range(1, 8), range(1, 6)):
        row, column = tile(ex.Var("p"), group, ex.Size("m"), ex.Size("n"))
        env = {"m": rows, "n": columns}
        taken = [
            (ex.evaluate(row, {**env, "p": p}), ex.evaluate(column, {**env, "p": p})) for p in range(rows * columns)
        ]
        assert sorted(taken) == list(product(range(rows), range(columns)))


def test_a_model_of_rows_and_columns_gives_its_program() -> None:
    row, column = tile(ex.Var("p"), 4)
    without = ungrouped(Question(ex.Bin("<", ex.add(row, column), ex.Int(9)), (), (PROGRAM,)))
    assert without is not None
    question, numbered = without
    assert not any(
        isinstance(e, ex.Bin) and e.op in ("%", "//") for part in question.expressions() for e in ex.walk(part)
    )
    symbols = [b.name for b in question.binders[1:]]
    for sizes in ({"M": 7, "N": 200}, {"M": 8, "N": 64}, {"M": 1, "N": 300}):
        tiles = -(-sizes["N"] // 64)
        for at in product(range(sizes["M"]), range(tiles)):
            model = {**sizes, **dict(zip(symbols, at, strict=True))}
            p = numbered(model)["p"]
            assert (ex.evaluate(row, {**sizes, "p": p}), ex.evaluate(column, {**sizes, "p": p})) == at


def test_ranges_are_proved_and_tight() -> None:
    row, column = tile(ex.Var("p"), 16)
    decider = Decider()
    assert decider.decide(Question(below(row, ROWS), (), (PROGRAM,))).verdict == "proved"
    assert decider.decide(Question(below(column, COLUMNS), (), (PROGRAM,))).verdict == "proved"
    tight = decider.decide(Question(below(row, ex.sub(ROWS, ex.Int(1))), (), (PROGRAM,)))
    assert tight.verdict == "refuted" and ex.evaluate(row, tight.model) == tight.model["M"] - 1


def test_no_two_programs_take_one_tile() -> None:
    twin = Binder("q", "q", "program", ex.Int(0), PROGRAM.hi)
    (row, column), (other_row, other_column) = tile(ex.Var("p"), 4), tile(ex.Var("q"), 4)
    apart = ex.Bin("or", ex.Bin("!=", row, other_row), ex.Bin("!=", column, other_column))
    same = ex.Bin("==", ex.Var("p"), ex.Var("q"))
    decider = Decider()
    assert decider.decide(Question(ex.Bin("or", apart, same), (), (PROGRAM, twin))).verdict == "proved"
    only = Question(ex.Bin("or", ex.Bin("!=", row, other_row), same), (), (PROGRAM, twin))
    assert decider.decide(only).verdict == "refuted"


def test_the_order_of_factors_and_of_a_minimum_is_free() -> None:
    size = ex.mul(COLUMNS, ex.Int(4))
    first = ex.mul(ex.floordiv(ex.Var("p"), size), ex.Int(4))
    height, rest = ex.Bin("min", ex.sub(ROWS, first), ex.Int(4)), ex.mod(ex.Var("p"), size)
    claim = ex.Bin("and", below(ex.add(first, ex.mod(rest, height)), ROWS), below(ex.floordiv(rest, height), COLUMNS))
    assert ungrouped(Question(claim, (), (PROGRAM,))) is not None
    assert Decider(effort=1).decide(Question(claim, (), (PROGRAM,))).verdict == "proved"


def test_fewer_programs_or_other_groups_are_not_taken_for_it() -> None:
    row, _ = tile(ex.Var("p"), 4)
    more = Binder("p", "p", "program", ex.Int(0), ex.add(PROGRAM.hi, ex.Int(1)))
    assert ungrouped(Question(below(row, ROWS), (), (more,))) is None
    assert Decider().decide(Question(below(row, ROWS), (), (more,))).verdict == "refuted"
    wrong = ex.add(ex.mul(ex.floordiv(ex.Var("p"), ex.mul(ex.Int(4), COLUMNS)), ex.Int(5)), ex.mod(ex.Var("p"), ROWS))
    assert ungrouped(Question(below(wrong, ROWS), (), (PROGRAM,))) is None
    # A number of tiles that may be zero or negative does not count them.
    argument = Binder("p", "p", "program", ex.Int(0), ex.mul(ex.Size("K", -5), COLUMNS))
    strange, _ = tile(ex.Var("p"), 4, ex.Size("K", -5))
    assert ungrouped(Question(below(strange, ROWS), (), (argument,))) is None
