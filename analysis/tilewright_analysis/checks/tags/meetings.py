"""Where elements of different coordinates meet before they are reduced: factors of a sum that do not belong together.

`sum(w * x)` over a dimension multiplies `w[k]` by `x[k]`. A tile that lies elsewhere along it, or an index that stands
still while a loop takes the others in turn, makes a sum of other products. What is meant by those is not known, so none
of them is proved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import expr as ex

from ...async_ import forms
from ...context import KernelContext, Site
from ...integers import Binder, conjunction
from .stretches import Reduction, Stretch


def met(context: KernelContext, site: Site, one: Stretch, other: Stretch) -> Stretch:
    """The axis of a value that is computed from elements of both stretches."""
    if one == other or one.lost or one.met:
        return one
    if other.lost or other.met:
        return other
    if _shifted(one, other):
        return one
    pairs = ((one.dim, other.dim), (one.start, other.start), (one.length, other.length))
    equal = conjunction(ex.Bin("==", a, b) for a, b in pairs if a != b)
    return one if context.decider.proves(site.question(equal)) else replace(one, met=_text(one, other))


def _shifted(one: Stretch, other: Stretch) -> bool:
    """True for elements of one tensor at one distance that is no number of tiles, as in an autocorrelation.

    Nobody loads a tensor twice for less; a tile of another iteration would be whole tiles away.
    """
    same = (one.tensor, one.axis, one.length, one.dim) == (other.tensor, other.axis, other.length, other.dim)
    if not same or one.steps or other.steps or not isinstance(one.length, ex.Int):
        return False
    facts = forms.Facts.of(())
    distance = forms.canonical(ex.sub(other.start, one.start), {}, facts)
    moves = forms.canonical(one.start, {}, facts).names()
    whole = distance.is_constant and distance.const % one.length.value == 0
    return not whole and not any(n in moves for n in distance.names())


def fixed_apart(values: Sequence[tuple[Stretch, ...]]) -> dict[Stretch, str]:
    """What indices of operands do not agree with: one that stands still, or one that moves in the same loop.

    Two indices that are variables of different loops, as those of a row and of all others, may be meant.
    """
    found: dict[Stretch, str] = {}
    for i, mine in enumerate(values):
        for theirs in (*values[:i], *values[i + 1 :]):
            for one in _single(mine):
                for other in _single(theirs):
                    mine_of, theirs_of = _variables(one), _variables(other)
                    together = bool(mine_of) and (not theirs_of or bool(mine_of & theirs_of))
                    if together and one.dim == other.dim and one.start != other.start:
                        found.setdefault(one, _text(one, other))
    return found


def stands_still(one: Stretch, binder: Binder, others: Sequence[Stretch]) -> str:
    """What is wrong with a constant index of a dimension that a loop runs over; empty: nothing."""
    whole = (binder.lo, binder.hi, binder.step) == (ex.Int(0), one.dim, 1) and isinstance(one.dim, ex.Size)
    if not whole or _variables(one) or any(o.dim == one.dim and binder.name in o.names for o in others):
        return ""
    dim = ex.show(one.dim)
    return (
        f"the loop over {binder.label} takes every index of [0, {dim}), but what it adds up lies at {dim} = "
        f"{ex.show(one.start)} of {one.tensor} each time"
    )


def missing(reduction: Reduction) -> str:
    """What is not known of a reduction whose elements are made of others that lie apart."""
    return f"{reduction.stretch.met}; whether these belong together is not known"


def _single(fixed: tuple[Stretch, ...]) -> list[Stretch]:
    """Indices of dimensions that only one index of a value is of, and that have a size of their own."""
    dims = [f.dim for f in fixed]
    return [f for f in fixed if isinstance(f.dim, ex.Size) and dims.count(f.dim) == 1 and not f.lost]


def _variables(stretch: Stretch) -> set[str]:
    return {e.name for e in ex.walk(stretch.start) if isinstance(e, ex.Var)}


def _text(one: Stretch, other: Stretch) -> str:
    first, second = (
        f"{s.tensor} {'at' if s.length == ex.Int(1) else 'from'} {ex.show(s.dim)} = {_written(s)}" for s in (one, other)
    )
    return f"elements of {first} meet elements of {second} before they are reduced"


def _written(stretch: Stretch) -> str:
    """Where it begins; a variable that stands in several loops has a number behind its name."""
    return re.sub(r"'\d+", "", ex.show(stretch.start))
