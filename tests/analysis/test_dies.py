"""Tiles spread over dies: the numbers are a permutation, and the program of a tile is found again."""

from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.dies import program_of_tile, tile_number
from tilewright_analysis.integers import Binder, Decider, Question, conjunction

T, U, N = ex.Var("t"), ex.Var("u"), ex.Size("N")


@given(st.integers(0, 400), st.integers(2, 16))
def test_every_number_is_taken_once_and_its_program_is_known(count: int, dies: int) -> None:
    number = ir.xcd_number(T, ex.Int(count), dies)
    taken = [ex.evaluate(number, {"t": t}) for t in range(count)]
    assert sorted(taken) == list(range(count))
    assert [program_of_tile(n, count, dies) for n in taken] == list(range(count))
    # A die has neighbours only: its numbers follow each other.
    for die in range(min(dies, count)):
        mine = taken[die::dies]
        assert mine == list(range(mine[0], mine[0] + len(mine)))


def test_the_numbers_stay_in_range_and_apart_for_all_counts() -> None:
    # One die after the other, so that the solver meets no product of unknowns.
    decider = Decider()
    for dies in (2, 8):
        for die in range(dies):
            mine = ex.Bin("==", ex.mod(T, ex.Int(dies)), ex.Int(die))
            start = ex.add(
                ex.mul(ex.Int(die), ex.floordiv(N, ex.Int(dies))),
                ex.binary("min", ex.Int(die), ex.mod(N, ex.Int(dies))),
            )
            end = ex.add(
                ex.mul(ex.Int(die + 1), ex.floordiv(N, ex.Int(dies))),
                ex.binary("min", ex.Int(die + 1), ex.mod(N, ex.Int(dies))),
            )
            number = ex.add(start, ex.floordiv(T, ex.Int(dies)))
            inside = conjunction((ex.Bin("<=", start, number), ex.Bin("<", number, end)))
            question = Question(inside, (mine,), (Binder("t", "t", "program", ex.Int(0), N),))
            assert decider.decide(question).verdict == "proved"


def test_only_the_whole_formula_is_recognized_and_only_where_the_program_is_not_used_itself() -> None:
    count = ex.cdiv(N, ex.Int(64))
    first = ir.Assign("i", ir.xcd_number(T, count, 8))
    grid = ir.Programs("t", count, False, (first,))
    assert tile_number(grid) == ("i", 8)
    again = ir.Assign("i", ex.add(ex.Var("i"), ex.Int(1)))
    uses = ir.Assign("j", ex.add(T, ex.Int(1)))
    for other in (
        ir.Programs("t", N, False, (first,)),
        ir.Programs("t", count, False, (ir.Assign("i", ex.floordiv(T, ex.Int(8))),)),
        ir.Programs("t", count, False, (first, again)),
        ir.Programs("t", count, False, (first, uses)),
        ir.Programs("t", count, False, (first, ir.For("k", ex.Int(0), T, 1, ()))),
        ir.Programs("t", count, False, ()),
    ):
        assert tile_number(other) is None
