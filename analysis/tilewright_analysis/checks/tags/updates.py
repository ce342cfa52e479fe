"""What lanes past an edge add to single elements: they go to some element, unless they are masked or neutral."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from tilewright.ir import nodes as ir

from .lanes import Edge, Lanes, Past, build
from .masks import Atom
from .numbers import Number, constant

_NEUTRAL: Mapping[str, float] = {"add": 0.0, "max": -inf, "min": inf}


def update_lanes(stmt: ir.Scatter, parts: Sequence[Lanes], past_implies: Callable[[Edge, Atom], bool]) -> Lanes:
    """What goes into the update `stmt`, past the edges of all that takes part: `parts` are source, indices and mask.

    `past_implies(edge, atom)`: whether lanes past the edge are past the bound of the atom, where a mask is false.
    """
    chosen = parts[-1] if stmt.mask is not None else None

    def number(past: Past) -> Number:
        if chosen is not None and past:
            atoms = chosen.mask.when_true if chosen.mask is not None else ()
            if chosen.at(past).is_zero or any(past_implies(e, a) for e in past for a in atoms):
                return constant(_NEUTRAL[stmt.op])
        return parts[0].at(past)

    return build(frozenset(e for t in parts for e in t.edges), number, tuple(parts), stmt.span)
