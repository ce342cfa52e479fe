"""The process of one job: says what the machine can do, waits for the job, grades it, answers, ends."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import threading
from typing import Any

from .grade import Device, JobError, grade
from .protocol import Message, ProtocolError, decode, encode, failed


def main() -> int:
    """Do one job from stdin. Returns the exit status."""
    # Answers get a channel of their own: what a kernel or a compiler prints must not look like one.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(message: Message) -> None:
        answers.write(encode(message))

    devices, facts = _machine()
    say(facts)
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    try:
        job = decode(line)
    except ProtocolError as error:
        say(failed("", "bad job", str(error)))
        return 1
    say(_answer(job, devices, say))
    return 0


def _answer(job: Message, devices: dict[str, Device], say: Any) -> Message:
    identity = job.get("id")

    def progress(stage: str, done: int, total: int, message: str) -> None:
        say({"type": "progress", "id": identity, "stage": stage, "done": done, "total": total, "message": message})

    wanted = job.get("device", "auto")
    device = next(iter(devices.values()), None) if wanted == "auto" else devices.get(str(wanted))
    if device is None:
        have = ", ".join(devices) or "neither a GPU with torch and triton, nor tilewright with numpy to interpret"
        return failed(identity, "unsupported", f"the job wants device {wanted!r}; this machine has {have}")
    try:
        cases = grade(job, device, progress)
    except JobError as error:
        return failed(identity, error.failure, str(error), device.name)
    except MemoryError:
        return failed(identity, "out of memory", "the machine has too little memory", device.name)
    except Exception as error:
        return failed(identity, "launch", f"{type(error).__name__}: {error}", device.name)
    return {
        "type": "result", "id": identity, "status": "ok", "failure": "", "message": "", "device": device.name,
        "cases": cases,
    }  # fmt: skip


def _machine() -> tuple[dict[str, Device], Message]:
    """The devices by kind, the preferred first, and the message that describes them."""
    devices: dict[str, Device] = {}
    listed: list[Message] = []
    problem = ""
    if _found("torch") and _found("triton"):
        from .cuda import Cuda, load_torch

        try:
            torch = load_torch()
            if torch.cuda.is_available():
                gpu = Cuda(torch)
                devices["gpu"] = gpu
                listed.append({
                    "kind": "gpu", "name": gpu.name, "memory": int(gpu.properties.total_memory),
                    "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
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


def _end_with_the_worker() -> None:
    """The input ends when the worker dies; a job that nobody waits for must not hold the device."""
    while os.read(0, 1 << 16):  # below Python's buffers, where a waiting thread aborts the interpreter's shutdown
        pass
    os._exit(3)
