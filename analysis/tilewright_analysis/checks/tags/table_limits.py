"""Where tables say that a loop begins or ends, as for the rows of one of several sequences."""

from __future__ import annotations

from typing import Literal

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...context import KernelContext, Site


def table_limit(context: KernelContext, site: Site, bound: ex.Expr, op: Literal["min", "max"]) -> ex.Expr | None:
    """What elements of tables alone say of a bound of the loop of `site`: itself, or a side of a minimum or maximum.

    In the names of the kernel; None where they say nothing.
    """
    assigned: dict[str, list[ex.Expr]] = {}
    for stmt in ir.walk(context.kernel.body):
        if isinstance(stmt, ir.Assign):
            assigned.setdefault(stmt.dst, []).append(stmt.value)

    def limit(e: ex.Expr) -> ex.Expr | None:
        if by_table(site.value(e)):
            return e
        match e:
            case ex.Bin(one, lhs, rhs) if one == op:
                return limit(lhs) or limit(rhs)
            case ex.Bin("+", lhs, ex.Int() as more):
                inner = limit(lhs)
                return None if inner is None else ex.add(inner, more)
            case ex.Var(name) if len(values := assigned.get(name, [])) == 1:
                return limit(values[0])
            case _:
                return None

    return limit(bound)


def by_table(e: ex.Expr) -> bool:
    """True if elements of tables, sizes and numbers decide a value; the program and loops only choose the elements."""

    def only(e: ex.Expr) -> bool:
        match e:
            case ex.Var():
                return False
            case ex.Bin(_, lhs, rhs):
                return only(lhs) and only(rhs)
            case ex.Not(arg):
                return only(arg)
            case _:
                return True

    return any(ex.items(e)) and only(e)
