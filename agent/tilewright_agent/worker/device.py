"""What a judge asks of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilewright_reference import Backend

from .terms import Difference, Guarded, JobError, Launch
from .timing import Side


class Device(Protocol):
    """The judge's side of what executes kernels."""

    name: str
    backend: Backend
    runs_code: bool  # of a client, whose author may know the seeds of a job; otherwise runs can be repeated exactly
    folder: str  # of the job that runs
    guard: int  # elements of poison before and after a tensor

    def open(self, handle: Any, elements: int, dtype: str) -> Any:
        """Memory that the process of a kernel shares, as a flat tensor. Raises JobError."""
        ...

    def private(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of the judge alone."""
        ...

    def guarded(self, buffer: Any, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Guarded:
        """A poisoned tensor with poisoned memory around it, and between its rows if `strides` leave room there."""
        ...

    def fill(self, tensor: Any, dtype: str, distribution: str, seed: int) -> None:
        """Random elements."""
        ...

    def load(self, tensor: Any, data: bytes, dtype: str) -> None:
        """Elements from raw little-endian bytes."""
        ...

    def copy(self, tensor: Any) -> Any:
        """A copy."""
        ...

    def assign(self, target: Any, source: Any) -> None:
        """Copy the elements over."""
        ...

    def equal(self, first: Any, second: Any) -> bool:
        """Whether two tensors agree bit by bit."""
        ...

    def difference(self, got: Any, want: Any, tolerance: float) -> Difference:
        """Compare an output with its float32 reference."""
        ...

    def synchronize(self) -> None:
        """Wait for the device. Raises JobError."""
        ...

    def poison(self, tensor: Any, dtype: str) -> None:
        """What `guarded` puts into a tensor, again."""
        ...

    def sampler(self, launches: Sequence[Launch]) -> Side:
        """Takes times of launches in this process."""
        ...

    def release(self) -> None:
        """Give memory that is no longer needed back to the device."""
        ...

    def failure(self, error: Exception) -> JobError:
        """What an error of the judge's own work means for the job."""
        ...
