"""The queue of kernels to verify, and the one worker process that takes them in turn.

A job whose result is no longer wanted is cancelled: the worker is asked to stop, and killed when it does not. A worker
that dies is replaced and its job tried once more; a kernel that kills it twice, or takes too long, is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.source import SourceText
from tilewright_server.messages import Cancel, Check, Checked, Decided, Failed, Reply
from tilewright_server.worker_process import WorkerEnded, WorkerProcess

log = logging.getLogger(__name__)

ATTEMPTS = 2
TIME_LIMIT_S = 120.0
CANCEL_GRACE_S = 0.5
NO_VERDICT = "An error in Tilewright kept the verdict from being shown; see the log of the server."


@dataclass(eq=False, slots=True)
class Job:
    """One kernel of one text: `unit` is its number there, `key` what the owner of the job knows it by."""

    key: object
    source: SourceText
    unit: int
    name: str
    target: str
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Started:
    """A job begins, or begins again after a crash: what was decided before counts no longer."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A job has ended without a verdict; the message is for a person."""

    message: str


Event = Started | Decided | Checked | GivenUp


class Verifier:
    """Runs jobs one after another; `on_event` is called on the event loop, never for a cancelled job."""

    def __init__(self, on_event: Callable[[Job, Event], None], on_crash: Callable[[str], None] = log.warning) -> None:
        self._on_event = on_event
        self._on_crash = on_crash
        self._queue: deque[Job] = deque()
        self._current: Job | None = None
        self._arrived = asyncio.Event()
        self._worker: WorkerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._count = 0

    def start(self) -> None:
        """Start the worker, so that it has loaded the verifier when the first job comes. Needs a running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs, in this order, before those that wait already: the newest belong to what a person edits now."""
        self.start()
        self._queue.extendleft(reversed(jobs))
        self._arrived.set()

    def cancel(self, unwanted: Callable[[Job], bool]) -> None:
        """Drop the jobs, waiting or running, that are no longer wanted."""
        for job in [*self._queue, *([self._current] if self._current else [])]:
            if unwanted(job):
                job.cancelled.set()
        self._queue = deque(job for job in self._queue if not job.cancelled.is_set())

    def pending(self) -> list[Job]:
        """The jobs that wait or run."""
        running = [self._current] if self._current and not self._current.cancelled.is_set() else []
        return [*running, *self._queue]

    async def close(self) -> None:
        """Stop everything and end the worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._worker is not None:
            await self._worker.kill()

    async def _serve(self) -> None:
        while True:
            try:
                await self._ensure_worker()
                while not self._queue:
                    self._arrived.clear()
                    await self._arrived.wait()
                self._current = self._queue.popleft()
                await self._run(self._current)
            except asyncio.CancelledError:
                raise
            except Exception:  # the queue must outlive any single job
                log.exception("verification of %s failed", self._current.name if self._current else "nothing")
                if self._current is not None:
                    self._tell(self._current, GivenUp(NO_VERDICT))
                await asyncio.sleep(0.5)
            finally:
                self._current = None

    async def _run(self, job: Job) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            self._tell(job, Started())
            try:
                await self._attempt(job)
                return
            except WorkerEnded as end:
                self._worker = None
                if job.cancelled.is_set():
                    return
                self._on_crash(
                    f"The verifier stopped unexpectedly while checking {job.name} ({end}); it is started again."
                )
                if attempt == ATTEMPTS:
                    text = f"The verifier stopped unexpectedly {ATTEMPTS} times on kernel {job.name} ({end})."
                    self._tell(job, GivenUp(f"{text} This is an error in Tilewright, not in the kernel."))

    async def _attempt(self, job: Job) -> None:
        """Send the job and pass on what the worker says. Raises WorkerEnded."""
        worker = await self._ensure_worker()
        self._count += 1
        number = self._count
        worker.send(Check(number, job.source, job.unit, job.target))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIME_LIMIT_S
        cancelled = asyncio.ensure_future(job.cancelled.wait())
        receiving = asyncio.ensure_future(worker.receive())
        try:
            while True:
                waiting = {receiving} if cancelled.done() else {receiving, cancelled}
                await asyncio.wait(waiting, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
                if receiving.done():
                    reply = receiving.result()
                    if reply.job == number and self._finished(job, reply):
                        return
                    receiving = asyncio.ensure_future(worker.receive())
                elif cancelled.done() and loop.time() < deadline - CANCEL_GRACE_S:
                    worker.send(Cancel(number))
                    deadline = loop.time() + CANCEL_GRACE_S
                elif loop.time() >= deadline:
                    await self._replace_worker()
                    limit = f"Checking {job.name} took longer than {TIME_LIMIT_S:.0f} s and was stopped."
                    self._tell(job, GivenUp(f"{limit} Smaller tiles or fewer stages make it easier."))
                    return
        finally:
            cancelled.cancel()
            receiving.cancel()

    def _finished(self, job: Job, reply: Reply) -> bool:
        match reply:
            case Decided():
                self._tell(job, reply)
                return False
            case Checked():
                self._tell(job, reply)
                return True
            case Failed(message=message, expected=True):
                self._tell(job, GivenUp(f"{job.name} was not checked: {message}"))
                return True
            case Failed(message=message, details=details):
                log.error("the verifier failed on kernel %s: %s\n%s", job.name, message, details)
                text = f"The verifier failed on kernel {job.name}: {message}."
                self._tell(job, GivenUp(f"{text} This is an error in Tilewright, not in the kernel."))
                return True
            case _:
                return False

    def _tell(self, job: Job, event: Event) -> None:
        if not job.cancelled.is_set():
            self._on_event(job, event)

    async def _ensure_worker(self) -> WorkerProcess:
        if self._worker is None or not self._worker.alive:
            self._worker = await WorkerProcess.start()
            log.info("worker process %d started", self._worker.pid)
        return self._worker

    async def _replace_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            log.info("worker process %d killed", worker.pid)
            await worker.kill()
        await self._ensure_worker()
