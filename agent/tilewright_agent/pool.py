"""Several runners that share one queue of kernels to run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.frontend import KernelUnit
from tilewright_agent.runner import Runner, RunResult
from tilewright_agent.transport import Cancelled, ConnectionFailed
from tilewright_analysis.perf.shapes import Sizes

ATTEMPTS = 2  # a run that loses its worker this often is given up; it may be the kernel that takes the worker down


@dataclass
class Work:
    """One kernel to run. `number` is the caller's; `shapes` None are small default ones."""

    number: int
    unit: KernelUnit
    shapes: Sequence[Sizes] | None
    measured: int
    attempts: int = field(default=0)


class Pool:
    """Open runners, each with a thread that takes work. Use as a context manager; leaving it stops all runs.

    Raises ConnectionFailed when no runner can be reached, and Cancelled. `notes` say which ones could not be, and which
    were lost.
    """

    def __init__(self, runners: Sequence[str], cancelled: Callable[[], bool]) -> None:
        self.notes: list[str] = []
        self._stop = threading.Event()
        self._cancelled = lambda: self._stop.is_set() or cancelled()
        self._work: queue.Queue[Work | None] = queue.Queue()
        self._done: queue.Queue[tuple[Work, RunResult] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._sessions: list[Runner] = []
        failures = self._open(runners)
        if not self._sessions:
            if cancelled():
                raise Cancelled
            raise ConnectionFailed("; ".join(failures) or "there are no runners")
        self.notes += [f"Not used: {failure}" for failure in failures]
        self.has_gpu = self._sessions[0].has_gpu
        self.devices = list(dict.fromkeys(session.device for session in self._sessions))
        self.versions = list(dict.fromkeys(tuple(sorted(s.versions.items())) for s in self._sessions))
        self.size = self._alive = len(self._sessions)
        self._threads = [
            threading.Thread(target=self._serve, args=(runner, session), daemon=True)
            for runner, session in zip(self._names, self._sessions, strict=True)
        ]

    def __enter__(self) -> Pool:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs, and end the workers."""
        self._stop.set()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for session in self._sessions:
            session.connection.close()

    def submit(self, work: Work) -> None:
        """Hand in work."""
        self._work.put(work)

    def result(self, wait: float) -> tuple[Work, RunResult] | None:
        """The next result, None when there is none within so many seconds. Raises ConnectionFailed without runners."""
        try:
            found = self._done.get(timeout=wait) if wait > 0 else self._done.get_nowait()
        except queue.Empty:
            found = None
        if found is None and self._alive == 0 and self._done.empty() and not self._cancelled():
            raise ConnectionFailed("all runners were lost: " + "; ".join(self.notes))
        return found

    def _open(self, runners: Sequence[str]) -> list[str]:
        """Greet all workers at once: each may take a login and the import of torch."""
        found: dict[int, list[Runner]] = {}
        failures: dict[int, str] = {}

        def reach(i: int) -> None:
            try:
                found[i] = [Runner(runners[i], self._cancelled, again=False)]
                for _ in range(found[i][0].slots - 1):
                    found[i].append(Runner(runners[i], self._cancelled, again=False))
            except ConnectionFailed as error:
                failures[i] = str(error)
            except Cancelled:
                pass

        threads = [threading.Thread(target=reach, args=(i,), daemon=True) for i in range(len(runners))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            self._stop.set()
            raise
        self._names = [runners[i] for i in sorted(found) for _ in found[i]]
        self._sessions = [session for i in sorted(found) for session in found[i]]
        return [failures[i] for i in sorted(failures)]

    def _serve(self, runner: str, session: Runner) -> None:
        while (work := self._work.get()) is not None and not self._stop.is_set():
            work.attempts += 1
            try:
                self._done.put((work, session.run(work.unit, work.shapes, measured=work.measured)))
                continue
            except Cancelled:
                break
            except ConnectionFailed as error:
                lost = str(error)
            except Exception as error:  # a fault of ours in one run must not silently stop the search
                text = f"{type(error).__name__}: {error}"
                failed = RunResult(work.unit.name, "failed", failure="launch", message=text)
                self._done.put((work, failed))
                continue
            session.connection.close()
            if work.attempts < ATTEMPTS:
                self._work.put(work)
            else:
                self._done.put((work, RunResult(work.unit.name, "failed", failure="connection", message=lost)))
            with self._lock:
                self.notes.append(f"Lost a worker: {lost}")
            try:
                session = Runner(runner, self._cancelled, again=False)
                self._sessions.append(session)
            except (ConnectionFailed, Cancelled):
                break
        with self._lock:
            self._alive -= 1
