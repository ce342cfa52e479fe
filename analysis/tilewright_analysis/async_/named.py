"""Named tags of tiles: for each name an integer function of the element, through every operation.

The function is `base + element`: the base is a coordinate such as `Tag` has (an opaque part, a number, and how it moves
with loops), `element` an expression over `~0`, `~1`, …, the indices of the element. Nothing is lost to reshapes: there,
too, an index is quotients and remainders of indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from tilewright import tag_space
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.tagging import parameter
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.tags import Func, Lost, Named, Tag, Value

_NO_FACTS = forms.Facts({}, {}, {})


Operand = tuple[Named, tuple[int, ...]]


def at(tag: Func, index: Sequence[ex.Expr]) -> Func:
    """The tag as a function of other indices, of which `index` gives those of the element."""
    return func(tag.base, ex.substitute(tag.element, {f"~{i}": e for i, e in enumerate(index)}))


def func(base: Tag, element: ex.Expr) -> Func:
    """The function with its constant moved into the base."""
    form = forms.canonical(element, {}, _NO_FACTS)
    rest = forms.to_expr(form.without_constant())
    return Func(base if not form.const else replace(base, const=base.const + int(form.const)), rest)


def named(tags: Mapping[str, Func | Lost]) -> Named:
    """Tags in their order."""
    return tuple(sorted(tags.items()))


def elementwise(stmt: ir.Stmt, operands: Sequence[Operand], shape: tuple[int, ...]) -> Named:
    """Tags in which all operands that have one agree, broadcast to `shape`."""
    found: dict[str, Func | Lost] = {}
    for tags, own in operands:
        shift = len(shape) - len(own)
        index = [ex.Int(0) if n == 1 else parameter(i + shift) for i, n in enumerate(own)]
        for name, tag in tags:
            mine = found.get(name)
            if isinstance(mine, Lost):
                continue
            if isinstance(tag, Func):
                tag = at(tag, index)
            if mine is None or isinstance(tag, Lost):
                found[name] = tag
            elif not agree(mine, tag, shape):
                found[name] = Lost(stmt)
    return named(found)


def product(stmt: ir.Stmt, a: Named, b: Named, acc: Named, shapes: tuple[tuple[int, int], tuple[int, int]]) -> Named:
    """Tags of `a @ b + acc`: those of rows of a and of columns of b; what changes along the contraction is gone.

    `shapes` are those of a and b.
    """
    shape = shapes[0][0], shapes[1][1]
    rows, columns = _along((a, shapes[0]), 1), _along((b, shapes[1]), 0)
    row = ((n, at(t, (parameter(0), ex.Int(0))) if isinstance(t, Func) else t) for n, t in rows)
    column = ((n, at(t, (ex.Int(0), parameter(1))) if isinstance(t, Func) else t) for n, t in columns)
    return elementwise(stmt, ((tuple(row), shape), (tuple(column), shape), (acc, shape)), shape)


def compute(stmt: ir.Compute, operands: Sequence[Operand], shape: tuple[int, ...]) -> Named:
    """Tags of the result of a pure operation."""
    if not any(tags for tags, _ in operands):
        return ()
    if stmt.op in ir.ELEMENTWISE or stmt.op in ir.SCANS or stmt.op in ("broadcast", "convert_layout"):
        return elementwise(stmt, operands, shape)
    if stmt.op == "join":
        return _joined(stmt, operands, shape)
    tags, old = operands[0]
    if stmt.op in ir.REDUCTIONS:
        axis = stmt.axis or 0
        index = [parameter(i - (i > axis and not stmt.keep)) if i != axis else ex.Int(0) for i in range(len(old))]
        return tuple((n, at(t, index) if isinstance(t, Func) else t) for n, t in _along(operands[0], axis))
    index = _index(stmt, old, shape)
    lost = Lost(stmt)
    return tuple((n, t if isinstance(t, Lost) else lost if index is None else at(t, index)) for n, t in tags)


def _index(stmt: ir.Compute, old: tuple[int, ...], shape: tuple[int, ...]) -> list[ex.Expr] | None:
    """Indices into the operand of an operation that only moves elements, by those of the result; None for others."""
    here: list[ex.Expr] = [parameter(i) for i in range(len(shape))]
    match stmt.op:
        case "transpose":
            return here[::-1]
        case "permute":
            return [here[stmt.order.index(axis)] for axis in range(len(old))]
        case "expand_dims":
            axis = stmt.axis or 0
            return here[:axis] + here[axis + 1 :]
        case "half":
            return [*here, ex.Int(stmt.axis or 0)]
        case "reshape":
            flat: ex.Expr = ex.Int(0)
            for axis, here_at in enumerate(here):
                flat = ex.add(flat, ex.mul(here_at, ex.Int(prod(shape[axis + 1 :]))))
            found: list[ex.Expr] = []
            for axis, extent in enumerate(old):
                index = ex.mod(ex.floordiv(flat, ex.Int(prod(old[axis + 1 :]))), ex.Int(extent))
                found.append(_ranged(forms.to_expr(forms.canonical(index, {}, _NO_FACTS)), shape)[0])
            return found
        case _:
            return None


def _ranged(e: ex.Expr, shape: tuple[int, ...]) -> tuple[ex.Expr, int, int]:
    """An index without the quotients and remainders that change nothing in a tile of `shape`; its least and its
    greatest value.
    """
    match e:
        case ex.Int(value):
            return e, value, value
        case ex.Bin("+", lhs, rhs):
            (a, low, high), (b, least, most) = _ranged(lhs, shape), _ranged(rhs, shape)
            return ex.add(a, b), low + least, high + most
        case ex.Bin("*", lhs, ex.Int(factor)) | ex.Bin("*", ex.Int(factor), lhs) if factor >= 0:
            a, low, high = _ranged(lhs, shape)
            return ex.mul(a, ex.Int(factor)), low * factor, high * factor
        case ex.Bin("//", lhs, ex.Int(divisor)) if divisor > 0:
            a, low, high = _ranged(lhs, shape)
            if low // divisor == high // divisor:
                return ex.Int(low // divisor), low // divisor, low // divisor
            return ex.floordiv(a, ex.Int(divisor)), low // divisor, high // divisor
        case ex.Bin("%", lhs, ex.Int(divisor)) if divisor > 0:
            a, low, high = _ranged(lhs, shape)
            if low >= 0 and high < divisor:
                return a, low, high
            return ex.mod(a, ex.Int(divisor)), 0, divisor - 1
        case ex.Var(name):
            return e, 0, shape[int(name[1:])] - 1
        case _:
            raise AssertionError(f"no index: {ex.show(e)}")


def _along(operand: Operand, axis: int) -> Named:
    """The tags that do not change along an axis, at its index 0."""
    tags, shape = operand
    name = f"~{axis}"
    kept: list[tuple[str, Func | Lost]] = []
    for n, t in tags:
        if isinstance(t, Lost) or name not in ex.names(t.element):
            kept.append((n, t))
            continue
        start = ex.substitute(t.element, {name: ex.Int(0)})
        if _equal(t.element, start, 0, shape):
            kept.append((n, func(t.base, start)))
    return tuple(kept)


def _joined(stmt: ir.Compute, operands: Sequence[Operand], shape: tuple[int, ...]) -> Named:
    """Two tiles along a new last axis: known where both have the tag, over the same opaque part."""
    (left, _), (right, _) = operands
    others = dict(right)
    found: dict[str, Func | Lost] = {n: Lost(stmt) for n, _ in (*left, *right)}
    last = parameter(len(shape) - 1)
    for name, mine in left:
        other = others.get(name)
        if isinstance(mine, Lost) or isinstance(other, Lost) or other is None or not _same_base(mine.base, other.base):
            continue
        gap = ex.add(ex.sub(other.element, mine.element), ex.Int(other.base.const - mine.base.const))
        found[name] = func(mine.base, ex.add(mine.element, ex.mul(gap, last)))
    return named(found)


def transposed(value: Value) -> Value:
    """A tile of two dimensions as it is seen with its axes exchanged."""
    tags = tuple((n, at(t, (parameter(1), parameter(0))) if isinstance(t, Func) else t) for n, t in value.named)
    return replace(value, axes=value.axes[::-1], named=tags)


def agree(one: Func, other: Func, shape: tuple[int, ...]) -> bool:
    """True when two tags are the same for all elements, in all iterations."""
    return _same_base(one.base, other.base) and _equal(
        one.element, other.element, other.base.const - one.base.const, shape
    )


def _same_base(a: Tag, b: Tag) -> bool:
    """Equal but for a constant, whatever iteration it is."""
    return (a.symbol, a.outer, sorted(a.slopes)) == (b.symbol, b.outer, sorted(b.slopes))


@lru_cache(maxsize=4096)
def _equal(one: ex.Expr, other: ex.Expr, gap: int, shape: tuple[int, ...]) -> bool:
    """True when `one = other + gap` for all elements of a tile."""
    if one == other:
        return gap == 0
    difference = forms.canonical(ex.sub(one, other), {}, _NO_FACTS)
    if difference.is_constant:
        return difference.const == gap
    grids = np.ogrid[tuple(slice(0, n) for n in shape)]
    env = {f"~{i}": g for i, g in enumerate(grids)}
    return bool(np.all(tag_space.evaluate(forms.to_expr(difference), env) == gap))
