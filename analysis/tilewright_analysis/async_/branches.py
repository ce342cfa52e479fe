"""Tiles after a branch that only computes: followed on both sides, since the condition plays no part in what is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.state import Process
from tilewright_analysis.async_.tags import Lost, Value, dims_of

_COMPARED = ("axes", "covers", "fixed", "neutral", "named")

Tiles = Mapping[str, Value]


def either(p: Process, o: c.Choice, then: Tiles, orelse: Tiles) -> dict[str, Value]:
    """The tiles of a process after one of two sequences of computations."""
    return {n: _value(p, o, v, orelse[n]) for n, v in then.items() if n in orelse}


def _value(p: Process, o: c.Choice, one: Value, other: Value) -> Value:
    if one is other:
        return one
    if one.neutral != other.neutral and not one.covers and not other.covers:
        # A constant has whatever coordinates the other side has.
        return one if other.neutral else other
    waits = other.pending is not None and other.pending not in p.known
    if any(getattr(one, what) != getattr(other, what) for what in _COMPARED):
        covers = tuple(dict.fromkeys((*one.covers, *other.covers)))
        one = replace(
            one,
            axes=(Lost(o.stmt, dims_of((*one.axes, *other.axes))),) * len(one.axes),
            covers=covers,
            neutral=False,
            named=(),
        )
    return replace(one, loaded=one.loaded and other.loaded, pending=other.pending if waits else one.pending)
