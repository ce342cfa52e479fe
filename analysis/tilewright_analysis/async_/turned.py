"""A state as it looks with its rings turned: what the normal form holds instead of stages, slots and counters."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.state import Phase, State


class Turned:
    """How far each ring of a state is turned: the first counter of the first process that uses it comes to 0.

    Where a role has yet to set its counters, the ring stays as it is.
    """

    def __init__(self, program: c.Program, s: State) -> None:
        self._rings: dict[str, tuple[int, int]] = {}  # by how much, and how many stages
        self._flips: dict[str, int] = {}
        self._counters: dict[tuple[int, int], int] = {}
        for turn in program.turns:
            shift = 0
            mine = [p for p in s.processes if not p.done and id(p.role) in turn.after]
            if mine and all(p.pc > turn.after[id(p.role)] for p in mine):
                slot = min(slot for role, slot in turn.counters if role == id(mine[0].role))
                shift = -mine[0].env[slot] % turn.period
            if shift:
                self._rings |= dict.fromkeys(turn.rings, (shift, turn.stages))
                self._flips |= dict.fromkeys(turn.flips, shift)
                self._counters |= dict.fromkeys(turn.counters, shift)
        self._height = {name: b.shape[0] if b.shape else 1 for name, b in program.buffers.items()}

    def place(self, buffer: str, stage: int) -> tuple[str, int]:
        """Where a stage comes to."""
        shift, stages = self._rings.get(buffer, (0, 0))
        return (buffer, (stage + shift) % stages) if shift else (buffer, stage)

    def rows(self, buffer: str, low: int) -> int:
        """Where rows from `low` on come to."""
        if buffer not in self._rings:
            return low
        stage, row = divmod(low, self._height[buffer])
        return self.place(buffer, stage)[1] * self._height[buffer] + row

    def queue(self, queue: str) -> str:
        """A queue, which may be that of an accumulator."""
        if not self._rings or not queue.endswith("]"):
            return queue
        kind, _, stage = queue[:-1].rpartition("[")
        return f"{kind}[{self.place(kind.rsplit(' ', 1)[-1], int(stage))[1]}]"

    def phases(self, s: State) -> Iterator[tuple[Phase, int]]:
        """The slots of all barriers in the order in which they come to stand, with the phases to count on."""
        if not self._rings and not self._flips:
            yield from ((b, 0) for b in s.phases)
            return
        at = 0
        while at < len(s.phases):
            barrier = s.phases[at].barrier
            slots = s.phases[at : at + barrier.slots]
            at += barrier.slots
            if barrier.name in self._rings:
                shift, stages = self._rings[barrier.name]
                order = sorted(
                    (((i + shift) % stages, (i + shift) // stages, b) for i, b in enumerate(slots)), key=lambda t: t[0]
                )
                yield from ((b, more) for _, more, b in order)
            else:
                yield from ((b, self._flips.get(barrier.name, 0)) for b in slots)

    def counter(self, role: c.RoleCode, slot: int) -> int:
        """What to add to a slot."""
        return self._counters.get((id(role), slot), 0)
