"""The worker's own process: reads messages, gives each job a fresh process with a time limit, passes results on.

Nothing that a job does can end the worker. A job process is started ahead of the job (importing torch takes seconds),
does one job and is then killed, so memory that a kernel corrupted and a device context that it broke go with it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, Any

from .protocol import PROTOCOL, Message, ProtocolError, decode, encode, failed

START_SECONDS = 180.0  # importing torch from a cold network disk can take minutes
KILL_SECONDS = 10.0
DEFAULT_SECONDS = 300.0
MOST_SECONDS = 3600.0
LOOK_SECONDS = 0.25  # between looks at the memory of a job
MEMORY_SHARE = 0.9  # of the memory of the machine, for a job that names no limit

Event = tuple[str, Any, bytes | None]


def serve(source: IO[bytes], sink: IO[bytes], command: Sequence[str]) -> int:
    """Greet, then do jobs from `source` until it ends; answers go to `sink`. `command` starts the process of a job."""
    return _Worker(source, sink, command).run()


def job_command() -> list[str]:
    """The command that starts this worker's job process, from an installed package as from an archive."""
    inside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.isfile(inside):  # the archive itself
        return [sys.executable, inside, "--job"]
    return [sys.executable, "-m", __name__.rpartition(".")[0], "--job"]


