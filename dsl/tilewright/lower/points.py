"""Gathers, scatters and updates of single elements as Gluon: tiles of pointers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.lower.scalars import Scalars
from tilewright.lower.text import Names
from tilewright.lower.tiles import Hoisted, number

RELAXED = ('sem="relaxed"', 'scope="gpu"')
"""How atomic updates are ordered: with nothing else."""


def accesses(
    stmt: ir.Gather | ir.CpGather | ir.Scatter, where: str, stage: str, names: Names, tiles: Mapping[str, TileType]
) -> tuple[str, ...]:
    """The function and the arguments of the access through the pointers `where`; a copy goes into `stage`."""
    mask = () if stmt.mask is None else (f"mask={names(stmt.mask.name)}",)
    if isinstance(stmt, ir.Scatter):
        function = f"gl.atomic_{stmt.op}" if stmt.op else "gl.store"
        return (function, where, names(stmt.src), *mask, *(RELAXED if stmt.op else ()))
    if isinstance(stmt, ir.CpGather):
        return ("async_copy.async_copy_global_to_shared", stage, where, *mask)
    other: tuple[str, ...] = ()
    if stmt.other is not None and mask:
        other = (f"other={number(stmt.other) if tiles[stmt.dst].dtype.is_float else int(stmt.other)}",)
    return (f"{names(stmt.dst)} = gl.load", where, *mask, *other)


def pointers(
    stmt: ir.Gather | ir.CpGather | ir.Scatter, param: ir.Param, names: Names, scalars: Scalars, hoisted: Hoisted
) -> str:
    """The pointers to the elements, computed in 64 bits: an index times a row stride can exceed 2**31."""
    parts = [names(param.name)]
    offsets: list[str] = []
    for index, stride in zip(stmt.index, param.type.strides, strict=True):
        match stride:
            case ex.Int(1):
                scale = ""
            case ex.Int(value):
                scale = f" * {value}"
            case _:
                wish = f"{stride.name}_wide" if isinstance(stride, ex.Size) else f"{param.name}_stride"
                scale = f" * {hoisted.name(wish, scalars.wide(stride))}"
        if isinstance(index, ir.TileRef):
            wide = f".to(gl.int64){scale}" if scale else ""
            offsets.append(f"{names(index.name)}{wide}")
        elif isinstance(index, float | int):
            raise AssertionError("an index is an integer")
        elif index != ex.Int(0):
            parts.append(f"{scalars.text(index, 9 + bool(scale))}{scale}")
    return f"{' + '.join(parts)} + ({' + '.join(offsets)})"
