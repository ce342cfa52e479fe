"""The process of a kernel: it holds the tensors, launches on request, and says how long that took.

It runs generated code, so the judge (`grade`, in another process) believes nothing of what it says: it reads and writes
the tensors itself, through shared memory, and has a clock of its own. This process has no handle to any memory of the
judge. Requests and answers are JSON lines; `Session.answer` has one method a request.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from .channel import Channel
from .confine import limit_memory
from .protocol import Message
from .sandbox import enter
from .terms import JobError, Kernel, Launch
from .timing import Side


class Host(Protocol):
    """What executes kernels, in the process of the kernel."""

    name: str

    def load(self, program: Message) -> Kernel:
        """The kernel of a job, ready to bind. Raises JobError."""
        ...

    def buffer(self, elements: int, dtype: str) -> Any:
        """Memory for so many elements. Raises JobError."""
        ...

    def share(self, buffer: Any) -> Any:
        """What the judge opens the memory by, in JSON."""
        ...

    def view(self, buffer: Any, shape: Sequence[int], strides: Sequence[int] | None, offset: int) -> Any:
        """A tensor that begins at an element of a buffer."""
        ...

    def synchronize(self) -> None:
        """Wait for the device. Raises JobError when a kernel failed."""
        ...

    def sampler(self, launches: Sequence[Launch]) -> Side | None:
        """Takes times of launches; None where times mean nothing."""
        ...

    def stall(self, launch: Launch) -> None:
        """Hold the stream up for `STALL_SECONDS`, launch behind that, and do not wait."""
        ...

    def stalled(self) -> bool:
        """Whether the stream is still held up."""
        ...

    def release(self) -> None:
        """Give memory that is no longer needed back."""
        ...

    def tampered(self) -> str:
        """The name of a function that takes times and was replaced; empty: none."""
        ...


class Session:
    """Answers requests about one kernel. An answer has "ok", and the failure and message of a job that ends here."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.kernel: Kernel | None = None
        self.buffers: dict[int, Any] = {}
        self.launches: list[Launch] = []
        self.sampler: Side | None = None
        self._made = 0

    def answer(self, request: Message) -> Message:
        """Do what a request says. Never raises."""
        known: dict[str, Callable[[Message], Message]] = {
            "load": self._load, "allocate": self._allocate, "bind": self._bind, "launch": self._launch,
            "stall": self._stall, "stalled": self._stalled, "sampler": self._sampler, "sample": self._sample,
            "forget": self._forget, "seal": self._seal,
        }  # fmt: skip
        try:
            return {"type": "answer", "ok": True, **known[request["type"]](request)}
        except JobError as error:
            failure, text = error.failure, str(error)
        except MemoryError:
            failure, text = "out of memory", "the machine has too little memory"
        except Exception as error:
            failure, text = "launch", f"{type(error).__name__}: {error}"
        return {"type": "answer", "ok": False, "failure": failure, "message": text}

    def _load(self, request: Message) -> Message:
        self.kernel = self.host.load(request["program"])
        return {}

    def _allocate(self, request: Message) -> Message:
        made = [self.host.buffer(int(elements), str(dtype)) for elements, dtype in request["buffers"]]
        numbers = range(self._made, self._made + len(made))
        self._made += len(made)
        self.buffers.update(zip(numbers, made, strict=True))
        return {"numbers": list(numbers), "handles": [self.host.share(b) for b in made]}

    def _bind(self, request: Message) -> Message:
        assert self.kernel is not None
        values = [self._value(v) for v in request["values"]]
        self.launches.append(self.kernel(values))
        self.host.synchronize()
        return {"number": len(self.launches) - 1}

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        place = cast("Message", value)
        return self.host.view(self.buffers[place["buffer"]], place["shape"], place["strides"], place["offset"])

    def _launch(self, request: Message) -> Message:
        for number in request["numbers"]:
            self.launches[number]()
        self.host.synchronize()
        return {}

    def _stall(self, request: Message) -> Message:
        self.host.stall(self.launches[int(request["number"])])
        return {}

    def _stalled(self, request: Message) -> Message:
        return {"value": self.host.stalled()}

    def _sampler(self, request: Message) -> Message:
        self.sampler = self.host.sampler([self.launches[int(n)] for n in request["numbers"]])
        return {"works": self.sampler is not None}

    def _sample(self, request: Message) -> Message:
        assert self.sampler is not None
        match request["how"]:
            case "cold":
                return {"value": self.sampler.cold(request["turn"])}
            case "warm":
                return {"value": self.sampler.warm(request["turn"])}
            case "graph":
                return {"value": self.sampler.graph()}
            case _:
                return {"value": self.sampler.replay()}

    def _forget(self, request: Message) -> Message:
        """Drop all tensors; numbers of launches begin anew."""
        self.launches.clear()
        self.buffers.clear()
        self.sampler = None
        self.host.release()
        return {}

    def _seal(self, request: Message) -> Message:
        return {"broken": self.host.tampered()}


def serve(channel: Channel, host: Host) -> None:
    """Answer until the judge closes the channel. The first request has the scratch folder and the limit of memory."""
    session = Session(host)
    channel.send({"type": "ready", "name": host.name})
    while (request := channel.receive()) is not None:
        if scratch := request.pop("scratch", None):
            _work_in(str(scratch))
            limit_memory(int(request.pop("memory", 0)))
            enter(str(scratch))
        channel.send(session.answer(request))


def _work_in(scratch: str) -> None:
    """Temporary files, caches of compilers and the working folder are those of the job, and go with it."""
    os.chdir(scratch)
    os.environ.update(TMPDIR=scratch, TEMP=scratch, TMP=scratch, TRITON_CACHE_DIR=os.path.join(scratch, "triton"))
    tempfile.tempdir = None  # which was found out before there was a job
