"""Lanes past an edge in a matrix product: those along the contraction count for every element of the result."""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import f32
from tilewright.ir import nodes as ir

from .axes import contracted
from .lanes import INSIDE, Lanes, Past, build, subsets
from .numbers import ANYTHING, FINITE, Number, apply, total
from .uses import Use


def operand_name(operand: str | ir.TileRef | ir.BufRef) -> str:
    """The tile or buffer that an operand is."""
    match operand:
        case ir.TileRef(name=name) | ir.BufRef(buffer=name):
            return name
        case _:
            return operand


def product_uses(stmt: ir.Stmt, name: str, left: Lanes, right: Lanes) -> list[Use]:
    """What lanes past the edges of the contraction contribute, told apart by the edges of either operand."""
    lower, upper = contracted(left, 1), contracted(right, 0)

    def term(past: Past) -> Number:
        return apply("mul", [lower.at(past), upper.at(past)], f32)

    found = [
        Use(
            stmt, "product", name, -1, past, term(past), term(INSIDE), left if past & lower.edges else right,
            (left, right),
        )
        for past in subsets(lower.edges | upper.edges)
        if past
    ]  # fmt: skip
    if (left.lost or right.lost) and not (lower.anywhere | upper.anywhere).is_finite:
        found.append(Use(stmt, "product", name, -1, INSIDE, ANYTHING, FINITE, left if left.lost else right))
    return found


def product_lanes(stmt: ir.Stmt, left: Lanes, right: Lanes, into: Lanes) -> Lanes:
    """The lanes of `left @ right + into`."""

    def number(past: Past) -> Number:
        rows, columns = past & left.along(0), past & right.along(1)
        result = apply("mul", [left.at(rows), right.at(columns)], f32)
        for k in subsets(left.along(1)) if past else ():
            for other in subsets(right.along(0)):
                result |= apply("mul", [left.at(rows | k), right.at(columns | other)], f32)
        return apply("add", [into.at(past), total(result)], f32)

    made = build(left.along(0) | right.along(1) | into.edges, number, (into,), stmt.span)
    return replace(made, lost="", carried=into.carried)
