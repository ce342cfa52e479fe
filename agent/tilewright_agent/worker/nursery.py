"""Where the processes of kernels come from: a process that has imported what they need, and forks one for each.

Importing torch and triton takes seconds, a fork takes milliseconds, and after it nothing is shared. The nursery itself
never runs a kernel and never touches the device. Where there is no fork, each process is started anew.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from .candidate import Host, serve
from .channel import Channel
from .confine import close_memory, confine
from .protocol import Message, ProtocolError, decode, encode
from .terms import JobError

FORKS = sys.platform == "linux"


class Candidate:
    """The process of a kernel, as the judge has it."""

    def __init__(self, pid: int, channel: Channel, nursery: Nursery) -> None:
        self.pid, self.scratch = pid, ""
        self._channel, self._nursery = channel, nursery
        self.memory = 0
        self._ready = False

    def wait_ready(self) -> None:
        """Wait until it has a context on the device. Raises JobError."""
        if not self._ready:
            answer = self._receive()
            if answer.get("type") != "ready":
                raise JobError("crash", str(answer.get("message") or "the process for the kernel did not start"))
            self._ready = True

    def ask(self, request: Message) -> Message:
        """Send a request and wait for the answer. Raises JobError when the process is gone or answers nonsense."""
        self.wait_ready()
        if self.scratch:
            request, self.scratch = {**request, "scratch": self.scratch, "memory": self.memory}, ""
        with contextlib.suppress(OSError):  # the end of its answers says more
            self._channel.send(request)
        return self._receive()

    def kill(self) -> None:
        """Kill it; `end` waits for that."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
                kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and wait until the driver has let it go."""
        self._channel.close()
        self._nursery.bury(self.pid)

    def _receive(self) -> Message:
        try:
            answer = self._channel.receive()
        except ProtocolError as error:
            raise JobError("tampered", f"the process of the kernel answers with what is no message: {error}") from None
        except OSError:
            answer = None
        if answer is None:
            raise JobError("crash", f"the process of the kernel died ({_how(self._nursery.bury(self.pid))})")
        return answer


class Nursery:
    """Starts processes for kernels; `command` starts this worker."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._socket: socket.socket | None = None
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self.pid = 0
        if FORKS:
            mine, its = socket.socketpair()
            process = subprocess.Popen(
                [*self._command, "--nursery", str(its.fileno())], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
            its.close()
            self.pid, self._socket = process.pid, mine
            self._channel = Channel(mine.fileno(), mine.fileno())

    def start(self, kind: str) -> Candidate:
        """A new process for a "gpu" or an "interpreter", not yet ready. Raises JobError."""
        if self._socket is None:
            process = subprocess.Popen(
                [*self._command, "--candidate", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert process.stdin is not None and process.stdout is not None
            with process.stdin, process.stdout:  # the channel has descriptors of its own
                channel = Channel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
            self._started[process.pid] = process
            return Candidate(process.pid, channel, self)
        mine, its = socket.socketpair()
        try:
            socket.send_fds(self._socket, [encode({"type": "start", "kind": kind})], [its.fileno()])
            pid = int(self._answer()["pid"])
        except OSError as error:
            raise JobError("crash", f"no process for the kernel could be started: {error}") from None
        finally:
            its.close()
        descriptor = mine.detach()
        return Candidate(pid, Channel(descriptor, descriptor), self)

    def bury(self, pid: int) -> int | None:
        """Kill a process and what is in its group; how it ended (as `os.waitstatus_to_exitcode`), None if unknown."""
        if self._socket is None:
            process = self._started.pop(pid, None)
            if process is None:
                return None
            with contextlib.suppress(OSError):
                process.kill()
            return process.wait()
        try:
            self._channel.send({"type": "bury", "pid": pid})
            code = self._answer().get("code")
        except (OSError, JobError):
            return None
        return code if isinstance(code, int) else None

    def close(self) -> None:
        """Kill what was started without a fork; a process that was forked ends with the nursery."""
        for process in self._started.values():
            process.kill()

    def _answer(self) -> Message:
        answer = self._channel.receive()
        if answer is None or answer.get("type") != "done":
            raise JobError("crash", str((answer or {}).get("message") or "the process that starts kernels died"))
        return answer


def nursery_main(descriptor: int) -> int:
    """Serve the judge at a socket until it ends. Returns the exit status."""
    close_memory()
    connection = socket.socket(fileno=descriptor)
    channel = _Requests(connection)
    _prepare()
    codes: dict[int, int] = {}
    while (request := channel.receive()) is not None:
        message, descriptors = request
        if message["type"] == "start":
            (its,) = descriptors
            try:
                pid = os.fork()
            except OSError as error:
                os.close(its)
                channel.send({"type": "failed", "message": f"no process for the kernel could be started: {error}"})
                continue
            if pid == 0:
                connection.close()
                _child(its, str(message["kind"]))
            os.close(its)
            channel.send({"type": "done", "pid": pid})
        elif message["type"] == "bury":
            channel.send({"type": "done", "code": codes.get(_bury(int(message["pid"]), codes))})
    return 0


def candidate_main(kind: str) -> int:
    """The process of a kernel where there is no fork: requests on stdin, answers on stdout."""
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)
    if os.name == "posix":
        confine()
    serve(channel, _host(kind))
    return 0


class _Requests:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def receive(self) -> tuple[Message, list[int]] | None:
        """A request, which is short enough to come in one piece, and the descriptors that came with it."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.connection, 1 << 12, 1)
        except OSError:
            return None
        return (decode(data), list(descriptors)) if data else None

    def send(self, message: Message) -> None:
        self.connection.sendall(encode(message))


def _child(descriptor: int, kind: str) -> None:
    """Become the process of a kernel; never returns."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        confine()
        channel = Channel(descriptor, descriptor)
        try:
            host = _host(kind)
        except Exception as error:
            channel.send({"type": "failed", "message": f"{type(error).__name__}: {error}"})
            raise
        serve(channel, host)
        code = 0
    finally:
        os._exit(code)


def _host(kind: str) -> Host:
    if kind == "gpu":
        from .cuda_host import CudaHost
        from .torches import load_torch

        return CudaHost(load_torch())
    from .interpreter_host import InterpreterHost

    return InterpreterHost()


def _prepare() -> None:
    """Import what kernels need, without touching the device: a fork does not carry a context over."""
    for name in ("torch", "triton", "numpy", "tilewright.frontend", "tilewright.expand", "tilewright.interpret"):
        with contextlib.suppress(Exception):  # what is missing or broken is said by the judge, which needs it too
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        from .torches import load_torch

        if load_torch().version.cuda:
            # Compiles a small library, which would otherwise be done in the folder of each job.
            driver: Any = importlib.import_module("triton.backends.nvidia.driver")
            driver.CudaUtils()
    for name in ("cuda_host", "interpreter_host"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{__package__}.{name}")


def _bury(pid: int, codes: dict[int, int]) -> int:
    if pid not in codes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return pid


def _how(code: int | None) -> str:
    if code is None:
        return "it cannot be told how"
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
