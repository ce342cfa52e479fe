"""Dimensions that are walked in two parts: whole blocks up to `K // d * d`, and the rest, `K % d` elements."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf
from typing import Literal, NamedTuple

from tilewright.ir import expr as ex
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.forms import Form, Trip, scale
from tilewright_analysis.async_.state import Instance, State
from tilewright_analysis.async_.tags import Tag


class Part(NamedTuple):
    """What a trip count says of an extent: it counts steps of `length` elements over all of it, over its whole blocks
    of `divisor` elements, or over the rest.
    """

    kind: Literal["all", "blocks", "rest"]
    length: Fraction
    divisor: int = 0


def part_of(extent: Form, trip: Trip) -> Part | None:
    """What `trip` counts of a dimension; None: something else."""
    if not extent.terms or not trip.form.terms:
        return None
    ratio = trip.form.terms[0][1] / extent.terms[0][1]
    if ratio > 0 and trip.form.without_constant() == scale(extent.without_constant(), ratio):
        return Part("all", trip.step / ratio)
    if len(extent.terms) != 1 or extent.const or extent.terms[0][1] != 1 or trip.form.const:
        return None
    match trip.form.terms:
        case ((ex.Bin("//", size, ex.Int(d)), one),) if one == trip.step == 1 and size == extent.terms[0][0] and d > 0:
            return Part("blocks", Fraction(d), d)
        case ((ex.Bin("%", size, ex.Int(d)), one),) if one == 1 and size == extent.terms[0][0] and d > 0:
            return Part("rest", Fraction(trip.step), d)
        case _:
            return None


def greatest(parts: Mapping[int, Part], counts: Mapping[int, float], comparable: frozenset[int]) -> float:
    """The greatest extent with at most `counts` blocks, by oracle, and what is known of the rest.

    `comparable` are the oracles of blocks that may be used. The rest is a number below the divisor, whatever moves.
    """
    high = inf
    for i, blocks in parts.items():
        if blocks.kind != "blocks" or i not in comparable or counts[i] == inf:
            continue
        rest = float(blocks.divisor - 1)
        for j, other in parts.items():
            if other.kind == "rest" and other.divisor == blocks.divisor and counts[j] < inf:
                rest = min(rest, counts[j] * float(other.length))
        high = min(high, counts[i] * blocks.divisor + rest)
    return high


def counted(program: c.Program, s: State, tag: Tag, around: Instance) -> Tag:
    """`tag` with a number instead of a symbol that is a whole number of steps of a loop that is over.

    It moves with the position of that loop, which is relative to the trip count.
    """
    if not tag.symbol:
        return tag
    symbol = program.symbols[tag.symbol]
    for i, oracle in enumerate(program.oracles):
        trip = oracle.trip
        if oracle.is_programs or i not in program.ties[i] or trip.step != 1 or trip.form.const or not trip.form.terms:
            continue
        factor = symbol.terms[0][1] / trip.form.terms[0][1] if symbol.terms else Fraction(0)
        if factor.denominator != 1 or symbol != scale(trip.form, factor):
            continue
        if oracle.outer is not None and (oracle.outer != around[0] or tag.outer not in (-1, around[1])):
            continue
        at = (i, around[1] if oracle.outer is not None else 0)
        low, high = s.oracles.get(at, (oracle.minimum, oracle.maximum))
        if low == high:
            moves = tuple(sorted((*tag.slopes, (*at, int(factor)))))
            return Tag(tag.dim, 0, -1, tag.const + int(factor) * int(low), moves, tag.text)
    return tag
