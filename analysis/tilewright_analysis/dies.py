"""Tiles spread over the dies of a GPU: the tile number is as good a name for a program as its own number.

`ir.xcd_number` is a bijection of [0, count) (its docstring says why), so what holds for all tile numbers in [0, count)
holds for all programs, and two programs differ exactly if their tile numbers do.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import cast

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir


def tile_number(grid: ir.Programs) -> tuple[str, int] | None:
    """(name, dies) if the body begins with the tile number of the program, and uses the program's own nowhere else."""
    first = grid.body[0] if grid.body else None
    if not isinstance(first, ir.Assign):
        return None
    program = ex.Var(grid.var)
    moduli = [e.rhs.value for e in ex.walk(first.value) if isinstance(e, ex.Bin) and e.op == "%" and e.lhs == program
              and isinstance(e.rhs, ex.Int)]  # fmt: skip
    if not moduli or first.value != ir.xcd_number(program, grid.count, moduli[0]):
        return None
    rest = grid.body[1:]
    if _mentions(rest, grid.var) or any(_sets(s, first.dst) for s in ir.walk(rest)):
        return None
    return first.dst, moduli[0]


def _mentions(value: object, name: str) -> bool:
    """Whether the variable stands anywhere in a block, whatever the statements are."""
    if isinstance(value, ex.Var):
        return value.name == name
    if isinstance(value, tuple):
        return any(_mentions(v, name) for v in cast(tuple[object, ...], value))
    if is_dataclass(value):
        return any(_mentions(getattr(value, f.name), name) for f in fields(value))
    return False


def _sets(stmt: ir.Stmt, name: str) -> bool:
    match stmt:
        case ir.Assign(dst=dst):
            return dst == name
        case ir.For(var=var) | ir.Programs(var=var):
            return var == name
        case _:
            return False


def program_of_tile(number: int, count: int, dies: int) -> int:
    """The program that takes tile `number` of `count`: the inverse of `ir.xcd_number`."""
    short, longer = divmod(count, dies)
    edge = longer * (short + 1)
    if number < edge:
        die, place = divmod(number, short + 1)
    else:
        die, place = divmod(number - edge, short)
        die += longer
    return place * dies + die
