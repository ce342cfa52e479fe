"""Which numbers may be compared in a state that stands for all states of its normal form.

A normal form holds coordinates relative to positions in loops. States of one normal form agree on the comparison of two
coordinates if both move in the same way, or if the normal form held the positions themselves (`State.exact`, and those
that are not in `State.far`). They
agree on the comparison of a coordinate with the extent of a dimension if the trip count that bounds the extent grows
in step with the coordinate. Whatever else is compared is decided for one state only, and must not count as proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import nodes as ir
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.blocks import Part, part_of
from tilewright_analysis.async_.state import Instance, State
from tilewright_analysis.async_.tags import Axis, Cover, Lost, Slopes, Tag, Value

Operand = tuple[Value, tuple[int, ...]]


def mixed(roles: list[c.RoleCode]) -> tuple[frozenset[tuple[int, int]], frozenset[int]]:
    """((dimension, symbol) whose coordinates move differently in different statements, oracles they move with)."""
    moves: dict[tuple[int, int], set[tuple[tuple[int, int], ...]]] = {}
    for role in roles:
        for o in role.code:
            if isinstance(o, c.TmaLoad | c.TmaStore | c.CpAsync | c.Load | c.Gather | c.Store):
                for dim, at in o.box.coordinates:
                    moves.setdefault((dim, at.symbol), set()).add(at.slopes)
    several = {key: different for key, different in moves.items() if len(different) > 1}
    movers = frozenset(oracle for ways in several.values() for slopes in ways for oracle, _ in slopes)
    return frozenset(several), movers


class Motion:
    """The comparisons that hold for all states of a normal form, for one program."""

    def __init__(self, program: c.Program) -> None:
        self.program = program

    def rigid(self, s: State, *ways: Slopes) -> bool:
        """True when coordinates that move in these ways keep their distance, or their positions are known."""
        if all(w == ways[0] for w in ways) or (s.exact and all(map(self._held, ways))):
            return True
        # What moves both in the same way does not count; the rest must be known.
        common = frozenset[tuple[int, int, int]](ways[0]).intersection(*ways)
        return all((way[0], way[1]) not in s.far for w in ways for way in {*w} - common)

    def early(self, tag: Tag) -> int | None:
        """The coordinate of one of the first tiles of a loop, which the normal form holds; None: not one of them."""
        if tag.symbol or len(tag.slopes) != 1:
            return None
        ((oracle, _, factor),) = tag.slopes
        return tag.const if 0 <= tag.const < factor * self.program.ahead.get(oracle, 0) else None

    def _held(self, slopes: Slopes) -> bool:
        return all(oracle in self.program.movers for oracle, _, _ in slopes)

    def counts(self, s: State, dim: int, slopes: Slopes, inner: Instance) -> frozenset[int] | None:
        """Oracles whose counts a coordinate of a dimension that moves in this way may be compared with exactly.

        Empty: numbers below the limit of each oracle, which the normal form holds. None: the coordinate may be compared
        with nothing.
        """
        if s.exact and self._held(slopes):
            return self.program.movers
        if not slopes:
            return frozenset()
        extent = self.program.dims[dim]
        parts: list[Part] = []
        for oracle, outer, factor in slopes:
            found, around = part_of(extent, self.program.oracles[oracle].trip), self.program.oracles[oracle].outer
            if found is None or factor != found.length or (around is not None and inner != (around, outer)):
                return None
            parts.append(found)
        # One walk over all of it, or one over the whole blocks and one over the rest.
        if len({p.kind for p in parts}) < len(parts) or (len(parts) > 1 and len({p.divisor for p in parts}) > 1):
            return None
        return frozenset(oracle for oracle, _, _ in slopes)

    def operands(self, s: State, stmt: ir.Compute, args: Sequence[Operand], rank: int) -> list[Operand]:
        """`args` of an elementwise operation without the tags that agree in this state but need not in others."""
        seen: dict[int, Tag] = {}
        result: list[Operand] = []
        for value, own in args:
            axes: list[Axis] | None = None
            shift = rank - len(own)
            for i, axis in enumerate(value.axes):
                if not isinstance(axis, Tag) or own[i] == 1:
                    continue
                other = seen.setdefault(i + shift, axis)
                if other is axis or other.slopes == axis.slopes:
                    continue
                if other.same_coordinate(axis) and not self.rigid(s, other.slopes, axis.slopes):
                    axes = axes or list(value.axes)
                    axes[i] = Lost(stmt, (axis.dim,))
            result.append((value if axes is None else replace(value, axes=tuple(axes)), own))
        return result

    def turned(self, s: State, rows: Axis, left: Tag, right: Tag, columns: Axis) -> str:
        """The operand whose other axis is what the contraction needs, so that it is the wrong way round; or nothing."""
        for side, axis, want in (("right", columns, left), ("left", rows, right)):
            same = isinstance(axis, Tag) and axis.dim == want.dim and axis.same_coordinate(want)
            if same and isinstance(axis, Tag) and self.rigid(s, axis.slopes, want.slopes):
                return side
        return ""

    def sums(self, s: State, args: Sequence[Operand]) -> Cover | None:
        """A contraction whose parts in different operands cannot be compared for all states; None: there is none."""
        covers = [v for value, _ in args for v in value.covers if not v.complete]
        for i, one in enumerate(covers):
            for other in covers[:i]:
                if one != other and one.key == other.key and not self.rigid(s, *_ways(one), *_ways(other)):
                    return one
        return None


def _ways(cover: Cover) -> list[Slopes]:
    return [way for i in cover.intervals for way in (i.low_slopes, i.high_slopes)]
