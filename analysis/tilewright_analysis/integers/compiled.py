"""Expressions as Python functions, for evaluating one expression at thousands of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from tilewright.ir import expr as ex

Env = Mapping[str, int]


def compiled(exprs: Sequence[ex.Expr]) -> Callable[[Env], tuple[int, ...]]:
    """A function from the values of names to those of `exprs`.

    It raises ZeroDivisionError where `tilewright.ir.expr.evaluate` raises EvaluationError for a zero divisor, and
    KeyError for a name without a value. The source text is made from the expression tree alone: names become
    dictionary keys.
    """
    return _compiled(tuple(exprs))


@lru_cache(maxsize=1024)
def _compiled(exprs: tuple[ex.Expr, ...]) -> Callable[[Env], tuple[int, ...]]:
    body = "".join(f"{_source(e)}," for e in exprs)
    # Text of our own making: numbers, operators and quoted names, see _source.
    code = compile(f"lambda v: ({body})", "<expressions>", "eval")
    return cast("Callable[[Env], tuple[int, ...]]", cast(Any, eval)(code, {"min": min, "max": max}))


def _source(e: ex.Expr) -> str:
    match e:
        case ex.Int(value):
            return f"({value})"
        case ex.Size(name) | ex.Var(name):
            return f"v[{name!r}]"
        case ex.Item(tensor, index):
            inner = ", ".join(f"{{{_source(i)}}}" for i in index)
            return f"v[f{tensor + '[' + inner + ']'!r}]"
        case ex.Not(arg):
            return f"(0 if {_source(arg)} else 1)"
        case ex.Bin(op, lhs, rhs):
            a, b = _source(lhs), _source(rhs)
            match op:
                case "min" | "max":
                    return f"{op}({a}, {b})"
                case "cdiv":
                    return f"(-(-{a} // {b}))"
                case "and":
                    # Both sides are evaluated, as in expr.evaluate.
                    return f"(1 if {a} and {b} else 0)"
                case "or":
                    return f"(1 if {a} or {b} else 0)"
                case "<" | "<=" | "==" | "!=":
                    return f"(1 if {a} {op} {b} else 0)"
                case _:
                    return f"({a} {op} {b})"
