"""What a run executes, for a person to read: the last statements of all roles, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tilewright.ir import nodes as ir


@dataclass(frozen=True, slots=True)
class Executed:
    """A statement about to be executed: by which role or warpgroup, and the loop variables at that moment."""

    who: str
    stmt: ir.Stmt
    iteration: Mapping[str, int]


Recording = deque[Executed]
CURRENT: ContextVar[Recording | None] = ContextVar("recording", default=None)
"""Where statements are recorded; None: nowhere."""


@contextmanager
def recorded(last: int) -> Generator[Recording]:
    """The statements that runs inside the block execute, the `last` of them."""
    found: Recording = deque(maxlen=last)
    token = CURRENT.set(found)
    try:
        yield found
    finally:
        CURRENT.reset(token)
