"""How a run is scheduled, and which checks ride along."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Schedule:
    """What decides the order of events within a program.

    The default runs each role as far as it gets and completes asynchronous work at once: fast and deterministic.
    `adversarial`: roles and their warpgroups interleave at random, each asynchronous action completes at a random later
    moment; the order is a function of `seed`. `happens_before`: every access to shared memory must be ordered, by
    synchronization, with every conflicting one, and barrier phases must match in every schedule; deterministic.
    `tags`: values carry the coordinates they come from, and matrix instructions and stores check them.
    """

    seed: int = 0
    adversarial: bool = False
    happens_before: bool = False
    tags: bool = False

    @property
    def split_warpgroups(self) -> bool:
        """True when every warpgroup of a role is a process of its own."""
        return self.adversarial or self.happens_before


SEQUENTIAL = Schedule()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a run: events and loop iterations of a program that counts as endless, turns of a `while` loop that
    does, and must scalars fit 32 bits?
    """

    events: int = 20_000_000
    turns: int = 200_000
    check_overflow: bool = True


@dataclass(eq=False, slots=True)
class Action:
    """Asynchronous work that has been issued: `run` is executed once, at a moment that the schedule picks.

    `after` must be done first. `what` says what it is, for messages, and `span` where it was issued.
    """

    run: Callable[[], None]
    what: str
    span: Span = NO_SPAN
    after: Action | None = None
    done: bool = False
    priority: float = 0.0


@dataclass(eq=False, slots=True)
class Actions:
    """The asynchronous work of one program that is still in flight."""

    schedule: Schedule
    choice: random.Random
    lateness: dict[str, float] = field(default_factory=dict[str, float])
    pending: list[Action] = field(default_factory=list[Action])

    def issue(self, action: Action) -> Action:
        """Take on an action; without an adversary it completes at once."""
        if self.schedule.adversarial:
            self.prioritize(action)
            self.pending.append(action)
        else:
            action.run()
            action.done = True
        return action

    def finish(self, action: Action) -> None:
        """Complete an action, and what it must follow, if that has not happened yet."""
        if action.done:
            return
        if action.after is not None:
            self.finish(action.after)
        self.pending.remove(action)
        action.done = True
        action.after = None
        action.run()

    def prioritize(self, action: Action) -> None:
        """Draw a new priority. In one run all actions of a kind tend to be as late as one another."""
        bias = self.lateness.get(action.what)
        if bias is None:
            bias = self.lateness[action.what] = self.choice.choice((-3.0, -0.9, -0.5, 0.0, 0.4))
        action.priority = self.choice.random() + bias

    def ready(self) -> list[Action]:
        """Actions that may complete now."""
        return [a for a in self.pending if a.after is None or a.after.done]
