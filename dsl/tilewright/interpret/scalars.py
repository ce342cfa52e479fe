"""Scalar expressions as closures: evaluated for every statement, so compiled once for a kernel."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.interpret.errors import Violation
from tilewright.ir.expr import OPERATIONS, Bin, EvaluationError, Expr, Int, Item, Not, Size, Var

Env = dict[str, int]
Scalar = Callable[[Env], int]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def compile_scalar(expr: Expr, *, check_overflow: bool) -> Scalar:
    """A function from an environment to the value of `expr`.

    It raises EvaluationError for an unbound name or a division by zero and, with `check_overflow`, a Violation of kind
    overflow when a sum, difference or product does not fit 32 bits (scalars are 32-bit integers on the device).
    """
    match expr:
        case Int(value):
            return lambda env: value
        case Size(name) | Var(name):

            def read(env: Env) -> int:
                try:
                    return env[name]
                except KeyError:
                    raise EvaluationError(f"'{name}' has no value") from None

            return read
        case Item(tensor):
            raise AssertionError(f"an element of {tensor} is read by a statement of its own")
        case Not(arg):
            inner = compile_scalar(arg, check_overflow=check_overflow)
            return lambda env: int(not inner(env))
        case Bin(op, lhs, rhs):
            apply = OPERATIONS[op]
            left = compile_scalar(lhs, check_overflow=check_overflow)
            if op in ("+", "-", "*") and check_overflow:
                right = compile_scalar(rhs, check_overflow=check_overflow)

                def checked(env: Env) -> int:
                    value = apply(left(env), right(env))
                    if INT32_MIN <= value <= INT32_MAX:
                        return value
                    raise Violation(
                        "overflow",
                        f"{left(env)} {op} {right(env)} = {value} does not fit a 32-bit integer",
                        values={"value": str(value)},
                    )

                return checked
            if isinstance(rhs, Int):
                constant = rhs.value
                return lambda env: apply(left(env), constant)
            right = compile_scalar(rhs, check_overflow=check_overflow)
            return lambda env: apply(left(env), right(env))
