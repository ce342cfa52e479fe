"""Scalars of a block replaced by expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Expr, Int


def substituted(block: ir.Block, env: Mapping[str, Expr]) -> ir.Block:
    """`block` with the scalars in `env` replaced wherever they are read; what is then decided is not branched on."""
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.If(cond=cond, then=then, orelse=orelse):
                cond = ex.substitute(cond, env)
                if isinstance(cond, Int):
                    out.extend(substituted(then if cond.value else orelse, env))
                    continue
                then, orelse = substituted(then, env), substituted(orelse, env)
                out.append(replace(stmt, cond=cond, then=then, orelse=orelse))
            case ir.Roles(roles=roles):
                out.append(replace(stmt, roles=tuple(replace(r, body=substituted(r.body, env)) for r in roles)))
            case _:
                # Fields of a statement are slots of a frozen dataclass; only those that change are given anew.
                changed = {
                    name: new for name in ir.operand_names(type(stmt))
                    if (new := _value(old := getattr(stmt, name), env)) is not old
                }  # fmt: skip
                if isinstance(stmt, ir.For | ir.While | ir.Programs | ir.Tiles | ir.Pipeline):
                    changed["body"] = substituted(stmt.body, env)
                out.append(replace(stmt, **changed) if changed else stmt)
    return tuple(out)


def _value(value: object, env: Mapping[str, Expr]) -> object:
    match value:
        case ex.Int() | str() | int() | float() | None:
            return value
        case ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
            new = ex.substitute(value, env)
            return value if new == value else new
        case ir.View(origin=origin):
            new = tuple(ex.substitute(o, env) for o in origin)
            return value if new == origin else replace(value, origin=new)
        case ir.BufRef(stage=at):
            new = ex.substitute(at, env)
            return value if new == at else replace(value, stage=new)
        case ir.BarRef(slot=at):
            new = ex.substitute(at, env)
            return value if new == at else replace(value, slot=new)
        case tuple():
            new = tuple(_value(v, env) for v in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return value
