"""Scalar expressions as text: the device's division rounds towards zero, Tilewright's towards minus infinity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.kernels import for_, let, programs, tensor, view, x
from tilewright.divisibility import divisors, kernel_divisors, vector_elements
from tilewright.dtypes import f16, f32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower.errors import LoweringError
from tilewright.lower.scalars import Scalars, check_literals, host, nonnegative_variables
from tilewright.source import NO_SPAN


class Device(int):
    """An integer with the division of the device: towards zero, the remainder with the sign of the dividend."""

    def __floordiv__(self, other: int) -> Device:
        return Device(abs(int(self)) // abs(other) * (1 if (self < 0) == (other < 0) else -1))

    def __mod__(self, other: int) -> Device:
        return Device(int(self) - int(self // other) * other)

    def __rfloordiv__(self, other: int) -> Device:
        return Device(other) // self

    def __rmod__(self, other: int) -> Device:
        return Device(other) % self

    def __add__(self, other: int) -> Device:
        return Device(int(self) + other)

    def __sub__(self, other: int) -> Device:
        return Device(int(self) - other)

    def __rsub__(self, other: int) -> Device:
        return Device(other - int(self))

    def __mul__(self, other: int) -> Device:
        return Device(int(self) * other)

    def __and__(self, other: int) -> Device:
        return Device(int(self) & other)

    def __xor__(self, other: int) -> Device:
        return Device(int(self) ^ other)

    __radd__, __rmul__, __rand__, __rxor__ = __add__, __mul__, __and__, __xor__

    def to(self, _: object) -> Device:
        return self


class FakeGl:
    int32 = int64 = None

    @staticmethod
    def to_tensor(value: int) -> Device:
        return Device(value)


VARIABLES = ("a", "b", "p")
leaves = st.one_of(
    st.integers(-9, 9).map(ex.Int), st.sampled_from(VARIABLES).map(ex.Var), st.sampled_from(["M", "N"]).map(ex.Size)
)
positive = st.one_of(st.integers(1, 9).map(ex.Int), st.sampled_from(["M", "N"]).map(ex.Size))


def grow(inner: st.SearchStrategy[ex.Expr]) -> st.SearchStrategy[ex.Expr]:
    plain = st.sampled_from(["+", "-", "*", "min", "max", "<", "<=", "==", "!=", "and", "or"])
    return st.one_of(
        st.builds(ex.binary, plain, inner, inner),
        st.builds(ex.binary, st.sampled_from(["//", "%", "cdiv"]), inner, positive),
        st.builds(ex.negate, inner),
    )


expressions = st.recursive(leaves, grow, max_leaves=8)
values = st.fixed_dictionaries(
    {
        "a": st.integers(-50, 50),
        "b": st.integers(-50, 50),
        "p": st.integers(0, 50),
        "M": st.integers(1, 30),
        "N": st.integers(1, 30),
    }
)


@settings(max_examples=600, deadline=None)
@given(expressions, values)
def test_device_text_has_the_value_of_the_expression(e: ex.Expr, env: dict[str, int]) -> None:
    scalars = Scalars(str, frozenset("p"))
    scope = {name: Device(v) for name, v in env.items()}
    text = scalars.text(e)
    assert int(eval(text, {"gl": FakeGl, "min": min, "max": max}, scope)) == ex.evaluate(e, env), text


@settings(max_examples=300, deadline=None)
@given(expressions, values)
def test_host_text_has_the_value_of_the_expression(e: ex.Expr, env: dict[str, int]) -> None:
    assert int(eval(host(e), {}, dict(env))) == ex.evaluate(e, env)


@settings(max_examples=300, deadline=None)
@given(expressions, values)
def test_what_is_called_nonnegative_is(e: ex.Expr, env: dict[str, int]) -> None:
    if Scalars(str, frozenset("p")).is_nonnegative(e):
        assert ex.evaluate(e, env) >= 0


def test_variables_that_may_become_negative_are_found_through_others() -> None:
    body = (
        let("it", 0), let("down", "M"), let("copy", "down"), let("up", "it + 1"),
        for_("k", 0, "K", 32, let("it", "it + 1"), let("down", "down - 1")),
        programs("t", "M", False, let("pm", "t % 4 * 128")),
    )  # fmt: skip
    assert nonnegative_variables(body) == {"it", "up", "k", "t", "pm"}


def test_power_of_two_remainders_are_one_instruction() -> None:
    assert Scalars(str, frozenset()).text(x("it // 3 % 2")) == "(it - (it % 3 + 3) % 3) // 3 & 1"
    assert Scalars(str, frozenset(["it"])).text(x("it // 3 % 2 ^ 1")) == "it // 3 & 1 ^ 1"


def test_row_offsets_are_computed_in_64_bits() -> None:
    assert Scalars(str, frozenset()).wide(x("K * N")) == "gl.to_tensor(K).to(gl.int64) * N"


def test_a_constant_beyond_32_bits_is_refused() -> None:
    check_literals(ex.Int(2**31 - 1), NO_SPAN)
    with pytest.raises(LoweringError, match="2147483648 does not fit"):
        check_literals(ex.add(ex.Size("M"), ex.Int(2**31)), NO_SPAN)


def test_divisors_come_from_assumptions_and_loops() -> None:
    assume = tuple(ir.Assumption(x(a)) for a in ("K % 24 == 0", "N % 64 == 0 and M % 3 == 0", "K < 100"))
    assert divisors(assume) == {"K": 8, "N": 64}
    body = (programs("t", "M", False, let("base", "t * 128"), for_("k", "base", "K", 32, let("j", "k + 48"))),)
    kernel = ir.Kernel("f", "sm_80", 4, (), (), ("M", "N", "K"), assume, body, {})
    known = kernel_divisors(kernel)
    assert (known["base"], known["k"], known["j"], known["t"]) == (128, 32, 16, 1)


@pytest.mark.parametrize(
    ("assumption", "masked", "elements"),
    [("K % 8 == 0", True, 8), ("K % 2 == 0", True, 2), ("K < 9", True, 1), ("K % 64 == 0", False, 8)],
)
def test_vectors_are_as_wide_as_rows_are_known_to_be_aligned(assumption: str, masked: bool, elements: int) -> None:
    known = divisors((ir.Assumption(x(assumption)),))
    at = view("A", ("i", 0), (16, 64))
    assert vector_elements(at, tensor("A", f16, "M", "K"), known, masked=masked) == elements


def test_a_vector_of_one_row_needs_no_known_length_unless_it_is_masked() -> None:
    at = view("X", ("i * 1024",), (1024,))
    assert vector_elements(at, tensor("X", f32, "N"), {}, masked=False) == 4
    assert vector_elements(at, tensor("X", f32, "N"), {}, masked=True) == 1
    assert vector_elements(view("X", ("i + 1",), (64,)), tensor("X", f32, "N"), {}, masked=False) == 1
