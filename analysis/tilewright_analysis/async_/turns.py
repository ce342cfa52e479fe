"""Rings that turn: counters, stages and phases that a kernel uses only relative to each other.

A ring of S stages is addressed by counters, one or more in each role: stage `x % S`, parity `x // S % 2`. Where that is
all that counters are used for, a state in which every counter of the ring is d further, the contents and accesses of
stage i are found in stage (i + d) % S, and phases are counted on where that goes round, behaves alike for good. So the
normal form turns each ring until its first counter stands at 0, and states that differ by a turn are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from tilewright.ir import expr as ex
from tilewright_analysis.async_ import code as c

Counter = tuple[int, str]
"""A slot of the role with that number."""


@dataclass(frozen=True, slots=True)
class Use:
    """A stage of a buffer or a slot of a barrier, of `count`, in one statement, with the parity that is waited for."""

    name: str
    count: int
    index: ex.Expr
    parity: ex.Expr | None = None

    @property
    def names(self) -> frozenset[str]:
        """The slots that it depends on."""
        return ex.names(self.index) | (ex.names(self.parity) if self.parity is not None else frozenset[str]())


@dataclass(frozen=True, slots=True)
class Turn:
    """What turns together: counters with numbers modulo `period`, `rings` of `stages`, and barriers whose slots keep
    their places and only `flip` their parity.

    `counters` are slots of roles (by their ids). A role turns once it is past `after`, where its counters are set.
    """

    counters: frozenset[tuple[int, int]]
    period: int
    stages: int
    rings: frozenset[str]
    flips: frozenset[str]
    after: Mapping[int, int]


def turns(roles: list[c.RoleCode], uses: list[list[Use]], pinned: list[list[ex.Expr]]) -> tuple[Turn, ...]:
    """The rings of a kernel that may be turned.

    `uses` are all uses of buffers and barriers of each role, `pinned` all expressions whose values count otherwise.
    """
    parents: dict[Counter | str, Counter | str] = {}

    def root(of: Counter | str) -> Counter | str:
        parents.setdefault(of, of)
        while parents[of] != of:
            of = parents[of]
        return of

    fixed: set[Counter | str] = set()
    for number, role in enumerate(roles):
        for use in uses[number]:
            names = use.names
            for name in names:
                parents[root((number, name))] = root(use.name)
            if len(names) > 1 or any(not n.startswith("$") for n in names):
                fixed.add(use.name)
        fixed |= {(number, n) for e in pinned[number] for n in ex.names(e)}
        fixed |= {(number, n) for n in role.slots if not _counts(role, n)}
        # What goes into another scalar would turn without it.
        passed_on = {slot for o in role.code if isinstance(o, c.SetScalar) and o.step is None for slot in o.uses}
        fixed |= {(number, n) for n, slot in role.slots.items() if slot in passed_on}
    groups: dict[Counter | str, set[Counter | str]] = {}
    for member in list(parents):
        groups.setdefault(root(member), set()).add(member)
    found = (_turn(roles, uses, group) for group in groups.values() if not group & fixed)
    return tuple(t for t in found if t is not None)


def _counts(role: c.RoleCode, name: str) -> bool:
    """True for a slot that is set to a number outside of loops, and else only counted on."""
    slot = role.slots[name]
    mode = role.modes[slot]
    for o in role.code:
        if not isinstance(o, c.SetScalar) or o.slot != slot:
            continue
        inside = any(loop.start <= o.number < loop.end for loop in role.loops)
        if o.step is None and (inside or o.uses):
            return False
    return name.startswith("$") and mode is not None and mode[1] == 0


def _turn(roles: list[c.RoleCode], uses: list[list[Use]], group: set[Counter | str]) -> Turn | None:
    counters = frozenset(m for m in group if isinstance(m, tuple))
    if not counters:
        return None
    modes = [roles[number].modes[roles[number].slots[name]] for number, name in counters]
    period = lcm(2, *(mode[0] for mode in modes if mode is not None))
    mine = [(number, use) for number, of in enumerate(uses) for use in of if use.name in group]
    sizes = {use.count for _, use in mine if ex.names(use.index)}
    if len(sizes) > 1:
        return None
    stages = sizes.pop() if sizes else 1
    period = lcm(period, 2 * stages)
    rings = frozenset(use.name for _, use in mine if ex.names(use.index))
    flips = frozenset(use.name for _, use in mine) - rings
    for _, use in mine:
        if (use.name in rings) != bool(ex.names(use.index)) or not _turns(use, period, stages):
            return None
    after: dict[int, int] = {}
    for number, name in counters:
        slot = roles[number].slots[name]
        sets = [
            o.number for o in roles[number].code if isinstance(o, c.SetScalar) and o.slot == slot and o.step is None
        ]
        after[id(roles[number])] = max(after.get(id(roles[number]), -1), *sets, -1)
    slots = frozenset((id(roles[number]), roles[number].slots[name]) for number, name in counters)
    return Turn(slots, period, stages, rings, flips, after)


def _turns(use: Use, period: int, stages: int) -> bool:
    """True when a counter that is one further gives the next stage, and the other parity where that goes round."""
    names = use.names
    moves = bool(ex.names(use.index))
    at: list[tuple[int, int]] = []
    for x in range(period + 1):
        env = dict.fromkeys(names, x)
        try:
            index = ex.evaluate(use.index, env)
            at.append((index, ex.evaluate(use.parity, env) & 1 if use.parity is not None else 0))
        except ex.EvaluationError:
            return False
    for (index, parity), (following, then) in pairwise(at):
        if moves and (not 0 <= index < stages or following != (index + 1) % stages):
            return False
        round_ = index == stages - 1 if moves else True
        if use.parity is not None and then != parity ^ int(round_):
            return False
    return at[0] == at[-1]
