"""The worker process: verifies kernels, and runs the long tasks, so that the server can always answer and can kill it.

Started as `python -m tilewright_server.worker`; speaks `messages` over stdin and stdout. One thread listens, so that a
job can be cancelled while it runs; when the server is gone, the process ends in the middle of whatever it does.
"""

from __future__ import annotations

import os
import sys
import traceback
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from tilewright.frontend import Module
from tilewright.source import SourceText
from tilewright_server import engine, messages, tasks
from tilewright_server.errors import UsageError
from tilewright_server.messages import Call, Cancel, Check, Checked, Failed, Progress, Reply, Returned


def main() -> None:
    """Serve jobs until the server closes the pipe."""
    incoming, outgoing = _private_streams()
    worker = _Worker(outgoing)
    Thread(target=worker.listen, args=(incoming,), daemon=True).start()
    engine.load_verifier()  # takes a while; better before the first job than in it
    worker.work()


class _Worker:
    def __init__(self, outgoing: BinaryIO) -> None:
        self._outgoing = outgoing
        self._jobs: SimpleQueue[Check | Call] = SimpleQueue()
        self._cancelled: set[int] = set()
        self._module: Module | None = None

    def listen(self, incoming: BinaryIO) -> None:
        while (message := messages.read(incoming)) is not None:
            if isinstance(message, Cancel):
                self._cancelled.add(message.job)
            else:
                self._jobs.put(message)
        os._exit(0)  # also out of a solver call that cannot be interrupted

    def work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                self._send(self._check(job) if isinstance(job, Check) else self._call(job))
            except UsageError as error:
                self._send(Failed(job.job, str(error), expected=True))
            except Exception as error:
                self._send(Failed(job.job, f"{type(error).__name__}: {error}", traceback.format_exc()))
            self._cancelled.discard(job.job)

    def _check(self, job: Check) -> Checked:
        module = self._parse(job.source)
        unit = engine.configured(module.units[job.unit], job.target)
        report = engine.check(
            unit,
            on_obligation=lambda obligation: self._send(messages.Decided(job.job, obligation)),
            cancelled=lambda: job.job in self._cancelled,
        )
        return Checked(job.job, report)

    def _call(self, job: Call) -> Returned:
        def progress(message: str, percent: int | None = None) -> None:
            self._send(Progress(job.job, message, percent))

        return Returned(job.job, tasks.TASKS[job.task](progress=progress, **job.arguments))

    def _parse(self, source: SourceText) -> Module:
        if self._module is None or self._module.source != source:
            previous = self._module if self._module and self._module.source.path == source.path else None
            self._module = engine.parse(source, previous)
        return self._module

    def _send(self, reply: Reply) -> None:
        messages.write(self._outgoing, reply)


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the server; what anything else in this process reads is empty, what it prints goes to stderr."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return incoming, outgoing


if __name__ == "__main__":
    main()
