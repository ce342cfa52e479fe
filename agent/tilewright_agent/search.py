"""The search for a better variant, apart from proposing, verifying and measuring: a small state machine.

It climbs: from the best proved variant so far it asks for proposals, has them predicted, and has the promising ones
verified in the order of their prediction; a better proved one becomes the place to propose from. Verification is what
costs, so variants that are predicted to be slower than the best are never verified.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

V = TypeVar("V")


class State(Enum):
    """What the search wants next: proposals around `best`, a verdict on `current`, or nothing more."""

    PROPOSE = "propose"
    VERIFY = "verify"
    DONE = "done"


@dataclass
class Search(Generic[V]):
    """The state. `start` and its score begin the search; lower scores are better.

    `limit` bounds the verifications. A candidate is worth one when its score is at most `slack` times the best one.
    """

    start: V
    start_score: float
    limit: int
    slack: float = 1.0
    best: V = field(init=False)
    best_score: float = field(init=False)
    state: State = field(init=False, default=State.PROPOSE)
    verified: int = field(init=False, default=0)
    proved: list[tuple[float, V]] = field(init=False, default_factory=list["tuple[float, V]"])
    _queue: list[tuple[float, V]] = field(init=False, default_factory=list["tuple[float, V]"])

    def __post_init__(self) -> None:
        self.best, self.best_score = self.start, self.start_score

    @property
    def current(self) -> V:
        """The candidate to verify. Only in state VERIFY."""
        assert self.state is State.VERIFY
        return self._queue[0][1]

    def propose(self, candidates: Iterable[tuple[float, V]]) -> None:
        """Answer PROPOSE with new candidates and their scores. None that promises anything ends the search."""
        assert self.state is State.PROPOSE
        promising = [c for c in candidates if c[0] < self.best_score * self.slack]
        self._queue = sorted(promising, key=lambda c: c[0])
        self._go()

    def record(self, proved: bool) -> None:
        """Answer VERIFY with the verdict on `current`."""
        assert self.state is State.VERIFY
        score, candidate = self._queue.pop(0)
        self.verified += 1
        if proved:
            self.proved.append((score, candidate))
            if score < self.best_score:
                self.best, self.best_score = candidate, score
                # What was queued was promising from the old place; from the new one its relatives are proposed again.
                self._queue = []
                self.state = State.PROPOSE if self.verified < self.limit else State.DONE
                return
        self._go()

    def _go(self) -> None:
        self.state = State.VERIFY if self._queue and self.verified < self.limit else State.DONE
