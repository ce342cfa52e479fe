"""Grading in tests: a judge here, and the kernel's side in this process or, as in a worker, in one of its own."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agent import fake_torch
from tilewright_agent.worker.candidate import Host, Session, serve
from tilewright_agent.worker.channel import Channel
from tilewright_agent.worker.confine import confine
from tilewright_agent.worker.cuda import Cuda
from tilewright_agent.worker.cuda_host import CudaHost
from tilewright_agent.worker.device import Device
from tilewright_agent.worker.grade import grade
from tilewright_agent.worker.nursery import Candidate

Message = dict[str, Any]


def nothing(*_: Any) -> None:
    """Progress that nobody looks at."""


def beside(host: Callable[[], Host]) -> Callable[[], Callable[[Message], Message]]:
    """Starts kernels in this process, with everything that is said going through JSON."""

    def start() -> Callable[[Message], Message]:
        session = Session(host())
        return lambda request: json.loads(json.dumps(session.answer(json.loads(json.dumps(request)))))

    return start


def graded_here(job: Message, device: Device, host: Callable[[], Host]) -> list[Message]:
    device.folder = tempfile.gettempdir()
    return grade(job, device, beside(host), nothing)


def graded_on_fake(job: Message, device: Device | None = None) -> list[Message]:
    """On the stand-in for torch."""
    return graded_here(job, device or Cuda(fake_torch), lambda: CudaHost(fake_torch))


class _Grave:
    """The nursery's part: how a process ended."""

    def bury(self, pid: int) -> int | None:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:
            return None


@contextmanager
def separate(host: Callable[[], Host], scratch: str, *, confined: bool = False) -> Iterator[Callable[[], Any]]:
    """Starts kernels in processes of their own, which are gone afterwards."""
    started: list[Candidate] = []

    def start() -> Callable[[Message], Message]:
        mine, its = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                faulthandler.disable()  # kernels that crash do so on purpose
                mine.close()
                os.setsid()
                if confined:
                    confine()
                serve(Channel(its.fileno(), its.fileno()), host())
            finally:
                os._exit(0)
        its.close()
        descriptor = mine.detach()
        candidate = Candidate(pid, Channel(descriptor, descriptor), _Grave())  # type: ignore[arg-type]
        candidate.scratch = scratch
        started.append(candidate)
        return candidate.ask

    try:
        yield start
    finally:
        for candidate in started:
            with suppress(ProcessLookupError):
                os.killpg(candidate.pid, 9)
            candidate.end()
