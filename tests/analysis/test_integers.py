"""The decider against enumeration: what it proves holds, what it refutes fails, whatever the question."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import expr as ex
from tilewright_analysis.integers import MAX_SIZE, Binder, Decider, Question
from tilewright_analysis.integers.compiled import compiled
from tilewright_analysis.integers.magnitude import MAX_TENSOR_BYTES, Magnitudes
from tilewright_analysis.integers.probe import probe
from tilewright_analysis.integers.ranges import divisor, interval, interval_env
from tilewright_analysis.integers.solver import Solver

N, M = ex.Size("N"), ex.Size("M")
T = ex.Var("t")


def expressions(names: list[ex.Expr], depth: int = 3) -> st.SearchStrategy[ex.Expr]:
    leaves = st.one_of(st.sampled_from(names), st.integers(-3, 9).map(ex.Int))
    operators = st.sampled_from(["+", "-", "*", "min", "max", "<", "<=", "==", "!=", "and", "or"])
    divisions = st.tuples(st.sampled_from(["//", "%", "cdiv"]), st.integers(1, 5).map(ex.Int))

    def extend(inner: st.SearchStrategy[ex.Expr]) -> st.SearchStrategy[ex.Expr]:
        return st.one_of(
            st.builds(lambda op, a, b: ex.Bin(op, a, b), operators, inner, inner),
            st.builds(lambda d, a: ex.Bin(d[0], a, d[1]), divisions, inner),
            st.builds(
                lambda op, a, b: ex.Bin(op, a, ex.Bin("max", ex.Int(1), b)),
                st.sampled_from(["//", "%", "cdiv"]),
                inner,
                inner,
            ),
            inner.map(ex.Not),
        )

    return st.recursive(leaves, extend, max_leaves=2**depth)


@given(expressions([N, M, T]))
def test_compiled_expressions_have_the_values_of_the_reference(e: ex.Expr) -> None:
    function = compiled((e,))
    for n, m, t in product((1, 2, 5), (1, 3), (-2, 0, 4)):
        env = {"N": n, "M": m, "t": t}
        assert function(env) == (ex.evaluate(e, env),)


@given(expressions([N, M, T]))
def test_intervals_hold_every_value(e: ex.Expr) -> None:
    binder = Binder("t", "t", "loop", ex.Int(-2), ex.Int(5))
    low, high = interval(e, {"N": (1, 6), "M": (1, 3), "t": (-2, 4)})
    for n, m, t in product(range(1, 7), range(1, 4), range(-2, 5)):
        value = ex.evaluate(e, {"N": n, "M": m, "t": t})
        assert low is None or low <= value
        assert high is None or value <= high
    assert interval_env(Question(e, (), (binder,)))["t"] == (-2, 4)


@given(expressions([N, M]), st.integers(1, 6), st.integers(1, 6))
def test_divisors_divide_every_value(e: ex.Expr, a: int, b: int) -> None:
    d = divisor(e, {"N": a, "M": b})
    for i, j in product(range(1, 4), range(1, 4)):
        value = ex.evaluate(e, {"N": a * i, "M": b * j})
        assert value == 0 if d == 0 else value % d == 0


@settings(max_examples=60, deadline=None)
@given(expressions([N, M, T], 2), expressions([N, M], 1))
def test_verdicts_agree_with_enumeration(claim: ex.Expr, fact: ex.Expr) -> None:
    binder = Binder("t", "t", "loop", ex.Int(0), N, 2)
    question = Question(claim, (fact,), (binder,))
    decision = Decider(effort=300_000).decide(question)
    broken = [
        env
        for n, m in product(range(1, 8), range(1, 6))
        for t in range(0, n, 2)
        for env in [{"N": n, "M": m, "t": t}]
        if ex.evaluate(fact, env) and not ex.evaluate(claim, env)
    ]
    if decision.verdict == "proved":
        assert not broken
    if decision.verdict == "refuted":
        env = {"N": 1, "M": 1, "t": 0, **decision.model}
        assert ex.evaluate(fact, env)
        assert not ex.evaluate(claim, env)
        assert env["t"] in range(0, env["N"], 2)


def grouped(group: int, *, last_group_lower: bool) -> tuple[ex.Expr, ex.Expr]:
    rows, columns = ex.cdiv(M, ex.Int(128)), ex.cdiv(N, ex.Int(256))
    per = ex.mul(ex.Int(group), columns)
    first = ex.mul(ex.floordiv(T, per), ex.Int(group))
    width: ex.Expr = ex.Bin("min", ex.Int(group), ex.sub(rows, first)) if last_group_lower else ex.Int(group)
    return ex.add(first, ex.mod(ex.mod(T, per), width)), ex.floordiv(ex.mod(T, per), width)


def in_grid(group: int, **kwargs: bool) -> Question:
    rows, columns = ex.cdiv(M, ex.Int(128)), ex.cdiv(N, ex.Int(256))
    pm, pn = grouped(group, **kwargs)
    claim = ex.Bin("and", ex.less(pm, rows), ex.less(pn, columns))
    return Question(claim, (), (Binder("t", "t", "program", ex.Int(0), ex.mul(rows, columns)),))


@pytest.mark.parametrize("group", [1, 2, 3, 8, 16, 64])
def test_grouped_order_is_proved_for_all_sizes(group: int) -> None:
    assert Decider().decide(in_grid(group, last_group_lower=True)).verdict == "proved"


@pytest.mark.parametrize("group", [2, 3, 8, 16])
def test_a_fixed_group_width_is_refuted_with_the_smallest_grid(group: int) -> None:
    decision = Decider().decide(in_grid(group, last_group_lower=False))
    assert decision.verdict == "refuted"
    assert decision.model["M"] == 1
    assert decision.model["N"] <= 257


def test_a_divisor_that_may_be_zero_is_never_a_proof() -> None:
    claim = ex.Bin("<=", ex.Bin("min", ex.Int(0), ex.floordiv(M, ex.sub(N, ex.Int(1)))), ex.Int(0))
    assert Decider().decide(Question(claim)).verdict != "proved"


def test_too_little_effort_is_unknown_not_a_proof() -> None:
    # What no other test asks about: what has been proved once is known from then on.
    whole = ex.add(ex.mul(ex.floordiv(T, N), N), ex.mod(T, N))
    decision = Decider(effort=10).decide(Question(ex.Bin("==", whole, T), (), (Binder("t", "t", "loop", hi=M),)))
    assert decision.verdict == "unknown"
    assert decision.missing


def test_a_model_of_the_solver_is_made_small() -> None:
    # 7 N = 11 M + 1000: M = 2, N = 146 is the smallest solution, far from the constants.
    equal = ex.Bin("==", ex.mul(ex.Int(7), N), ex.add(ex.mul(ex.Int(11), M), ex.Int(1000)))
    reply = Solver().solve(Question(ex.negate(equal)), 1_000_000)
    assert reply.model == {"M": 2, "N": 146}


def test_a_refutation_that_needs_an_untracked_value_is_unknown() -> None:
    free = Binder("it", "it", "free")
    decision = Decider().decide(Question(ex.less(ex.Var("it"), ex.Int(3)), (), (free,)))
    assert decision.verdict == "unknown"
    assert "'it'" in decision.missing


def test_facts_apart_from_the_claim_can_make_it_hold() -> None:
    # The claim about N fails, but no M satisfies the facts: the statement is never reached.
    facts = (ex.less(M, ex.Int(3)), ex.less(ex.Int(5), M))
    assert Decider().decide(Question(ex.less(N, ex.Int(4)), facts)).verdict == "proved"


def test_probing_finds_sizes_next_to_the_constants() -> None:
    assert probe(Question(ex.Bin("<=", N, ex.Int(1024)))) == {"N": 1025}
    assert probe(Question(ex.Bin("<=", N, ex.Int(1024)), (ex.Bin("<=", N, ex.Int(1024)),))) is None


def test_products_of_sizes_are_bounded_by_the_tensors_that_hold_them() -> None:
    from tilewright.dtypes import f16
    from tilewright.ir.nodes import Param
    from tilewright.ir.types import GlobalType

    both = Param("A", GlobalType(f16, (M, N), (N, ex.Int(1))))
    env = {"M": (1, MAX_SIZE), "N": (1, MAX_SIZE)}
    product_ = ex.mul(ex.cdiv(M, ex.Int(128)), ex.cdiv(N, ex.Int(128)))
    assert Magnitudes((both,)).at_most(ex.mul(M, N), {}, env) == MAX_TENSOR_BYTES // 2
    assert (Magnitudes((both,)).at_most(product_, {}, env) or 0) < 2**31
    assert (Magnitudes(()).at_most(product_, {}, env) or 0) > 2**31