class _Process:
    """The process of one job, with threads that turn its output into events."""

    def __init__(self, command: Sequence[str], events: queue.Queue[Event]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
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
        """End the process and what it started."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        # A driver that tears down a hung kernel may hold the process for a while; the client need not wait for that.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)

    def resident(self) -> int:
        """Bytes of memory that the process holds; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

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
        tail = b"".join(self.stderr).decode("utf-8", "replace").strip()
        return f"the process of the job died ({how})" + (f"; its last words:\n{tail[-2000:]}" if tail else "")

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


class _Worker:
    def __init__(self, source: IO[bytes], sink: IO[bytes], command: Sequence[str]) -> None:
        self.sink, self.command = sink, command
        self.events: queue.Queue[Event] = queue.Queue()
        self.waiting: deque[Message] = deque()
        self.job: Message | None = None
        self.deadline = 0.0
        self.process: _Process | None = None
        self.device = ""
        self.source = source

    def run(self) -> int:
        try:
            self._greet()
            threading.Thread(target=self._read_client, daemon=True).start()
            while self._step():
                pass
        except BrokenPipeError:
            pass  # the client has gone
        finally:
            if self.process is not None:
                self.process.kill()
        return 0

    def _read_client(self) -> None:
        # Below Python's buffers: a thread that waits inside one aborts the interpreter when it shuts down.
        pieces: list[bytes] = []
        while block := os.read(self.source.fileno(), 1 << 16):
            first, *others = block.split(b"\n")
            pieces.append(first)
            for piece in others:
                self.events.put(("client", None, b"".join(pieces)))
                pieces = [piece]
        self.events.put(("client", None, None))

    def _say(self, message: Message) -> None:
        self.sink.write(encode(message))
        self.sink.flush()

    def _greet(self) -> None:
        hello: Message = {
            "type": "hello", "protocol": PROTOCOL, "host": socket.gethostname(), "devices": [], "versions": {},
            "capabilities": [], "problem": "",
        }  # fmt: skip
        self.process = _Process(self.command, self.events)
        try:
            _, _, line = self.events.get(timeout=START_SECONDS)
            ready = decode(line) if line is not None else {"problem": self.process.epitaph()}
        except queue.Empty:
            ready = {"problem": f"the process of the job did not start within {START_SECONDS:.0f} s"}
        except ProtocolError as error:
            ready = {"problem": f"the process of the job did not greet: {error}"}
        hello.update({key: ready[key] for key in hello if key in ready and key != "type"})
        self.device = next((d["name"] for d in hello["devices"]), "")
        if hello["problem"]:
            self.process.kill()
            self.process = None
        self._say(hello)

    def _step(self) -> bool:
        """Handle one event; False ends the worker."""
        try:
            wait = None if self.job is None else max(0.0, min(LOOK_SECONDS, self.deadline - time.monotonic()))
            kind, process, line = self.events.get(timeout=wait)
        except queue.Empty:
            self._look(self.deadline - time.monotonic())
            return True
        if kind == "process":
            if process is self.process:  # what a process that was killed still says is of no interest
                self._hear(process, line)
            return True
        if line is None:
            return False
        return self._obey(line)

    def _obey(self, line: bytes) -> bool:
        try:
            message = decode(line)
        except ProtocolError as error:
            self._say({"type": "error", "message": str(error)})
            return True
        match message["type"]:
            case "shutdown":
                return False
            case "cancel":
                self._cancel(message.get("id"))
            case "job":
                self._accept(message)
            case other:
                self._say({"type": "error", "message": f"no message of type {other!r} in protocol {PROTOCOL}"})
        return True

    def _look(self, left: float) -> None:
        """Stop a job that takes too long, or too much of the memory that others on this machine need too."""
        assert self.job is not None
        if left <= 0:
            self._finish(failed(self.job["id"], "timeout", f"stopped after the limit of {self._limit(self.job):g} s"))
            return
        held, limit = self.process.resident() if self.process is not None else 0, self._memory(self.job)
        if held > limit:
            text = f"stopped at {held / 1e9:.1f} GB of the machine's memory; the limit is {limit / 1e9:.1f} GB"
            self._finish(failed(self.job["id"], "out of memory", text))

    @staticmethod
    def _memory(job: Message) -> float:
        """The limit in bytes."""
        value = job.get("memory")
        if isinstance(value, int | float) and value > 0:
            return float(value)
        try:
            return MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return float("inf")

    def _accept(self, job: Message) -> None:
        if not isinstance(job.get("id"), str):
            self._say({"type": "error", "message": "a job needs an id, a string"})
        elif job.get("protocol") != PROTOCOL:
            self._say(failed(job["id"], "protocol", (
                f"the job is of protocol {job.get('protocol')}, this worker speaks {PROTOCOL}: "
                "install the same version of tilewright on both machines"
            )))  # fmt: skip
        else:
            self.waiting.append(job)
            self._start()

    def _start(self) -> None:
        if self.job is not None or not self.waiting:
            return
        self.job = self.waiting.popleft()
        self.deadline = time.monotonic() + self._limit(self.job)
        if self.process is None:
            self.process = _Process(self.command, self.events)
        self.process.send(encode(self.job))

    @staticmethod
    def _limit(job: Message) -> float:
        value = job.get("seconds", DEFAULT_SECONDS)
        return min(float(value), MOST_SECONDS) if isinstance(value, int | float) and value > 0 else DEFAULT_SECONDS

    def _hear(self, process: _Process, line: bytes | None) -> None:
        if line is None:
            if self.job is not None:
                self._finish(failed(self.job["id"], "crash", process.epitaph()))
            else:
                self.process = None  # a spare process died; the next job starts another
            return
        try:
            message = decode(line)
        except ProtocolError:
            return
        if self.job is None or message["type"] == "ready":
            return
        message["id"] = self.job["id"]
        if message["type"] == "result":
            self._finish(message)
        elif message["type"] == "progress":
            self._say(message)

    def _cancel(self, identity: object) -> None:
        if self.job is not None and self.job["id"] == identity:
            self._finish(failed(identity, "cancelled", "cancelled while it ran"))
            return
        for job in self.waiting:
            if job["id"] == identity:
                self.waiting.remove(job)
                self._say(failed(identity, "cancelled", "cancelled before it started"))
                return

    def _finish(self, result: Message) -> None:
        """Answer the job, throw its process away and keep another ready."""
        result["device"] = result.get("device") or self.device
        if self.process is not None:
            self.process.kill()
        self.job, self.process = None, None
        self._say(result)
        self.process = _Process(self.command, self.events)
        self._start()
