"""Expressions keep what they were asked; what they are does not depend on that."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tilewright.ir import expr as ex
from tilewright_reference.numpy_functions import matrix_product

N, T = ex.Size("N"), ex.Var("t")


def built() -> list[ex.Expr]:
    item = ex.Item("OFFSETS", (ex.Bin("+", T, ex.Int(1)),))
    return [ex.Bin("*", ex.Bin("+", T, N), item), ex.Not(ex.Bin("<", T, N)), item]


@pytest.mark.parametrize("number", range(3))
def test_equal_expressions_are_equal_before_and_after_they_were_asked(number: int) -> None:
    one, other = built()[number], built()[number]
    assert one is not other and one == other and hash(one) == hash(other)
    assert ex.names(one) == ex.names(other) == {"t", "N"} or number == 2
    assert ex.walk(one) == ex.walk(other) and ex.walk(one)[0] is one
    again = pickle.loads(pickle.dumps(one))
    assert again == other and hash(again) == hash(other) and ex.walk(again) == ex.walk(one)


def test_different_expressions_differ() -> None:
    every = [*built(), ex.Bin("+", T, N), ex.Bin("-", T, N), ex.Bin("+", N, T), ex.Not(T), ex.Item("OFFSETS", (T,))]
    assert len(set(every)) == len(every)
    assert all(a != b for i, a in enumerate(every) for b in every[i + 1 :])


def test_substitution_folds_what_was_built_unfolded() -> None:
    loose = ex.Bin("+", ex.Bin("*", T, ex.Int(1)), ex.Bin("-", ex.Int(3), ex.Int(3)))
    assert ex.substitute(loose, {}) == T
    assert ex.substitute(loose, {"N": ex.Int(2)}) == T
    assert ex.substitute(ex.Not(ex.Not(T)), {}) == T
    folded = ex.add(T, N)
    assert ex.substitute(folded, {"M": ex.Int(2)}) is folded
    with pytest.raises(ex.EvaluationError):
        ex.substitute(ex.Bin("//", T, ex.Int(0)), {})


def test_sub_expressions_stand_before_those_inside() -> None:
    e = built()[0]
    assert [type(p).__name__ for p in ex.walk(e)] == ["Bin", "Bin", "Var", "Size", "Item", "Bin", "Var", "Int"]


@pytest.mark.parametrize("shape", [(3, 5, 7), (300, 64, 128), (1000, 200, 300), (64, 700, 900)])
def test_products_in_blocks_of_rows_are_products(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    generator = np.random.default_rng(0)
    a, b = generator.integers(-8, 8, (2, m, k)).astype(float), generator.integers(-8, 8, (k, n)).astype(float)
    assert np.array_equal(matrix_product(a, b), a @ b)
    assert np.array_equal(matrix_product(a[0], b), a[0] @ b)
    assert np.array_equal(matrix_product(a[0], b[:, 0]), a[0] @ b[:, 0])
