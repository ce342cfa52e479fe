"""What powers of two certainly divide sizes, variables and expressions: the ground for wide memory accesses."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

# Stands for "any power of two": what divides 0.
_ALL = 1 << 30
Known = Mapping[str, int]


def divisors(assumptions: tuple[ir.Assumption, ...]) -> dict[str, int]:
    """For each size with an assumption `size % n == 0`, the largest power of two that it gives."""
    found: dict[str, int] = {}

    def read(e: ex.Expr) -> None:
        match e:
            case ex.Bin("and", lhs, rhs):
                read(lhs)
                read(rhs)
            case ex.Bin("==", ex.Bin("%", ex.Size(name), ex.Int(value)), ex.Int(0)) if value > 0:
                found[name] = max(found.get(name, 1), value & -value)
            case _:
                pass

    for assumption in assumptions:
        read(assumption.expr)
    return {name: d for name, d in found.items() if d > 1}


def divisor(e: ex.Expr, known: Known) -> int:
    """A power of two that certainly divides the value."""
    match e:
        case ex.Int(value):
            return min(value & -value, _ALL) if value else _ALL
        case ex.Size(name) | ex.Var(name):
            return known.get(name, 1)
        case ex.Bin("*", lhs, rhs):
            return min(divisor(lhs, known) * divisor(rhs, known), _ALL)
        case ex.Bin("+" | "-" | "min" | "max", lhs, rhs):
            return gcd(divisor(lhs, known), divisor(rhs, known))
        case ex.Bin("%", lhs, rhs):
            return gcd(divisor(lhs, known), divisor(rhs, known))
        case _:
            return 1


def kernel_divisors(kernel: ir.Kernel) -> dict[str, int]:
    """For each size and scalar variable a power of two that divides it wherever it has a value.

    Variables start from "everything" and are lowered to what their assignments allow until nothing changes, so the
    result holds by induction over the assignments of a run.
    """
    values: dict[str, list[ex.Expr]] = {}
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.Assign(dst=name, value=value):
                values.setdefault(name, []).append(value)
            case ir.For(var=name, lo=lo, step=step):
                values.setdefault(name, []).extend((lo, ex.Int(step)))
            case ir.Programs(var=name):
                values.setdefault(name, []).append(ex.Int(1))
            case _:
                pass
    known = {**divisors(kernel.assumptions), **dict.fromkeys(values, _ALL)}
    changed = True
    while changed:
        changed = False
        for name, sources in values.items():
            now = gcd(*(divisor(e, known) for e in sources))
            if now < known[name]:
                known[name], changed = now, True
    return known


def vector_elements(view: ir.View, param: ir.Param, known: Known, *, masked: bool) -> int:
    """Elements that one access may move at once: at most 16 bytes, aligned, and all inside or all outside the tensor.

    Counts from the start of the tensor, which a launch holds to be a multiple of 16 bytes. A tensor without a
    contiguous dimension, or where an index fixes it, is accessed element by element.
    """
    strides, fast = param.type.strides, param.type.contiguous
    # A view of another rank is refused by the lowering, which names both.
    if fast is None or not view.lead <= fast < len(view.origin):
        return 1
    widest = max(1, 16 // param.type.dtype.bytes)
    found = gcd(divisor(view.origin[fast], known), *(divisor(s, known) for d, s in enumerate(strides) if d != fast))
    if masked:
        found = gcd(found, divisor(param.type.shape[fast], known))
    return min(widest, found)


def point_vector(kernel: ir.Kernel, stmt: ir.Gather | ir.CpGather, known: Known) -> int:
    """Elements that one access by index tiles may move: indices along the last axis are taken to be consecutive there.

    1 where the last index varies along other axes too.
    """
    last, param = stmt.index[-1], kernel.param(stmt.tensor)
    tile = kernel.types[last.name] if isinstance(last, ir.TileRef) else None
    if not isinstance(tile, TileType) or any(n > 1 for n in tile.shape[:-1]):
        return 1
    origin: tuple[ir.Expr, ...] = tuple(ex.Int(0) for _ in stmt.index)
    return vector_elements(ir.View(stmt.tensor, origin, (1,) * len(origin)), param, known, masked=True)


def access_order(view: ir.View, param: ir.Param) -> tuple[int, ...]:
    """The dimensions of the view's tile, the one with contiguous elements first."""
    rank, fast = len(view.tile_shape), param.type.contiguous
    order = tuple(reversed(range(rank)))
    if fast is None or not view.lead <= fast < len(view.origin):
        return order
    first = fast - view.lead
    return (first, *(d for d in order if d != first))
