"""Elements of index tensors in the places of copies that run ahead: read just before the copy, by whoever issues it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.expand.names import Names
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Item, Var
from tilewright.ir.types import ScalarType


def read_elements(block: ir.Block, names: Names) -> ir.Block:
    """`block` where each element of a tensor in the place of a copy or load is the value of an assignment before it."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.CpAsync | ir.TmaLoad | ir.Load):
            return None
        reads: list[ir.Stmt] = []
        known: dict[Item, Var] = {}

        def scalar(e: ir.Expr) -> ir.Expr:
            match e:
                case ex.Bin(op, lhs, rhs):
                    return ex.binary(op, scalar(lhs), scalar(rhs))
                case ex.Not(arg):
                    return ex.negate(scalar(arg))
                case Item(tensor, index):
                    item = Item(tensor, tuple(map(scalar, index)))
                    if item not in known:
                        known[item] = Var(names.new(f"{tensor}_at", ScalarType()))
                        reads.append(ir.Assign(known[item].name, item, span=stmt.span, note="decides its place"))
                    return known[item]
                case _:
                    return e

        origin = tuple(map(scalar, stmt.view.origin))
        return (*reads, replace(stmt, view=replace(stmt.view, origin=origin))) if reads else None

    return ir.rewrite(block, change)
