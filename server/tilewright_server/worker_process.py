"""The server's end of a worker process: start, talk, kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from tilewright_server import messages
from tilewright_server.messages import Reply, Request

# -P keeps the current folder off sys.path: a folder named tilewright_server in a workspace must not be run.
COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "tilewright_server.worker")


class WorkerEnded(Exception):
    """The process has ended by itself or was killed from outside; the message tells the exit status."""


class WorkerProcess:
    """One running worker. Its stderr is that of the server, so that its words reach the same log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    async def start() -> WorkerProcess:
        """Start a worker; it takes jobs at once and answers when it has loaded what it needs."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that `kill` also ends what the worker has started, such as a compiler
        )
        return WorkerProcess(process)

    @property
    def pid(self) -> int:
        """The process number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process is known to have ended."""
        return self._process.returncode is None

    def send(self, message: Request) -> None:
        """Send without waiting. What is sent to a dead worker is lost; `receive` then raises."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(messages.encode(message))

    async def receive(self) -> Reply:
        """The next message. Raises WorkerEnded."""
        assert self._process.stdout is not None
        try:
            return await messages.receive(self._process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            status = await self._process.wait()
            raise WorkerEnded(f"worker process {self.pid} ended with status {status}") from error

    async def kill(self) -> None:
        """End the process, and what it has started, now and whatever they do."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
