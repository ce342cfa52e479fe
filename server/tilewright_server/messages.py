"""What the server and its worker process say to each other: pickled values, each after its length.

Both ends are the same installation and the pipe is private to them, so pickle is safe here.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tilewright.source import SourceText
from tilewright_analysis.report import KernelReport, Obligation

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Check:
    """Verify kernel number `unit` of a text. `target` is empty or replaces the target of the kernel."""

    job: int
    source: SourceText
    unit: int
    target: str


@dataclass(frozen=True, slots=True)
class Call:
    """Run one of the long tasks of `tasks.py` and send back what it returns."""

    job: int
    task: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The result of a job is no longer wanted."""

    job: int


@dataclass(frozen=True, slots=True)
class Decided:
    """An obligation has been decided; spans are relative to the kernel."""

    job: int
    obligation: Obligation


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a task, for a person; `percent` is 0 to 100, or None when it cannot be told."""

    job: int
    message: str
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on a kernel, with spans relative to it."""

    job: int
    report: KernelReport


@dataclass(frozen=True, slots=True)
class Returned:
    """What a task has returned."""

    job: int
    value: object


@dataclass(frozen=True, slots=True)
class Failed:
    """A job has ended in an error. `expected`: `message` is for the person; otherwise it is an error of ours."""

    job: int
    message: str
    details: str = ""
    expected: bool = False


Request = Check | Call | Cancel
Reply = Decided | Progress | Checked | Returned | Failed


def write(stream: BinaryIO, message: Request | Reply) -> None:
    """Send one message at once."""
    stream.write(encode(message))
    stream.flush()


def read(stream: BinaryIO) -> Request | None:
    """The next message, or None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = stream.read(_LENGTH.unpack(head)[0])
    return pickle.loads(body)


async def receive(stream: asyncio.StreamReader) -> Reply:
    """The next message of the worker. Raises asyncio.IncompleteReadError when the worker has ended."""
    head = await stream.readexactly(_LENGTH.size)
    return pickle.loads(await stream.readexactly(_LENGTH.unpack(head)[0]))


def encode(message: Request | Reply) -> bytes:
    """A message as it goes over the pipe."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body
