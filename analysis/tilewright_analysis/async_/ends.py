"""Where contractions stop that do not reach all of their dimension, as under a causal mask: at the ends of loops."""

from __future__ import annotations

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.flow import Contractions
from tilewright_analysis.async_.model import End
from tilewright_analysis.async_.state import INF, Instance, Process, State
from tilewright_analysis.async_.tags import Cover

Ends = dict[int, set[tuple[End | None, int]]]
"""By store of a contraction over a part of a dimension: where it stops (None: not known), with the number of the
dimension.
"""


def end_of(program: c.Program, s: State, p: Process, cover: Cover) -> End | None:
    """Where a contraction stops that begins at 0, or with the first tile of a loop."""
    if len(cover.intervals) != 1 or cover.outer not in (-1, p.outer):
        return None
    (interval,) = cover.intervals
    for loop in p.role.loops:
        symbol, first = loop.begin
        if symbol != cover.symbol or (at := _end(program, s, p, loop)) is None or (not symbol and interval.low > 0):
            continue
        # The coordinate goes along with the loop, or the normal form holds both numbers: so the two are compared alike
        # in all of its states.
        instance, behind, held = at
        alike = interval.high_slopes == ((*instance, loop.step),) or (held and not interval.high_slopes)
        if alike and interval.high >= behind:
            return End(p.role.code[loop.start].stmt, first - interval.low if symbol else None)
    return None


def end_of_nothing(program: c.Program, made: Contractions, s: State, p: Process, dim: int) -> End | None:
    """Where a contraction stops of which nothing has been done: from the beginning to the end of a loop is nothing."""
    for (name, number), dims in made.over.items():
        for loop in p.role.loops if name == p.role.name and dim in dims else ():
            at = _end(program, s, p, loop) if loop.start < number < loop.end else None
            # As far before the beginning of the loop as its end may be.
            if at is not None:
                return End(p.role.code[loop.start].stmt, loop.begin[1] - at[1] if loop.begin[0] or at[1] > 0 else None)
    return None


def _end(program: c.Program, s: State, p: Process, loop: c.Loop) -> tuple[Instance, int, bool] | None:
    """The instance of the trip count of a loop, the constant of a coordinate behind its end, as far as decided, and
    whether the normal form holds the count as a number.
    """
    if loop.oracle is None:
        return None
    oracle = program.oracles[loop.oracle]
    at = (loop.oracle, p.outer if oracle.outer is not None else 0)
    most = s.oracles.get(at, (oracle.minimum, oracle.maximum))[1]
    if most == INF or loop.begin[0] < 0:
        return None
    return at, loop.begin[1] + loop.step * (int(most) + loop.offset), most < program.limits[loop.oracle]
