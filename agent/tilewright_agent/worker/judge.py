"""The process that judges kernels: says what the machine can do, then grades one job after the other.

It runs nothing that a client sends: the kernel of a job has a process of its own (`candidate`), from the `nursery`. The
next such process is made ready while a job is compiled, so that the next job need not wait for it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .confine import close_memory
from .device import Device
from .grade import JobError, grade
from .nursery import Candidate, Nursery
from .profile import profile
from .program import Ask
from .protocol import Message, ProtocolError, decode, encode, failed

NO_DEVICE = "neither a GPU with torch and triton, nor tilewright with numpy to interpret"


def main(command: list[str]) -> int:
    """Grade jobs from stdin until it ends. `command` starts this worker. Returns the exit status."""
    # Answers get a channel of their own: what a compiler prints must not look like one.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    close_memory()
    nursery = Nursery(command)
    devices, facts = _machine()

    def say(message: Message) -> None:
        answers.write(encode(message))

    judge = _Judge(devices, nursery, say, command)
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(lines, nursery), daemon=True).start()
    judge.prepare()
    say(facts)
    while True:
        try:
            job = decode(lines.get())
        except ProtocolError as error:
            say(failed("", "bad job", str(error)))
            continue
        say(judge.answer(job))


class _Judge:
    def __init__(
        self, devices: dict[str, Device], nursery: Nursery, say: Callable[[Message], None], command: Sequence[str]
    ) -> None:
        self.devices, self.nursery, self.say, self.command = devices, nursery, say, command
        self.spare: tuple[str, Candidate] | None = None
        self.dying: list[Candidate] = []

    def prepare(self) -> None:
        """Have a process for the preferred device made ready."""
        if self.devices:
            kind = next(iter(self.devices))
            self.spare = (kind, self.nursery.start(kind))

    def answer(self, job: Message) -> Message:
        """Grade a job. The answer's "keep" has the processes that live on; without it the judge is of no more use."""
        identity = job.get("id")
        wanted = job.get("device", "auto")
        kind = next(iter(self.devices), "") if wanted == "auto" else str(wanted)
        device = self.devices.get(kind)
        if device is None:
            have = ", ".join(self.devices) or NO_DEVICE
            text = f"the job wants device {wanted!r}; this machine has {have}"
            return failed(identity, "unsupported", text) | {"keep": self._kept()}
        started: list[Candidate] = []
        device.folder = str(job.get("scratch") or "")

        def start() -> Ask:
            candidate = self._take(kind)
            started.append(candidate)
            candidate.scratch, candidate.memory = str(job.get("scratch") or ""), int(job.get("memory") or 0)
            if self.spare is None:
                with contextlib.suppress(JobError):  # the next job tries again, and says why not
                    self.spare = (kind, self.nursery.start(kind))
            return candidate.ask

        def progress(stage: str, done: int, total: int, message: str) -> None:
            if stage == "time":  # neither the end of other processes nor the beginning may disturb a measurement
                self._bury()
                self._await_spare()
            self.say({
                "type": "progress", "id": identity, "stage": stage, "done": done, "total": total, "message": message,
            })  # fmt: skip

        result: Message
        try:
            result = {
                "type": "result", "id": identity, "status": "ok", "failure": "", "message": "", "device": device.name,
                "cases": grade(job, device, start, progress),
            }  # fmt: skip
        except Exception as error:
            known = device.failure(error) if not isinstance(error, JobError) else error
            result = failed(identity, known.failure, str(known), device.name)
        self._bury()
        for candidate in started:
            candidate.kill()
            self.dying.append(candidate)
        try:
            device.release()
            device.synchronize()
        except Exception:  # the context of this process has gone with that of the kernel
            return result
        if job.get("profile") and device.runs_code and result["status"] == "ok":
            progress("profile", 0, 1, "profiling")
            result["profile"] = profile(job, self.command, device.folder)
        return result | {"keep": self._kept()}

    def _bury(self) -> None:
        for candidate in self.dying:
            candidate.end()
        self.dying.clear()

    def _take(self, kind: str) -> Candidate:
        """A process that is ready. Raises JobError."""
        if self.spare is not None and self.spare[0] == kind:
            self._await_spare()
        if self.spare is not None and self.spare[0] == kind:
            (_, candidate), self.spare = self.spare, None
            return candidate
        candidate = self.nursery.start(kind)
        try:
            candidate.wait_ready()
        except JobError:
            candidate.end()
            raise
        return candidate

    def _await_spare(self) -> None:
        """Wait for the spare process; one that could not begin, as for lack of memory, is no harm to a job."""
        if self.spare is None:
            return
        try:
            self.spare[1].ask({"type": "forget"})  # waits until it is ready, and shows whether it still lives
        except JobError:
            self.spare[1].end()
            self.spare = None

    def _kept(self) -> list[int]:
        return [pid for pid in (self.nursery.pid, self.spare[1].pid if self.spare is not None else 0) if pid]


def _read(lines: queue.Queue[bytes], nursery: Nursery) -> None:
    """Jobs, from below Python's buffers, where a waiting thread aborts the interpreter's shutdown.

    The input ends when the worker dies; a job that nobody waits for must not hold the device.
    """
    pieces: list[bytes] = []
    while block := os.read(0, 1 << 16):
        first, *others = block.split(b"\n")
        pieces.append(first)
        for piece in others:
            lines.put(b"".join(pieces))
            pieces = [piece]
    nursery.close()
    os._exit(3)


def _machine() -> tuple[dict[str, Device], Message]:
    """The devices by kind, the preferred first, and the message that describes them."""
    devices: dict[str, Device] = {}
    listed: list[Message] = []
    problem = ""
    if _found("torch") and _found("triton"):
        from .cuda import Cuda
        from .torches import load_torch

        try:
            torch = load_torch()
            if torch.cuda.is_available():
                gpu = Cuda(torch)
                devices["gpu"] = gpu
                listed.append({
                    "kind": "gpu", "name": gpu.name, "memory": int(gpu.properties.total_memory),
                    "capability": ".".join(map(str, torch.cuda.get_device_capability(0))), "lock": _lock_name(gpu),
                })  # fmt: skip
        except Exception as error:
            problem = f"torch is installed but does not work: {type(error).__name__}: {error}"
    if _found("tilewright") and _found("numpy"):
        from .interpreter import Interpreter

        interpreter = Interpreter()
        devices["interpreter"] = interpreter
        listed.append({"kind": "interpreter", "name": interpreter.name})
    if not devices and not problem:
        problem = (
            f"{sys.executable} finds neither a GPU with torch and triton, nor tilewright and numpy: "
            "pip install 'tilewright[gpu]' there, or start the worker with the Python that has them"
        )
    versions = {"python": platform.python_version()}
    for package in ("torch", "triton", "numpy", "tilewright"):
        if _found(package):
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = "unknown"
    capabilities = [c for c, kind in (("run", "gpu"), ("interpret", "interpreter")) if kind in devices]
    facts: Message = {
        "type": "ready", "devices": listed, "versions": versions, "capabilities": capabilities,
        "problem": "" if devices else problem,
    }  # fmt: skip
    return devices, facts


def _found(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _lock_name(gpu: Any) -> str:
    """What tells this GPU from the others of the machine, for all workers alike."""
    properties = gpu.properties
    found = getattr(properties, "uuid", "") or f"{properties.name} {os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"
    return "".join(c if c.isalnum() else "-" for c in str(found))
