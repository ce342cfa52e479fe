"""Index tiles and the truth values that comparing them gives: which lanes a mask can hold for.

`cols < N` with `cols = origin + tw.arange(n)` holds exactly for the lanes of an axis that lie before a bound. A mask
knows two sets of such atoms: those that hold wherever it is true, and those that hold wherever it is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir


@dataclass(frozen=True, slots=True)
class Index:
    """Lane i along `axis` holds `offset + i`; the lanes of other axes are alike."""

    axis: int
    offset: ex.Expr


@dataclass(frozen=True, slots=True)
class Atom:
    """Lane i along `axis` lies before the bound: `offset + i < bound`.

    With `other`, before that of its lane j along that axis: `offset + i < bound + j`.
    """

    axis: int
    offset: ex.Expr
    bound: ex.Expr
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """Atoms that hold wherever the mask is true, and wherever it is false.

    `exact`: it is true wherever all of `when_true` hold. Otherwise nothing is known of other lanes.
    """

    when_true: frozenset[Atom] = frozenset()
    when_false: frozenset[Atom] = frozenset()
    exact: bool = False


Moved = Callable[[int], int | None]
"""Where an axis goes; None: it is gone."""


def moved_index(index: Index | None, move: Moved) -> Index | None:
    """The index tile after its axes have moved."""
    if index is None or (axis := move(index.axis)) is None:
        return None
    return replace(index, axis=axis)


def moved_mask(mask: Mask | None, move: Moved) -> Mask | None:
    """The mask after its axes have moved."""
    if mask is None:
        return None
    kept = _moved(mask.when_true, move)
    return Mask(kept, _moved(mask.when_false, move), mask.exact and len(kept) == len(mask.when_true))


def _moved(atoms: frozenset[Atom], move: Moved) -> frozenset[Atom]:
    found: set[Atom] = set()
    for a in atoms:
        axis, other = move(a.axis), None if a.other is None else move(a.other)
        if axis is not None and (a.other is None or other is not None):
            found.add(replace(a, axis=axis, other=other))
    return frozenset(found)


def shifted(op: ir.ComputeOp, left: Index | ex.Expr | None, right: Index | ex.Expr | None) -> Index | None:
    """`left op right` as an index tile, where one side is a scalar."""
    if left is None or right is None:
        return None
    if isinstance(left, Index) and not isinstance(right, Index) and op in ("add", "sub"):
        return replace(left, offset=(ex.add if op == "add" else ex.sub)(left.offset, right))
    if isinstance(right, Index) and not isinstance(left, Index) and op == "add":
        return replace(right, offset=ex.add(left, right.offset))
    return None


def compared(op: ir.ComputeOp, left: Index | ex.Expr | None, right: Index | ex.Expr | None) -> Mask | None:
    """The mask of a comparison of an index tile with a scalar."""
    if isinstance(right, Index) and left is not None and not isinstance(left, Index):
        swapped: dict[str, ir.ComputeOp] = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
        return compared(swapped[op], right, left) if op in swapped else None
    if not isinstance(left, Index) or right is None:
        return None
    if isinstance(right, Index):
        return _between(op, left, right)
    bound = ex.add(right, ex.Int(1)) if op in ("le", "gt") else right
    atom = frozenset((Atom(left.axis, left.offset, bound),))
    if op in ("lt", "le"):
        return Mask(when_true=atom, exact=True)
    return Mask(when_false=atom) if op in ("gt", "ge") else None


def _between(op: ir.ComputeOp, left: Index, right: Index) -> Mask | None:
    """The mask of a comparison of index tiles along two axes, as of keys with queries."""
    if left.axis == right.axis:
        return None
    if op in ("gt", "ge"):
        return _between("lt" if op == "gt" else "le", right, left)
    bound = ex.add(right.offset, ex.Int(1)) if op == "le" else right.offset
    atom = frozenset((Atom(left.axis, left.offset, bound, right.axis),))
    return Mask(when_true=atom, exact=True) if op in ("lt", "le") else None


def combined(op: ir.ComputeOp, masks: list[Mask]) -> Mask | None:
    """The mask `a and b`, `a or b` or `not a`."""
    first = masks[0]
    if op == "not":
        return Mask(first.when_false, first.when_true)
    second = masks[1]
    if op == "and":
        exact = first.exact and second.exact
        return Mask(first.when_true | second.when_true, first.when_false & second.when_false, exact)
    if op == "or":
        return Mask(first.when_true & second.when_true, first.when_false | second.when_false)
    return None
