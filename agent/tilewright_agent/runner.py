"""Run a kernel where a runner says, and tell whether it is right and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import cast

from tilewright.frontend import KernelUnit
from tilewright.ir.expr import EvaluationError
from tilewright_agent.jobs import NotRunnable, build_job
from tilewright_agent.profiles import NO_GPU, OLD_WORKER, Profile, profile_of
from tilewright_agent.transport import LOCAL, Cancelled, Connection, ConnectionFailed, worker_command
from tilewright_agent.worker.protocol import Message
from tilewright_analysis.perf.shapes import Sizes, broken_assumption, large_shapes, small_shapes

Progress = Callable[[str, float], None]
"""Told what is being done and the share that is done, from 0 to 1."""

INTERPRETER = "interpreter (no GPU)"


@dataclass(frozen=True, slots=True)
class Case:
    """One shape. `max_error` is relative to the element plus the root mean square of the output.

    Times are None unless a GPU was timed. `correct` None: there was nothing to compare with. `baseline_message` says
    what is wrong with the results of a kernel that was to be raced. The warm times are with what the launch before has
    left in the L2, the others with a cold one.
    """

    sizes: Mapping[str, int]
    correct: bool | None
    max_error: float | None = None
    median_ms: float | None = None
    spread_ms: float | None = None
    baseline_ms: float | None = None
    baseline_spread_ms: float | None = None
    message: str = ""
    baseline_message: str = ""
    warm_ms: float | None = None
    baseline_warm_ms: float | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run. `status` is "ok", "failed" or "cancelled"; `failure` names the kind of failure.

    `device` is what executed the kernel, `machine` the host that has it, and `label` a caption for people.
    `median_ms` and `baseline_ms` are those of the first timed shape, on a GPU only. `message` says what went wrong, for
    a person; empty when all is well. `profile` is there when one was asked for and the run came to its end.
    """

    kernel: str
    status: str
    device: str = ""
    label: str = ""
    correct: bool | None = None
    max_error: float | None = None
    median_ms: float | None = None
    baseline_ms: float | None = None
    shapes: tuple[Mapping[str, int], ...] = ()
    message: str = ""
    failure: str = ""
    cases: tuple[Case, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    machine: str = ""
    profile: Profile | None = None


def run_unit(
    unit: KernelUnit,
    runner: str = LOCAL,
    shapes: Sequence[Sizes] | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    *,
    profile: bool = False,
) -> RunResult:
    """Run a kernel through a runner: `local`, or a command that reaches a worker's stdin and stdout.

    `shapes` are problem sizes; by default some that the tiles divide and some with remainders, large ones on a GPU.
    `cancelled` is polled about ten times a second. `profile`: also count, over one more launch. Never raises for what
    goes wrong on the way: the result says it.
    """
    try:
        with Runner(runner, cancelled) as session:
            return session.run(unit, shapes, progress, profile=profile)
    except Cancelled:
        return RunResult(unit.name, "cancelled", message="cancelled", failure="cancelled")
    except ConnectionFailed as error:
        return RunResult(unit.name, "failed", message=str(error), failure=error.code)


class Runner:
    """A runner with an open worker, for several runs. Raises ConnectionFailed and Cancelled, here and in `run`.

    A run that is lost with its worker is done once more, from its beginning, on a new connection: a run changes nothing
    that another one sees, and half of it is never a result. With `again` False the caller decides about that.
    """

    def __init__(self, runner: str = LOCAL, cancelled: Callable[[], bool] | None = None, *, again: bool = True) -> None:
        self.connection = Connection(worker_command(runner), cancelled)
        self._cancelled, self._again = cancelled, again
        self._numbers = count(1)

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    @property
    def has_gpu(self) -> bool:
        """Whether runs are timed."""
        return "run" in self.connection.capabilities

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of what the worker runs on."""
        found = self.connection.hello.get("versions")
        return {str(k): str(v) for k, v in cast("Message", found).items()} if isinstance(found, dict) else {}

    @property
    def device(self) -> str:
        """The device that runs use."""
        found = cast("list[Message]", self.connection.hello.get("devices") or [])
        return str(found[0].get("name") or "") if found else ""

    @property
    def machine(self) -> str:
        """The host that the worker runs on."""
        return str(self.connection.hello.get("host") or "")

    @property
    def slots(self) -> int:
        """How many runs it can do at once, over as many connections: the machines of a fleet."""
        return max(1, int(self.connection.hello.get("slots") or 1))

    def run(
        self,
        unit: KernelUnit,
        shapes: Sequence[Sizes] | None = None,
        progress: Progress | None = None,
        measured: int | None = None,
        against: KernelUnit | None = None,
        *,
        profile: bool = False,
    ) -> RunResult:
        """Run one kernel. `measured`: how many of the shapes, from the first, a GPU times (default: all given ones).

        `against` is a kernel to time beside it instead of the reference; it takes the same tensors, by position.
        `profile`: also count, over one more launch at the first timed shape.
        """
        kernel = unit.kernel
        for each in (unit, against) if against is not None else (unit,):
            errors = [p for p in each.problems if p.severity == "error"]
            if each.kernel is None or errors:
                text = errors[0].message if errors else "it could not be understood"
                return RunResult(unit.name, "failed", message=f"{each.name} is not run: {text}", failure="compile")
        assert kernel is not None
        gpu = self.has_gpu
        if shapes is None:
            large = large_shapes(kernel) if gpu else ()
            measured = len(large) if measured is None else measured
            shapes = (*large, *small_shapes(kernel))
        if not shapes:
            return RunResult(
                unit.name, "failed", failure="bad job",
                message=f"no sizes near the tiles of {unit.name} satisfy its assumptions; say which shapes to run",
            )  # fmt: skip
        try:
            for sizes in shapes:
                if broken := broken_assumption(kernel, sizes):
                    raise NotRunnable(f"{unit.name} assumes {broken}, which {_text(sizes)} breaks")
            job = build_job(
                unit, kernel, str(next(self._numbers)), shapes, gpu=gpu,
                measured=len(shapes) if measured is None else measured,
                against=against.kernel if against is not None else None,
            )  # fmt: skip
        except NotRunnable as error:
            return RunResult(unit.name, "failed", message=str(error), failure="compile")
        except EvaluationError as error:
            return RunResult(unit.name, "failed", message=f"the shapes lack a size: {error}", failure="bad job")
        if not profile:
            return self._result(unit.name, self._done(job, progress))
        answer = self._done({**job, "profile": True}, progress)
        result = self._result(unit.name, answer)
        if result.status != "ok":
            return result
        return replace(result, profile=profile_of(answer.get("profile")) or Profile(why=OLD_WORKER if gpu else NO_GPU))

    def _done(self, job: Message, progress: Progress | None) -> Message:
        """The answer to a job. One that was lost is sent again, once."""
        try:
            answer = self.connection.request(job, _reporter(progress))
            if answer.get("failure") != "connection" or not self._again:
                return answer
        except ConnectionFailed as error:
            if error.code != "connection" or not self._again:
                raise
            if progress is not None:
                progress("the connection is lost; trying once more", 0.0)
            self._reconnect()
        return self.connection.request({**job, "id": str(next(self._numbers))}, _reporter(progress))

    def _reconnect(self) -> None:
        before = self.device, self.versions
        self.connection.close()
        self.connection = Connection(self.connection.command, self._cancelled)
        if (self.device, self.versions) != before:
            raise ConnectionFailed(
                "the connection was lost, and the runner came back with another device or other versions: run again"
            )

    def _result(self, name: str, answer: Message) -> RunResult:
        device = str(answer.get("device") or "")
        label = device
        if self.has_gpu:
            label = ", ".join([device, *(f"{p} {v}" for p, v in self.versions.items() if p in ("torch", "triton"))])
        if answer.get("status") != "ok":
            failure = str(answer.get("failure"))
            message = f"{failure}: {answer.get('message')}"
            return RunResult(
                name, "failed", device, label, message=message, failure=failure, versions=self.versions,
                machine=self.machine,
            )  # fmt: skip
        cases = tuple(_case(c) for c in cast("list[Message]", answer.get("cases") or []))
        verdicts = {c.correct for c in cases}
        correct = False if False in verdicts else True if True in verdicts else None
        errors = [c.max_error for c in cases if c.max_error is not None]
        timed = next((c for c in cases if c.median_ms is not None), None)
        telling = (c for c in cases if c.message and (c.correct is False or correct is None))
        wrong = [f"{_text(c.sizes)}: {c.message}" for c in telling]
        return RunResult(
            name, "ok", device, label, correct, max(errors, default=None),
            timed.median_ms if timed else None, timed.baseline_ms if timed else None,
            tuple(c.sizes for c in cases), "\n".join(wrong), "", cases, self.versions, self.machine,
        )  # fmt: skip


def _case(found: Message) -> Case:
    sizes = {str(k): int(v) for k, v in cast("Message", found.get("sizes") or {}).items()}
    correct = found.get("correct")
    return Case(
        sizes,
        bool(correct) if correct is not None else None,
        found.get("max_error"),
        found.get("median_ms"),
        found.get("spread_ms"),
        found.get("baseline_ms"),
        found.get("baseline_spread_ms"),
        str(found.get("message") or ""),
        str(found.get("baseline_message") or "") if found.get("baseline_correct") is False else "",
        found.get("warm_ms"),
        found.get("baseline_warm_ms"),
    )


def _reporter(progress: Progress | None) -> Callable[[Message], None] | None:
    if progress is None:
        return None

    def report(message: Message) -> None:
        share = int(message.get("done") or 0) / max(1, int(message.get("total") or 1))
        progress(str(message.get("message") or message.get("stage") or ""), min(1.0, share))

    return report


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{n} = {v}" for n, v in sizes.items())
