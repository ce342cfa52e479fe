"""Many mutants at once: over processes, with a limit of time for each, and with results that a later run takes up."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from types import FrameType

from mutation.cases import CASES
from mutation.judge import Judged, jobs, judge

Job = tuple[str, str, str, int, str]
_ROOT = Path(__file__).parents[2]
# What verdicts depend on, beside the text of the mutant.
_SOURCES = ("dsl", "analysis", "tests/mutation")


class OutOfTime(BaseException):
    """The time for one mutant is over. No check may take it for an error of its own, so it is no Exception."""


def listed(only: str, processes: int) -> list[Job]:
    """Every mutant of the kernels whose name contains `only`, in an order that does not depend on the kernel.

    Whoever stops early, or takes a share, has a sample of all kernels. The clean kernels come first.
    """
    names = [c.kernel for c in CASES if only in c.kernel]
    _one_thread_each()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        found = [job for part in pool.map(jobs, names) for job in part]
    return sorted(found, key=lambda job: (bool(job[2]), identity(job)))


def share(work: Sequence[Job], part: str) -> list[Job]:
    """The part "i/n" of the work, i from 1 to n; all of it for an empty text. Raises ValueError."""
    if not part:
        return list(work)
    which, _, of = part.partition("/")
    if not (which.isdigit() and of.isdigit() and 1 <= int(which) <= int(of)):
        raise ValueError(f"a share is i/n with i from 1 to n, not {part!r}")
    return list(work[int(which) - 1 :: int(of)])


def identity(job: Job) -> str:
    """A name for a mutant that stays the same as long as its text does."""
    return hashlib.sha256("\0".join(map(str, job)).encode()).hexdigest()[:16]


def version() -> str:
    """A name for the code that judges: results of another version are not taken up."""
    digest = hashlib.sha256()
    for path in sorted(p for folder in _SOURCES for p in (_ROOT / folder).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kept(path: Path | None) -> dict[str, Judged]:
    """What an earlier run of this version of the code has written to `path`, by identity. A torn last line is dropped."""
    found: dict[str, Judged] = {}
    if path is None or not path.exists():
        return found
    now = version()
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        name, made_by = entry.pop("id"), entry.pop("version")
        if made_by == now:
            found[name] = Judged(**{**entry, "codes": tuple(entry["codes"])})
    return found


def judged(
    work: Sequence[Job], processes: int, seconds: float, path: Path | None, stop: float | None
) -> Iterator[Judged]:
    """Each mutant as soon as it is judged, those that `path` holds first. What is new is added to `path`.

    `seconds` is the limit for one mutant. After `stop` seconds no further mutant begins.
    """
    begin, known, now = monotonic(), kept(path), version()
    yield from (known[identity(job)] for job in work if identity(job) in known)
    rest = iter([job for job in work if identity(job) not in known])
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    pending: dict[Future[Judged], Job] = {}
    _one_thread_each()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while True:
            late = stop is not None and monotonic() - begin > stop
            while not late and len(pending) < 2 * processes and (job := next(rest, None)) is not None:
                pending[pool.submit(_timed, job, seconds)] = job
            if late:
                pending = {future: job for future, job in pending.items() if not future.cancel()}
            if not pending:
                return
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                job, one = pending.pop(future), future.result()
                if path is not None:
                    with path.open("a") as file:
                        file.write(json.dumps({"id": identity(job), "version": now, **asdict(one)}) + "\n")
                yield one


def _one_thread_each() -> None:
    """Processes that begin now leave the other processors to one another: NumPy would take all for each product."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _timed(job: Job, seconds: float) -> Judged:
    try:
        with _limit(seconds):
            return judge(*job)
    except OutOfTime:
        return _open(job, "timeout", f"not within {seconds:g} s")
    except Exception as error:
        # One mutant that breaks the judge must not take the others with it.
        return _open(job, "error", f"{type(error).__name__}: {error}")


def _open(job: Job, verdict: str, why: str) -> Judged:
    kernel, level, operator, line, text = job
    return Judged(kernel, level, operator, line, "undecided", verdict, failure=why, text=text)


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block after so many seconds."""

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, over)
    # Again and again: what is raised in a destructor is lost.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
