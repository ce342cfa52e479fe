"""The long tasks that editor and command line share; the editor runs them in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class OnProgress(Protocol):
    """Told of each step."""

    def __call__(self, message: str, percent: int | None = None) -> None:
        """`percent` is 0 to 100, or None when it cannot be told."""
        ...


TASKS: Mapping[str, Callable[..., object]] = {}
