"""What the parts of grading speak of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

F16_OVERFLOW = 65520.0  # the least magnitude that rounds to infinity

Launch = Callable[[], None]
# Binds tensors and scalars; what it returns launches on them. Binding (checks, descriptors) is not part of the time.
Kernel = Callable[[Sequence[Any]], Launch]


class JobError(Exception):
    """The job ends here. `failure` is one of `protocol.FAILURES`."""

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True)
class Guarded:
    """A tensor inside a larger, poisoned allocation. `intact()` says whether the memory around it was left alone."""

    tensor: Any
    intact: Callable[[], bool]


@dataclass(frozen=True)
class Difference:
    """How an output differs from what it should be. `max_error` is relative, in the sense of `grade.TOLERANCE`."""

    max_error: float
    wrong: int = 0
    total: int = 0
    message: str = ""


@dataclass(frozen=True)
class Timing:
    """Median and spread (distance of the quartiles) in milliseconds; `repetitions` of each.

    The first four are with a cold L2. `method` says how the warm figures came about: by "events" or in a "graph".
    """

    median_ms: float
    spread_ms: float
    baseline_ms: float | None
    baseline_spread_ms: float | None
    repetitions: int
    warm_ms: float | None = None
    baseline_warm_ms: float | None = None
    method: str = "events"


def not_as_agreed(error: Exception) -> JobError:
    """The process of a kernel offers memory that cannot be what it was asked for."""
    return JobError("tampered", f"the process of the kernel shares memory that is not as agreed: {error}")


def room(shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """Elements from the first to the last of a tensor."""
    if strides is None:
        return math.prod(shape)
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
