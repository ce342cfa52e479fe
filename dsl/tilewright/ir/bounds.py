"""Bounds of scalar expressions from what every launch guarantees: sizes are at least 1, tiles below their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of scalars: values that they are at `least`, and expressions that they are `below`."""

    least: Mapping[str, int]
    below: Mapping[str, Expr]


def bounds_in(block: ir.Block, policy: ir.Block) -> Bounds:
    """Bounds of the scalars that have one definition in `block`, whose grid is that of `policy`."""
    below: dict[str, Expr] = {}
    for stmt in ir.walk(policy):
        match stmt:
            case ir.Tiles(vars=names, counts=counts):
                below.update(zip(names, counts, strict=True))
            case ir.Programs(var=name, count=count):
                below[name] = count
            case _:
                pass
    written = Counter(n for s in ir.walk(block) for n in (getattr(s, "dst", None), getattr(s, "var", None)) if n)
    found: dict[str, int] = {name: 0 for name in below if written[name] == 1}
    known = Bounds(found, below)
    for stmt in ir.walk(block):
        match stmt:
            case ir.Assign(dst=name, value=value) if name not in found:
                low = least(value, known)
            case ir.For(var=name, lo=lo) | ir.Pipeline(var=name, lo=lo):
                low = least(lo, known)
            case ir.Programs(var=name):
                low = 0
            case _:
                continue
        if low is not None and written[name] == 1:
            found[name] = low
    return known


def least(expr: Expr, known: Bounds) -> int | None:
    """A lower bound of `expr`; None where none is found."""
    match expr:
        case ex.Int(value):
            return value
        case ex.Size(least=value):
            return value
        case ex.Var(name):
            return known.least.get(name)
        case ex.Bin("-", lhs, ex.Int(value)):
            low = least(lhs, known)
            return None if low is None else low - value
        case ex.Bin("-", lhs, ex.Var(name)) if name in known.least and name in known.below:
            # A coordinate from the end: count - 1 - i.
            return _from_the_end(lhs, known.below[name])
        case ex.Bin(op, lhs, rhs):
            return _least(op, least(lhs, known), least(rhs, known), isinstance(rhs, ex.Int))
        case ex.Not():
            return 0
        case _:
            return None


def _from_the_end(end: Expr, count: Expr) -> int | None:
    """A lower bound of `end - i` for i below `count`."""
    match end:
        case ex.Bin("-", whole, ex.Int(value)) if whole == count:
            return 1 - value
        case _:
            return 1 if end == count else None


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
