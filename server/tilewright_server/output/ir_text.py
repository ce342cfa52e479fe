"""Tile IR as an indented outline, for people who look at what the front end and the expansion make of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

_INDENT = "  "
_ELSEWHERE = ("body", "then", "orelse", "roles", "span", "counted")


def render(kernel: ir.Kernel) -> str:
    """The kernel's declarations, the types of its names, and its statements."""
    return "\n".join(_kernel(kernel)) + "\n"


def _kernel(kernel: ir.Kernel) -> Iterator[str]:
    yield f"kernel {kernel.name} target={kernel.target} warps={kernel.warps}"
    for param in kernel.params:
        shape = ", ".join(ex.show(extent) for extent in param.type.shape)
        strides = ", ".join(ex.show(stride) for stride in param.type.strides)
        yield f"{_INDENT}param {param.name}: {param.type.dtype}[{shape}] strides [{strides}]"
    for scalar in kernel.scalars:
        yield f"{_INDENT}scalar {scalar.name}: {scalar.dtype}"
    for const in kernel.consts:
        yield f"{_INDENT}const {const.name} = {const.value}"
    for assumption in kernel.assumptions:
        yield f"{_INDENT}assume {ex.show(assumption.expr)}"
    for name, kind in kernel.types.items():
        layout = f"  {kind.layout}" if isinstance(kind, TileType) and kind.layout is not None else ""
        yield f"{_INDENT}{name}: {kind}{layout}"
    yield from _block(kernel.body, 1)


def _block(block: ir.Block, depth: int) -> Iterator[str]:
    for stmt in block:
        yield from _statement(stmt, depth)


def _statement(stmt: ir.Stmt, depth: int) -> Iterator[str]:
    parts = [
        f"{field.name}={_value(getattr(stmt, field.name))}"
        for field in fields(stmt)
        if field.name != "note"
        and (field.name not in _ELSEWHERE or isinstance(getattr(stmt, field.name), str))  # `roles` of a pipeline
    ]
    note = f"  # {stmt.note}" if stmt.note else ""
    yield f"{_INDENT * depth}{' '.join([type(stmt).__name__, *parts])}{note}"
    match stmt:
        case ir.If(then=then, orelse=orelse):
            yield from _block(then, depth + 1)
            if orelse:
                yield f"{_INDENT * depth}Else"
                yield from _block(orelse, depth + 1)
        case ir.Roles(roles=roles):
            for role in roles:
                registers = f" registers={role.registers}" if role.registers is not None else ""
                yield f"{_INDENT * (depth + 1)}Role {role.name} warps={role.warps}{registers}"
                yield from _block(role.body, depth + 2)
        case _:
            for block in ir.children(stmt):
                yield from _block(block, depth + 1)


def _value(value: object) -> str:
    match value:
        case ir.View():
            shape = ", ".join(map(str, value.tile_shape))
            return f"{value.tensor}[{', '.join(ex.show(o) for o in value.origin)} : ({shape})]"
        case ir.BufRef():
            return f"{value.buffer}[{ex.show(value.stage)}]"
        case ir.BarRef():
            return f"{value.barrier}[{ex.show(value.slot)}]"
        case ir.TileRef():
            return value.name
        case ex.Int() | ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
            return ex.show(value)
        case tuple():
            return f"({', '.join(_value(item) for item in value)})"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return str(value)
