"""A connection to a worker: any command whose stdin and stdout reach one, such as `ssh gpu-box tilewright-worker`."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import cast

from tilewright_agent.worker.protocol import PROTOCOL, Message, ProtocolError, decode, encode

LOCAL = "local"
GREETING_SECONDS = 240.0  # an ssh login and importing torch
GRACE_SECONDS = 15.0  # a worker that should have answered
_NOISE_LINES = 50  # what a login shell may print before the worker speaks


class ConnectionFailed(Exception):
    """The worker cannot be used; the message says what happened and what to do.

    `code` is "connection" or one of `worker.protocol.FAILURES`.
    """

    def __init__(self, message: str, code: str = "connection") -> None:
        super().__init__(message)
        self.code = code


class Cancelled(Exception):
    """The caller asked to stop."""


def worker_command(runner: str) -> list[str]:
    """The command of a runner: `local` is a worker of this Python, anything else a command line.

    Raises ConnectionFailed for an empty or unbalanced command line.
    """
    if runner.strip() == LOCAL:
        return [sys.executable, "-m", "tilewright_agent.worker"]
    try:
        command = shlex.split(runner, posix=os.name == "posix")
    except ValueError as error:
        raise ConnectionFailed(f"the runner {runner!r} is no command line: {error}") from None
    if not command:
        raise ConnectionFailed("the runner is empty; use 'local' or a command such as 'ssh gpu-box tilewright-worker'")
    return command


class Connection:
    """A worker that has greeted. Use as a context manager; leaving it ends the worker.

    `hello` is the worker's greeting (`worker.protocol`).
    """

    def __init__(self, command: Sequence[str], cancelled: Callable[[], bool] | None = None) -> None:
        self.command = list(command)
        self._cancelled = cancelled or (lambda: False)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._outgoing: queue.Queue[bytes | None] = queue.Queue()
        self._stderr: deque[bytes] = deque(maxlen=20)
        self._noise: list[bytes] = []  # what came before the greeting
        try:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                # Nobody is there to answer a question: ssh is to fail instead.
                env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"}, start_new_session=os.name == "posix",
            )  # fmt: skip
        except OSError as error:
            raise ConnectionFailed(f"cannot start `{self._name}`: {error.strerror or error}") from None
        self._drain = threading.Thread(target=self._read_stderr, daemon=True)
        self._drain.start()
        threading.Thread(target=self._read_stdout, daemon=True).start()
        threading.Thread(target=self._write_stdin, daemon=True).start()
        try:
            self.hello = self._greeting()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def returncode(self) -> int | None:
        """How the command ended; None while it runs."""
        return self._process.poll()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the worker offers: "run" on a GPU, "interpret"."""
        found = self.hello.get("capabilities")
        return tuple(map(str, cast("list[object]", found))) if isinstance(found, list) else ()

    def request(self, job: Message, on_progress: Callable[[Message], None] | None = None) -> Message:
        """Send a job and return its result.

        Raises ConnectionFailed when the worker is lost, Cancelled when asked to stop.
        """
        self._send(job)
        deadline = time.monotonic() + float(job.get("seconds", 300.0)) + GRACE_SECONDS
        while True:
            try:
                line = self._next(deadline)
            except Cancelled:
                # The worker kills the job; its answer carries an id that later requests ignore.
                self._send({"type": "cancel", "id": job["id"]})
                raise
            if line is None:
                raise ConnectionFailed(
                    f"`{self._name}` did not answer within {job.get('seconds', 300):g} s and has not kept its own "
                    "time limit; is the machine suspended or the network gone?", "timeout",
                )  # fmt: skip
            try:
                message = decode(line)
            except ProtocolError as error:
                raise ConnectionFailed(
                    f"`{self._name}` sent something that is no message, so its results cannot be trusted: {error}"
                ) from None
            if message["type"] == "error":
                raise ConnectionFailed(f"the worker refused a message: {message.get('message')}")
            if message.get("id") != job["id"]:
                continue
            if message["type"] == "progress":
                if message.get("stage") == "queue":  # its time begins when the device is free
                    deadline = time.monotonic() + float(job.get("seconds", 300.0)) + GRACE_SECONDS
                if on_progress is not None:
                    on_progress(message)
            elif message["type"] == "result":
                return message

    def close(self) -> None:
        """End the worker: closing its input is the polite way, then it is killed."""
        self._outgoing.put(None)
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            if os.name == "posix":
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
            self._process.wait()

    @property
    def _name(self) -> str:
        return shlex.join(self.command)

    def _greeting(self) -> Message:
        deadline = time.monotonic() + GREETING_SECONDS
        while True:
            line = self._next(deadline)
            if line is None:
                late = f"`{self._name}` did not greet within {GREETING_SECONDS:.0f} s"
                raise ConnectionFailed(late + self._said(), "timeout")
            try:
                message = decode(line)
            except ProtocolError:
                self._noise.append(line)
                if len(self._noise) > _NOISE_LINES:
                    stranger = f"`{self._name}` is no worker: it printed {len(self._noise)} lines without a greeting"
                    raise ConnectionFailed(stranger + self._said()) from None
                continue
            if message["type"] != "hello":
                raise ConnectionFailed(f"`{self._name}` began with {message['type']!r} instead of a greeting")
            if message.get("protocol") != PROTOCOL:
                raise ConnectionFailed(
                    f"`{self._name}` speaks protocol {message.get('protocol')}, this Tilewright speaks {PROTOCOL}: "
                    "install the same version of tilewright on both machines", "protocol",
                )  # fmt: skip
            if message.get("problem"):
                problem = f"`{self._name}` started, but cannot run kernels: {message['problem']}"
                raise ConnectionFailed(problem, "unsupported")
            return message

    def _next(self, deadline: float) -> bytes | None:
        """The next line, None at the deadline. Raises Cancelled, and ConnectionFailed when the worker has ended."""
        while True:
            if self._cancelled():
                raise Cancelled
            try:
                line = self._lines.get(timeout=max(0.0, min(0.1, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return None
                continue
            if line is not None:
                return line
            self._drain.join(1.0)
            raise ConnectionFailed(f"lost the worker `{self._name}` ({self._ending()}){self._said()}")

    def _ending(self) -> str:
        try:
            code = self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if code < 0:
            try:
                return f"killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"killed by signal {-code}"
        hint = {127: ": command not found", 255: ": ssh could not connect"}.get(code, "")
        return f"exit status {code}{hint}"

    def _said(self) -> str:
        text = b"".join([*self._noise[-5:], *self._stderr]).decode("utf-8", "replace").strip()
        return f"; it said:\n{text[-1500:]}" if text else ""

    def _send(self, message: Message) -> None:
        self._outgoing.put(encode(message))

    def _write_stdin(self) -> None:
        """In a thread of its own: a command that does not read must not hold the caller, who may want to cancel."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the end of its output says more about why
            while (line := self._outgoing.get()) is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            self._process.stdin.close()

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._stderr.append(line)
