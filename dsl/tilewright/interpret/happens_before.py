"""Happens-before over one concrete run, as sets of known tokens.

Every access, every completion of an asynchronous action, every wait and every end of a phase is a token, one bit of
an integer. A process knows a set of tokens: `known` is known to all its threads, `local` only to the thread itself
until the next sync. Two conflicting accesses are ordered when the later one's process knows the completion token of
the earlier.

Three rules on barriers make one run speak for all schedules: an arrival must know the end of the phase before it (else
it may count earlier), a wait must know the end of the phase before the one it waits for (else it may pass one round
early), and when a phase ends, the waits of the phase before must be known to its arrivals (else a waiter may miss it).
If they hold everywhere, all schedules match arrivals and waits with the same phases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.interpret.memory import Region, Stage, overlap
from tilewright.source import Span


@dataclass(eq=False, slots=True)
class Knowledge:
    """What a process knows: token sets for all its threads, and for the acting thread alone."""

    known: int = 0
    local: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """An access to a stage that a later one may conflict with."""

    region: Region
    write: bool
    asynchronous: bool
    token: int
    fence: int
    queue: object
    what: str
    span: Span


@dataclass(eq=False, slots=True)
class Phases:
    """Token sets of one barrier slot."""

    arriving: int = 0
    handed: int = 0
    last_end: int = 0
    end_before: int = 0
    waits: int = 0


@dataclass(eq=False, slots=True)
class Ordering:
    """The tokens of one program."""

    count: int = 0
    fences: dict[int, int] = field(default_factory=dict[int, int])
    slots: dict[object, Phases] = field(default_factory=dict[object, Phases])

    def token(self) -> int:
        """A fresh token."""
        self.count += 1
        return 1 << self.count

    def conflict(
        self, stage: Stage, region: Region, who: Knowledge, *, write: bool, asynchronous: bool
    ) -> tuple[str, Access] | None:
        """An earlier access that conflicts with this one and is not ordered before it: ("race" or "proxy", access)."""
        for access in stage.accesses:
            if not (write or access.write) or not overlap(access.region, region):
                continue
            if not who.known & access.token:
                return "race", access
            if asynchronous and access.write and not access.asynchronous and not who.known & access.fence:
                return "proxy", access
        return None

    def record(
        self, stage: Stage, region: Region, *, write: bool, asynchronous: bool, queue: object, what: str, span: Span
    ) -> int:
        """Note an access, forget those it supersedes, and return its completion token.

        `queue`: accesses of one queue complete in order.
        """
        token = self.token()
        fence = self.token() if write and not asynchronous else 0
        kept: list[Access] = []
        for old in stage.accesses:
            covered = _covers(region, old.region)
            superseded = covered and (write or (not old.write and old.queue == queue))
            if not superseded:
                kept.append(old)
            elif old.fence:
                self.fences.pop(old.token, None)
        kept.append(Access(region, write, asynchronous, token, fence, queue, what, span))
        stage.accesses = kept
        if fence:
            self.fences[token] = fence
        return token

    def fence(self, who: Knowledge) -> None:
        """A proxy fence: the ordinary writes that the process knows become visible to the asynchronous proxy."""
        seen = who.known | who.local
        for token, fence in self.fences.items():
            if seen & token:
                who.local |= fence

    def sync(self, members: list[Knowledge]) -> None:
        """A barrier over the threads of all members."""
        union = 0
        for member in members:
            union |= member.known | member.local
        for member in members:
            member.known, member.local = union, 0

    def arrive(self, slot: object, phase: int, who: Knowledge, extra: int = 0) -> bool:
        """An arrival (or a delivery of bytes) in phase `phase`; False if it could count in an earlier one."""
        state = self.slots.setdefault(slot, Phases())
        ordered = phase == 0 or bool(who.known & state.last_end)
        state.arriving |= who.known | extra
        return ordered

    def end_phase(self, slot: object) -> bool:
        """The running phase ends; False if a waiter of the phase before could still be waiting, and miss it."""
        state = self.slots.setdefault(slot, Phases())
        ordered = state.waits & ~state.arriving == 0
        state.end_before, state.last_end = state.last_end, self.token()
        state.handed = state.arriving | state.last_end
        state.arriving = state.waits = 0
        return ordered

    def wait(self, slot: object, phase: int, who: Knowledge) -> bool:
        """A wait that passes while `phase` runs; False if it could have passed a round earlier."""
        state = self.slots.setdefault(slot, Phases())
        ordered = phase < 2 or bool(who.known & state.end_before)
        token = self.token()
        state.waits |= token
        who.known |= state.handed | token
        return ordered


def _covers(outer: Region, inner: Region) -> bool:
    return all(o.start <= i.start and i.stop <= o.stop for o, i in zip(outer, inner, strict=False))
