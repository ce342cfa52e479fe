"""Lower bounds of scalar expressions from what every launch guarantees: sizes are at least 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Expr

Bounds = Mapping[str, int]
"""Least values of scalars, where they are known."""


def least_values(block: ir.Block) -> Bounds:
    """Lower bounds of the scalars that have one definition in `block`, where they are found."""
    written = Counter(n for s in ir.walk(block) for n in (getattr(s, "dst", None), getattr(s, "var", None)) if n)
    bounds: dict[str, int] = {}
    for stmt in ir.walk(block):
        match stmt:
            case ir.Assign(dst=name, value=value):
                low = least(value, bounds)
            case ir.For(var=name, lo=lo) | ir.Pipeline(var=name, lo=lo):
                low = least(lo, bounds)
            case ir.Programs(var=name):
                low = 0
            case _:
                continue
        if low is not None and written[name] == 1:
            bounds[name] = low
    return bounds


def least(expr: Expr, bounds: Bounds) -> int | None:
    """A lower bound of `expr`; None where none is found."""
    match expr:
        case ex.Int(value):
            return value
        case ex.Size(least=value):
            return value
        case ex.Var(name):
            return bounds.get(name)
        case ex.Bin("-", lhs, ex.Int(value)):
            low = least(lhs, bounds)
            return None if low is None else low - value
        case ex.Bin(op, lhs, rhs):
            return _least(op, least(lhs, bounds), least(rhs, bounds), isinstance(rhs, ex.Int))
        case ex.Not():
            return 0
        case _:
            return None


def _least(op: ex.Op, a: int | None, b: int | None, constant: bool) -> int | None:
    """The bound of an operation on values of at least `a` and `b`; `constant`: the second one is `b`."""
    if op in ("<", "<=", "==", "!=", "and", "or"):
        return 0
    if op == "max" and (a is None or b is None):
        return b if a is None else a
    if a is None or b is None:
        return 0 if op == "%" and b is not None and b > 0 else None
    match op:
        case "+":
            return a + b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "*":
            return a * b if a >= 0 and b >= 0 else None
        case "//":
            return (a // b if constant else 0) if a >= 0 and b > 0 else None
        case "cdiv":
            return (-(-a // b) if constant else int(a > 0)) if a >= 0 and b > 0 else None
        case "%":
            return 0 if b > 0 else None
        case _:
            return None
