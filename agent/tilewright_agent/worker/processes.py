"""The processes below a worker: the judge, and what becomes of all others when a job has ended."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .confine import descendants, kill_all

KILL_SECONDS = 10.0
_ROUNDS = 50  # of killing what was started meanwhile

Event = tuple[str, Any, bytes | None]


def sweep(keep: Sequence[int]) -> None:
    """Kill all processes below this one but those to keep.

    A process that a job left behind has this worker for a parent once its own has ended (`confine.adopt_orphans`).
    """
    killed = set[int]()  # a driver may hold a process for a while before it goes
    for _ in range(_ROUNDS):
        strays = {pid for pid in descendants(os.getpid()) if pid not in keep}
        kill_all(strays)
        if strays <= killed:
            return
        killed |= strays


class Judge:
    """The process that judges, with threads that turn its output into events."""

    def __init__(self, command: Sequence[str], events: queue.Queue[Event], environ: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
        )  # fmt: skip
        self.stderr: deque[bytes] = deque(maxlen=40)
        self._errors = threading.Thread(target=self._drain, daemon=True)
        self._errors.start()
        threading.Thread(target=self._read, args=(events,), daemon=True).start()

    def send(self, line: bytes) -> None:
        """Hand the job over, without waiting: a process that hangs before it reads must not hold the worker."""
        threading.Thread(target=self._write, args=(line,), daemon=True).start()

    def kill(self) -> None:
        """End the process and all that is below this worker."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        sweep([])
        # A driver that tears down a hung kernel may hold the process for a while; the client need not wait for that.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)

    def tail(self) -> str:
        """The last of what the processes of the job wrote to stderr."""
        text = b"".join(self.stderr).decode("utf-8", "replace").strip()
        return f"; its last words:\n{text[-2000:]}" if text else ""

    def epitaph(self) -> str:
        """How the process ended, and the last of what it wrote to stderr."""
        try:
            code = self.process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the process of the job closed its output and did not end"
        self._errors.join(1.0)
        how = f"exit status {code}"
        if code < 0:
            try:
                how = f"signal {signal.Signals(-code).name}"
            except ValueError:
                how = f"signal {-code}"
        return f"the process of the job died ({how})" + self.tail()

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        # A process that has died shows by its exit event, so a broken pipe is no error here.
        with contextlib.suppress(OSError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def _read(self, events: queue.Queue[Event]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put(("process", self, line))
        events.put(("process", self, None))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr.append(line)
