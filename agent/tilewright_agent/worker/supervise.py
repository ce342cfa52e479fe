"""The worker's own process: reads messages, hands one job after the other to the judge, and holds it to its limits.

Nothing that a job does can end the worker. All processes of a job are killed when it has ended, so memory that a kernel
corrupted and a device context that it broke go with it, and its folder is removed. A judge that comes to harm, or has
to be stopped, is replaced.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import IO

from .confine import adopt_orphans, close_memory, descendants, environment, resident
from .locks import DeviceLock
from .processes import Event, Judge, sweep
from .protocol import PROTOCOL, Message, ProtocolError, decode, encode, failed
from .scratch import Scratch

START_SECONDS = 180.0  # importing torch from a cold network disk can take minutes
DEFAULT_SECONDS = 300.0
MOST_SECONDS = 3600.0
LOOK_SECONDS = 0.25  # between looks at the memory of a job
MEMORY_SHARE = 0.9  # of the memory of the machine, for a job that names no limit

QUEUE_SECONDS = 2.0  # between words to a client that waits for the device
LOCK_SECONDS = 0.02  # between attempts to have the device


def serve(source: IO[bytes], sink: IO[bytes], command: Sequence[str]) -> int:
    """Greet, then do jobs from `source` until it ends; answers go to `sink`. `command` starts the judge."""
    return _Worker(source, sink, command).run()


def worker_command() -> list[str]:
    """The command that starts this worker, from an installed package as from an archive."""
    inside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.isfile(inside):  # the archive itself
        return [sys.executable, inside]
    return [sys.executable, "-m", __name__.rpartition(".")[0]]


class _Worker:
    def __init__(self, source: IO[bytes], sink: IO[bytes], command: Sequence[str]) -> None:
        self.sink, self.command = sink, command
        self.events: queue.Queue[Event] = queue.Queue()
        self.waiting: deque[Message] = deque()
        self.job: Message | None = None
        self.deadline = 0.0
        self.process: Judge | None = None
        self.device = ""
        self.source = source
        self.scratch: Scratch | None = None
        self.own = ""  # the folder of the judge
        self.folder = ""  # of the job that runs
        self.lock: DeviceLock | None = None
        self.told = 0.0  # when the client last heard that it has to wait

    def run(self) -> int:
        close_memory()
        adopt_orphans()
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
            if self.scratch is not None:
                self.scratch.close()
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
        try:
            self.scratch = Scratch()
        except OSError as error:
            hello["problem"] = f"there is no room for the files of jobs: {error.strerror or error} ({error.filename})"
            self._say(hello)
            return
        self.process = self._judge()
        try:
            _, _, line = self.events.get(timeout=START_SECONDS)
            ready = decode(line) if line is not None else {"problem": self.process.epitaph()}
        except queue.Empty:
            ready = {"problem": f"the process of the job did not start within {START_SECONDS:.0f} s"}
        except ProtocolError as error:
            ready = {"problem": f"the process of the job did not greet: {error}"}
        hello.update({key: ready[key] for key in hello if key in ready and key != "type"})
        devices: list[Message] = hello["devices"]
        first = devices[0] if devices else Message()
        self.device = str(first.get("name", ""))
        if first.get("lock"):
            self.lock = DeviceLock(str(first["lock"]))
        if hello["problem"]:
            self.process.kill()
            self.process = None
        self._say(hello)

    def _judge(self) -> Judge:
        assert self.scratch is not None
        if self.own:
            self.scratch.remove(self.own)
        self.own = own = self.scratch.make()  # the nursery compiles a little, too
        places = {"TMPDIR": own, "TEMP": own, "TMP": own, "TRITON_CACHE_DIR": own}
        return Judge(self.command, self.events, environment() | places)

    def _step(self) -> bool:
        """Handle one event; False ends the worker."""
        try:
            if self.job is not None:
                wait = max(0.0, min(LOOK_SECONDS, self.deadline - time.monotonic()))
            else:
                wait = LOCK_SECONDS if self.waiting else None
            kind, process, line = self.events.get(timeout=wait)
        except queue.Empty:
            if self.job is not None:
                self._look(self.deadline - time.monotonic())
            else:
                self._start()
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
        held, limit = resident(descendants(os.getpid())), self._memory(self.job)
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
        """Begin the next job, when the device is free."""
        if self.job is not None or not self.waiting:
            return
        if self.lock is not None and not self.lock.take():
            if time.monotonic() - self.told > QUEUE_SECONDS:
                self.told = time.monotonic()
                for job in self.waiting:
                    self._say(_queued(job, f"waiting for {self.device}, where another job runs"))
            return
        self.job = self.waiting.popleft()
        for job in self.waiting:
            self._say(_queued(job, f"waiting for another job on {self.device}"))
        self.deadline = time.monotonic() + self._limit(self.job)
        try:
            if self.process is None:
                self.process = self._judge()
            assert self.scratch is not None
            self.folder = self.scratch.make()
        except (OSError, AssertionError) as error:
            self._finish(failed(self.job["id"], "disk full", f"there is no folder for the files of the job: {error}"))
            return
        self.process.stderr.clear()
        own = {"scratch": self.folder, "memory": min(self._memory(self.job), 1 << 62)}
        self.process.send(encode({**self.job, **own}))

    @staticmethod
    def _limit(job: Message) -> float:
        value = job.get("seconds", DEFAULT_SECONDS)
        return min(float(value), MOST_SECONDS) if isinstance(value, int | float) and value > 0 else DEFAULT_SECONDS

    def _hear(self, process: Judge, line: bytes | None) -> None:
        if line is None:
            if self.job is not None:
                self._finish(failed(self.job["id"], "crash", process.epitaph()))
            else:
                self.process = None  # a judge died between jobs; the next job starts another
            return
        try:
            message = decode(line)
        except ProtocolError:
            return
        if self.job is None or message["type"] == "ready":
            return
        message["id"] = self.job["id"]
        if message["type"] == "result":
            if message.get("failure") == "crash":
                message["message"] = f"{message.get('message')}{process.tail()}"
            self._finish(message, message.pop("keep", None))
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

    def _finish(self, result: Message, keep: list[int] | None = None) -> None:
        """Answer the job, end its processes and remove its folder. `keep`: the judge goes on, with these processes."""
        result["device"] = result.get("device") or self.device
        if self.process is not None:
            if keep is None:
                self.process.kill()
                self.process = None
            else:
                sweep([self.process.process.pid, *keep])
        if self.scratch is not None and self.folder:
            self.scratch.remove(self.folder)
        if self.lock is not None:
            self.lock.give_back()
        self.job, self.folder = None, ""
        self._say(result)
        if self.process is None and self.scratch is not None:
            with contextlib.suppress(OSError):  # the next job tries again, and says why not
                self.process = self._judge()
        self._start()


def _queued(job: Message, message: str) -> Message:
    return {"type": "progress", "id": job["id"], "stage": "queue", "done": 0, "total": 1, "message": message}
