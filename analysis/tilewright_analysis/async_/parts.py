"""Split contractions: a store at `W[s]` may hold part s of a contraction instead of all of it.

Part s covers `[s * L, s * L + L)` for a constant L; what lies past the end of the dimension adds nothing, since copies
and operands of products are zero there. The parts of all s below S together cover a dimension of K elements exactly
once if S * L is at least K. That every s is stored, and once, is what TW301 to TW303 say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tilewright.ir import expr as ex
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.tags import Cover, Tag


@dataclass(frozen=True, slots=True)
class Part:
    """A contraction over `[index * stride, index * stride + length)`, stored where `index` numbers the parts.

    `reaches`: the parts up to the extent of the dimension of `index` are known to reach the end.
    """

    index: Tag
    stride: int
    length: int
    reaches: bool


def part_of(program: c.Program, cover: Cover, fixed: Sequence[Tag]) -> Part | None:
    """`cover` as the part of its dimension that one of the `fixed` coordinates of its target numbers, or None."""
    if cover.complete or len(cover.intervals) != 1:
        return None
    (interval,) = cover.intervals
    if interval.low_slopes or interval.high_slopes:
        return None  # its ends move with a loop, so they are no constants
    start = forms.add(program.symbols[cover.symbol], forms.constant(interval.low))
    for tag in fixed:
        index = forms.add(program.symbols[tag.symbol], forms.constant(tag.const))
        if tag.slopes or tag.outer != cover.outer or not index.terms or not start.terms:
            continue
        ratio = start.terms[0][1] / index.terms[0][1]
        if ratio.denominator == 1 and ratio >= 1 and forms.scale(index, ratio) == start:
            stride = int(ratio)
            return Part(tag, stride, interval.high - interval.low, _reaches(program, cover.dim, tag.dim, stride))
    return None


@dataclass(frozen=True, slots=True)
class Summand:
    """What one program adds to a sum over programs: all of a contraction over dimension `dim` (`index` is None), or
    `[index * length, index * length + length)` of it, where `index` is over sizes and the program variable.
    """

    dim: int
    index: ex.Expr | None = None
    length: int = 0


def summand_of(program: c.Program, cover: Cover, outer: int) -> Summand | None:
    """`cover` as what the program adds in its tile number `outer`; None where it is no part of a fixed length."""
    if cover.complete:
        return Summand(cover.dim)
    if len(cover.intervals) != 1 or cover.outer not in (-1, outer):
        return None
    (interval,) = cover.intervals
    length = interval.high - interval.low
    if interval.low_slopes or interval.high_slopes or length < 1:
        return None
    start = forms.add(program.symbols[cover.symbol], forms.constant(interval.low))
    index = forms.scale(start, Fraction(1, length))
    if any(value.denominator != 1 for value in (index.const, *(factor for _, factor in index.terms))):
        return None
    return Summand(cover.dim, forms.to_expr(index), length)


def _reaches(program: c.Program, dim: int, parts: int, length: int) -> bool:
    """True when `parts * length >= dim` follows from the extents, or is assumed."""
    facts = forms.Facts.of(program.kernel.assumptions)
    extent, count = program.dims[dim], program.dims[parts]
    needed = forms.canonical(ex.cdiv(forms.to_expr(extent), ex.Int(length)), {}, facts)
    spare = (forms.add(forms.scale(count, length), extent, -1), forms.add(count, needed, -1))
    if any(facts.bounds(s)[0] >= 0 for s in spare):
        return True
    for assumption in program.kernel.assumptions:
        for low, high in _ordered(assumption.expr):
            known = forms.add(forms.canonical(high, {}, facts), forms.canonical(low, {}, facts), -1)
            if known in spare:
                return True
    return False


def _ordered(e: ex.Expr) -> Iterator[tuple[ex.Expr, ex.Expr]]:
    """Pairs (low, high) with low <= high in an assumption."""
    match e:
        case ex.Bin("and", lhs, rhs):
            yield from _ordered(lhs)
            yield from _ordered(rhs)
        case ex.Bin("<=" | "<", low, high):
            yield low, high
        case ex.Bin("==", lhs, rhs):
            yield lhs, rhs
            yield rhs, lhs
        case _:
            pass


def left_out(program: c.Program, covers: tuple[Cover, ...]) -> list[tuple[int, list[int]]]:
    """Dimensions of constant extent along which products at some constant indices are summed up, and those left out."""
    found: dict[tuple[int, str, int], list[set[int]]] = {}
    for cover in covers:
        for f in cover.fixed:
            fixed = [t.const for t in f.at if not t.symbol and not t.slopes]
            if program.dims[f.dim].is_constant:
                places = set(fixed) if len(fixed) == len(f.at) == 1 else set[int]()
                found.setdefault((cover.dim, cover.source, f.dim), []).append(places)
    result: list[tuple[int, list[int]]] = []
    for (_, _, dim), places in found.items():
        taken = set[int]().union(*places)
        rest = sorted(set(range(int(program.dims[dim].const))) - taken)
        if all(places) and len(taken) > 1 and rest:
            result.append((dim, rest))
    return result


def completed(cover: Cover) -> Cover:
    """What is left of a contraction that is complete: its place in words."""
    return Cover(cover.dim, 0, -1, (), (-1, 0), "", cover.source, True, cover.fixed)


def whole(program: c.Program, cover: Cover, along: Tag) -> Cover:
    """The cover, completed if it is all of a dimension of constant extent, contracted at once or in pieces."""
    extent = program.dims[along.dim]
    if along.symbol or along.slopes or not extent.is_constant or len(cover.intervals) != 1:
        return cover
    (all_of_it,) = cover.intervals
    fixed = not all_of_it.low_slopes and not all_of_it.high_slopes
    return completed(cover) if fixed and all_of_it.low == 0 and all_of_it.high >= extent.const else cover
