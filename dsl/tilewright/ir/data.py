"""Which scalars of a kernel data decides, and through which tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

Sources = Mapping[str, frozenset[str]]


def data_scalars(block: ir.Block) -> Sources:
    """For each scalar variable that depends on elements of tensors the names of those tensors.

    Covers what flows through assignments and into the start of a loop, and all that a `while` loop reads; not which
    branch was taken elsewhere.
    """
    values: dict[str, list[ex.Expr]] = {}
    for stmt in ir.walk(block):
        match stmt:
            case ir.Assign(dst=name, value=value) | ir.For(var=name, lo=value) | ir.Pipeline(var=name, lo=value):
                values.setdefault(name, []).append(value)
            case ir.While(cond=cond, body=body):
                # How often it runs, and which branches its turns take, decides what it leaves.
                inside = [cond, *(e for s in ir.walk(body) for e in ir.operands(s) if isinstance(e, ex.Expr))]
                for inner in ir.walk(body):
                    if isinstance(inner, ir.Assign):
                        values.setdefault(inner.dst, []).extend(inside)
            case _:
                pass
    found: dict[str, frozenset[str]] = {}
    changed = True
    while changed:
        changed = False
        for name, exprs in values.items():
            now = tensors_behind(exprs, found)
            if now != found.get(name, frozenset()):
                found[name], changed = now, True
    return found


def tensors_behind(exprs: Iterable[ex.Expr], known: Sources) -> frozenset[str]:
    """The tensors whose elements decide the values of `exprs`."""
    found: set[str] = set()
    for e in exprs:
        for part in ex.walk(e):
            if isinstance(part, ex.Item):
                found.add(part.tensor)
            elif isinstance(part, ex.Var):
                found |= known.get(part.name, frozenset())
    return frozenset(found)
