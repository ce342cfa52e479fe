"""A kernel as the judge sees it: a process that it asks, and whose answers it does not trust."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from .protocol import FAILURES, Message
from .terms import JobError

Ask = Callable[[Message], Message]
"""Sends a request to the process of a kernel and returns its answer. Raises JobError when that process is gone."""


class Opener(Protocol):
    """What opens shared memory in the process of the judge."""

    def open(self, handle: Any, elements: int, dtype: str) -> Any:
        """The memory as a flat tensor. Raises JobError."""
        ...


@dataclass(frozen=True)
class Buffer:
    """Memory of the kernel's process: its number there, and the judge's view of it."""

    number: int
    storage: Any


class Program:
    """The kernel of a job in its process. All methods raise JobError."""

    def __init__(self, ask: Ask, device: Opener) -> None:
        self.ask, self.device = ask, device

    def load(self, program: Mapping[str, Any]) -> None:
        """Load the generated module, or the kernel to interpret."""
        self._do({"type": "load", "program": dict(program)})

    def allocate(self, wanted: Sequence[tuple[int, str]]) -> list[Buffer]:
        """Buffers of so many elements of a type each."""
        answer = self._do({"type": "allocate", "buffers": [list(w) for w in wanted]})
        numbers, handles = _list(answer, "numbers"), _list(answer, "handles")
        if len(numbers) != len(wanted) or len(handles) != len(wanted):
            raise _unbelievable("allocate")
        opened = zip(numbers, handles, wanted, strict=True)
        return [Buffer(int(n), self.device.open(h, size, dtype)) for n, h, (size, dtype) in opened]

    def bind(self, values: Sequence[Any]) -> int:
        """Bind arguments (numbers, and places in buffers); the number of the launch."""
        return int(self._number(self._do({"type": "bind", "values": list(values)}), "number"))

    def launch(self, numbers: Sequence[int]) -> float:
        """Launch one after the other and wait for the device; the seconds that this took, by the clock of the judge."""
        start = time.perf_counter()
        self._do({"type": "launch", "numbers": list(numbers)})
        return time.perf_counter() - start

    def stall(self, number: int) -> None:
        """Launch behind something that holds the stream up for a while, and do not wait."""
        self._do({"type": "stall", "number": number})

    def stalled(self) -> bool:
        """Whether the stream is still held up."""
        return self._do({"type": "stalled"}).get("value") is True

    def sampler(self, numbers: Sequence[int]) -> RemoteSide | None:
        """Times of these launches, by the clock of the kernel's process; None where times mean nothing."""
        return RemoteSide(self) if self._do({"type": "sampler", "numbers": list(numbers)}).get("works") else None

    def sample(self, how: str, turn: int = 0) -> float:
        """One sample."""
        return self._number(self._do({"type": "sample", "how": how, "turn": turn}), "value")

    def forget(self) -> None:
        """Drop all tensors."""
        self._do({"type": "forget"})

    def broken_seal(self) -> str:
        """A function that takes times and that the kernel replaced."""
        return str(self._do({"type": "seal"}).get("broken") or "")

    def _do(self, request: Message) -> Message:
        answer = self.ask(request)
        if answer.get("ok") is True:
            return answer
        failure = str(answer.get("failure"))
        raise JobError(failure if failure in FAILURES else "launch", str(answer.get("message"))[:4000])

    @staticmethod
    def _number(answer: Message, key: str) -> float:
        value = answer.get(key)
        if not isinstance(value, int | float) or not value >= 0:
            raise _unbelievable(key)
        return value


class RemoteSide:
    """A `timing.Side` in the process of a kernel."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def cold(self, turn: int) -> float:
        """As `Side`."""
        return self._program.sample("cold", turn)

    def warm(self, turn: int) -> float:
        """As `Side`."""
        return self._program.sample("warm", turn)

    def graph(self) -> bool:
        """As `Side`."""
        return bool(self._program.sample("graph"))

    def replay(self) -> float:
        """As `Side`."""
        return self._program.sample("replay")


def _list(answer: Message, key: str) -> list[Any]:
    found = answer.get(key)
    if not isinstance(found, list):
        raise _unbelievable(key)
    return cast("list[Any]", found)


def _unbelievable(what: str) -> JobError:
    return JobError("tampered", f"the process of the kernel gave an answer that makes no sense ({what})")
