"""Grading: is what the kernel computes right, and how long does it take? One procedure for every device.

Outputs and the memory around every tensor are poisoned before a launch; inputs must come out unchanged. Sizes with
remainders are among the cases. Candidate and baseline are timed in turn, over several sets of inputs that rotate. What
the timed launches wrote is compared too, and after timing new inputs are put where the old ones were: a kernel that
replays an answer, or remembers it by the place of its tensors, shows. So does work outside the stream that is timed,
and a kernel that replaces a function by which it is judged.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, cast

from tilewright_reference import Backend, BadReference, Reference, parse_reference

from .protocol import Message

# Largest error of an element, relative to its own magnitude plus the root mean square of the whole output. Twice the
# spacing of the element type for the rounding at the end; in float32 also room for another order of summation.
TOLERANCE: Mapping[str, float] = MappingProxyType(
    {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-12, "f8e4m3": 7e-2, "f8e5m2": 0.14}
)

F16_OVERFLOW = 65520.0  # the least magnitude that rounds to infinity

SETS = 3  # sets of arguments that rotate while timing


def room(shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """Elements from the first to the last of a tensor."""
    if strides is None:
        return math.prod(shape)
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1


Progress = Callable[[str, int, int, str], None]
Launch = Callable[[], None]
# Binds tensors and scalars; what it returns launches on them. Binding (checks, descriptors) is not part of the time.
Kernel = Callable[[Sequence[Any]], Launch]


class JobError(Exception):
    """The job ends here. `failure` is one of `protocol.FAILURES`."""

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True)
class Argument:
    """An argument: element type as Tilewright names it, role "in", "out" or "inout" of a tensor, or "scalar"."""

    name: str
    dtype: str
    role: str
    distribution: str = "normal"


@dataclass(frozen=True)
class Guarded:
    """A tensor inside a larger, poisoned allocation. `intact()` says whether the memory around it was left alone."""

    tensor: Any
    intact: Callable[[], bool]


@dataclass(frozen=True)
class Difference:
    """How an output differs from what it should be. `max_error` is relative, in the sense of `TOLERANCE`."""

    max_error: float
    wrong: int = 0
    total: int = 0
    message: str = ""


@dataclass(frozen=True)
class Timing:
    """Median and spread (distance of the quartiles) in milliseconds; `repetitions` of each.

    The first four are with a cold L2. `method` says how the warm figures came about: by "events" or in a "graph".
    """

    median_ms: float
    spread_ms: float
    baseline_ms: float | None
    baseline_spread_ms: float | None
    repetitions: int
    warm_ms: float | None = None
    baseline_warm_ms: float | None = None
    method: str = "events"


class Device(Protocol):
    """What executes kernels."""

    name: str
    backend: Backend

    def kernel(self, job: Message) -> Kernel:
        """The kernel of a job, ready to launch. Raises JobError."""
        ...

    def guarded(self, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Guarded:
        """A poisoned tensor with poisoned memory around it, and between its rows if `strides` leave room there."""
        ...

    def fill(self, tensor: Any, dtype: str, distribution: str, seed: int) -> None:
        """Random elements."""
        ...

    def load(self, tensor: Any, data: bytes, dtype: str) -> None:
        """Elements from raw little-endian bytes."""
        ...

    def copy(self, tensor: Any) -> Any:
        """A copy."""
        ...

    def equal(self, first: Any, second: Any) -> bool:
        """Whether two tensors agree bit by bit."""
        ...

    def difference(self, got: Any, want: Any, tolerance: float) -> Difference:
        """Compare an output with its float32 reference."""
        ...

    def synchronize(self) -> None:
        """Wait for the device. Raises JobError when a kernel failed."""
        ...

    def poison(self, tensor: Any, dtype: str) -> None:
        """What `guarded` puts into a tensor, again."""
        ...

    def time(self, candidate: Sequence[Launch], baseline: Sequence[Launch]) -> Timing | None:
        """Time both in turn, each over its launches in turn; None where times mean nothing. `baseline` may be empty."""
        ...

    def strays(self, launch: Launch, outputs: Sequence[Any]) -> bool:
        """Whether a launch does work outside the stream that is timed. False where that cannot be told."""
        ...

    def tampered(self) -> str:
        """The name of a function of the judge that is not what it was before the kernel was loaded; empty: none."""
        ...


@dataclass
class _Set:
    """The arguments of one launch."""

    tensors: dict[str, Guarded] = field(default_factory=dict[str, Guarded])
    before: dict[str, Any] = field(default_factory=dict[str, Any])  # copies of the inputs, and the scalars
    values: list[Any] = field(default_factory=list[Any])  # tensors and scalars in the order of the kernel

    def bind(self, kernel: Kernel) -> Launch:
        return kernel(self.values)


def grade(job: Message, device: Device, progress: Progress) -> list[Message]:
    """Check, and where the case asks for it time, the kernel of a job on every case. Raises JobError."""
    arguments = _arguments(job)
    cases = _objects(job, "cases")
    outputs = [a.name for a in arguments if a.role in ("out", "inout")]
    reference: Reference | None = None
    if job.get("reference"):
        try:
            sizes = [n for n in cases[0].get("sizes", {}) if all(n in case.get("sizes", {}) for case in cases)]
            reference = parse_reference(str(job["reference"]), [a.name for a in arguments], outputs, sizes)
        except BadReference as error:
            raise JobError("reference", str(error)) from None
    progress("compile", 0, len(cases), f"loading {job.get('kernel', 'the kernel')}")
    kernel = device.kernel(job)
    rival = device.kernel(_rival(job)) if job.get("baseline") else None
    done: list[Message] = []
    for i, case in enumerate(cases):
        sizes = ", ".join(f"{name}={value}" for name, value in case.get("sizes", {}).items())
        progress("check", i, len(cases), f"checking {sizes}")
        grading = _Case(job, case, arguments, reference, device, kernel)
        result = grading.check(int(case.get("seed", 1)))
        fair: Kernel | None = None
        if rival is not None:
            other = _Case(job, case, arguments, reference, device, rival).check(int(case.get("seed", 1)))
            result |= {f"baseline_{key}": other[key] for key in ("correct", "max_error", "message")}
            fair = rival if other["correct"] is not False else None  # a wrong kernel is no opponent
        if result["correct"] is not False and case.get("measure"):
            progress("time", i, len(cases), f"timing {sizes}")
            seed = int(case.get("seed", 1)) + 1000
            times, wrong, worst = grading.time(seed, fair, rival is None)
            if result["max_error"] is not None:
                result["max_error"] = max(result["max_error"], worst)
            # A time of wrong results is no time.
            result |= {"correct": False, "message": wrong} if wrong else times
        if name := device.tampered():
            raise JobError("tampered", f"the kernel replaced {name}, by which it is judged; its results mean nothing")
        done.append({"sizes": case.get("sizes", {}), **result})
    return done


class _Case:
    def __init__(
        self, job: Message, case: Message, arguments: Sequence[Argument], reference: Reference | None,
        device: Device, kernel: Kernel,
    ) -> None:  # fmt: skip
        self.job, self.case, self.all = job, case, arguments
        self.arguments = [a for a in arguments if a.role != "scalar"]
        self.reference, self.device, self.kernel = reference, device, kernel

    def check(self, seed: int) -> Message:
        made = self._make(seed, 0)
        want = self._wanted(made.before)
        made.bind(self.kernel)()
        self.device.synchronize()
        worst, problems = self._compare(made, want)
        if want is None and not problems:
            return {"correct": None, "max_error": None, "message": "there is no reference to compare with"}
        return {"correct": not problems, "max_error": worst, "message": "; ".join(problems)}

    def time(self, seed: int, rival: Kernel | None, with_reference: bool) -> tuple[Message, str, float]:
        """Time the kernel beside the rival, or beside the reference: the times, what is wrong, the largest error."""
        sets = self._sets(seed)
        launches = [made.bind(self.kernel) for made in sets]
        outputs = [sets[0].tensors[a.name].tensor for a in self.arguments if a.role != "in"]
        for made in sets:
            self._poison(made)
        if self.device.strays(launches[0], outputs):
            return {}, "the kernel works outside the stream that is timed, so its time would mean nothing", 0.0
        baseline: list[Launch] = []
        if rival is not None:
            baseline = [made.bind(rival) for made in self._sets(seed)[: len(sets)]]
        elif with_reference and self.reference is not None:
            baseline = [self._baseline(self.reference, dict(made.before)) for made in sets]
        timing = self.device.time(launches, baseline)
        wrong, worst = self._still_right(sets, launches, seed) if timing is not None else ("", 0.0)
        if timing is None:
            return {}, "", 0.0
        return {
            "median_ms": timing.median_ms, "spread_ms": timing.spread_ms, "baseline_ms": timing.baseline_ms,
            "baseline_spread_ms": timing.baseline_spread_ms, "warm_ms": timing.warm_ms,
            "baseline_warm_ms": timing.baseline_warm_ms, "method": timing.method, "sets": len(sets),
            "repetitions": timing.repetitions,
        }, wrong, worst  # fmt: skip

    def _baseline(self, reference: Reference, inputs: Mapping[str, Any]) -> Launch:
        def run() -> None:
            reference.evaluate(inputs, self.device.backend, precise=False, sizes=self.case.get("sizes", {}))

        try:
            run()
        except BadReference as error:
            raise JobError("reference", f"as the baseline, in the types of the inputs: {error}") from None
        return run

    def _sets(self, seed: int) -> list[_Set]:
        """Sets of arguments to rotate; fewer where they do not fit the memory."""
        sets = [self._make(seed, 1)]
        try:
            for i in range(1, SETS):
                sets.append(self._make(seed + i, 1 + i))
        except JobError as error:
            if error.failure != "out of memory":
                raise
        return sets

    def _still_right(self, sets: Sequence[_Set], launches: Sequence[Launch], seed: int) -> tuple[str, float]:
        """What is wrong with the results of the timed launches, and of one more on new inputs in the same places."""
        worst = 0.0
        repeats = all(a.role != "inout" for a in self.arguments)  # a second launch on its own results is another task
        for made in sets if repeats else ():
            error, problems = self._compare(made, self._wanted(made.before))
            worst = max(worst, error)
            if problems:
                return f"in the timed launches: {'; '.join(problems)}", worst
        if self.case.get("given"):
            return "", worst
        made = sets[0]
        for i, argument in enumerate(self.arguments):
            tensor = made.tensors[argument.name].tensor
            if argument.role != "out":
                self._fill(argument, tensor, (seed + 1000) * 64 + i, SETS + 1)
                made.before[argument.name] = self.device.copy(tensor)
        self._poison(made)
        launches[0]()
        self.device.synchronize()
        error, problems = self._compare(made, self._wanted(made.before))
        text = f"after timing, with other inputs in the same places: {'; '.join(problems)}" if problems else ""
        return text, max(worst, error)

    def _poison(self, made: _Set) -> None:
        for argument in self.arguments:
            if argument.role == "out":
                self.device.poison(made.tensors[argument.name].tensor, argument.dtype)

    def _compare(self, made: _Set, want: Mapping[str, Any] | None) -> tuple[float, list[str]]:
        """The largest error, and what is wrong."""
        worst, problems = 0.0, list[str]()
        for argument in self.arguments:
            guarded = made.tensors[argument.name]
            if not guarded.intact():
                problems.append(f"the kernel wrote outside {argument.name}, into the memory before or after it")
            if argument.role == "in":
                if not self.device.equal(guarded.tensor, made.before[argument.name]):
                    problems.append(f"the kernel changed its input {argument.name}")
                continue
            if want is None:
                continue
            difference = self.device.difference(guarded.tensor, want[argument.name], self._tolerance(argument))
            worst = max(worst, difference.max_error)
            if difference.message:
                problems.append(f"{argument.name}: {difference.message}")
        return worst, problems

    def _fill(self, argument: Argument, tensor: Any, seed: int, draw: int) -> None:
        """Random elements, or those of an index tensor: all tensors of a case have theirs from the same draw."""
        tables: Sequence[Mapping[str, str]] = self.case.get("tables") or [{}]
        text = tables[draw % len(tables)].get(argument.name)
        if text is None:
            self.device.fill(tensor, argument.dtype, argument.distribution, seed)
            return
        try:
            data = zlib.decompress(base64.b64decode(text))
        except (ValueError, zlib.error) as error:
            raise JobError("bad job", f"the elements of {argument.name} cannot be read: {error}") from None
        self.device.load(tensor, data, argument.dtype)

    def _make(self, seed: int, draw: int) -> _Set:
        made = _Set()
        given: Mapping[str, str] = self.case.get("given") or {}
        for i, argument in enumerate(self.all):
            if argument.role == "scalar":
                made.values.append(self._scalar(argument.name))
                made.before[argument.name] = made.values[-1]
                continue
            shape: list[int] | None = self.case.get("shapes", {}).get(argument.name)
            if shape is None:
                raise JobError("bad job", f"the case {self.case.get('sizes')} gives no shape for {argument.name}")
            strides: list[int] | None = self.case.get("strides", {}).get(argument.name)
            guarded = self.device.guarded(shape, argument.dtype, strides)
            if argument.role != "out":
                if argument.name in given:
                    self.device.load(guarded.tensor, base64.b64decode(given[argument.name]), argument.dtype)
                else:
                    self._fill(argument, guarded.tensor, seed * 64 + i, draw)
                made.before[argument.name] = self.device.copy(guarded.tensor)
            made.tensors[argument.name] = guarded
            made.values.append(guarded.tensor)
        return made

    def _scalar(self, name: str) -> int | float:
        value = self.case.get("scalars", {}).get(name)
        if not isinstance(value, int | float):
            raise JobError("bad job", f"the case {self.case.get('sizes')} gives no value for {name}")
        return value

    def _wanted(self, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.reference is not None:
            try:
                sizes: Mapping[str, int] = self.case.get("sizes", {})
                return self.reference.evaluate(inputs, self.device.backend, precise=True, sizes=sizes)
            except BadReference as error:
                raise JobError("reference", str(error)) from None
        expected: Mapping[str, str] | None = self.case.get("expected")
        if not expected:
            return None
        wanted: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.role == "in":
                continue
            if argument.name not in expected:
                raise JobError("bad job", f"no expected elements for {argument.name}")
            like = self.device.guarded(self.case["shapes"][argument.name], argument.dtype).tensor
            self.device.load(like, base64.b64decode(expected[argument.name]), argument.dtype)
            wanted[argument.name] = like
        return wanted

    def _tolerance(self, argument: Argument) -> float:
        wanted: Mapping[str, float] = self.job.get("tolerance") or {}
        own = wanted.get(argument.name)
        return float(own) if own is not None else TOLERANCE.get(argument.dtype, 0.0)


def _rival(job: Message) -> Message:
    """The job with the kernel to race in the place of its own."""
    baseline: object = job["baseline"]
    if not isinstance(baseline, dict):
        raise JobError("bad job", "the baseline of the job is no object with a module or dsl")
    return {**job, "module": "", "dsl": {}, **cast("Message", baseline)}


def _arguments(job: Message) -> list[Argument]:
    found = _objects(job, "arguments")
    try:
        return [Argument(a["name"], a["dtype"], a["role"], a.get("distribution", "normal")) for a in found]
    except KeyError as error:
        raise JobError("bad job", f"an argument of the job lacks {error}") from None


def _objects(job: Message, key: str) -> list[Message]:
    """A non-empty list of JSON objects. Raises JobError."""
    found: object = job.get(key)
    items = cast("list[object]", found) if isinstance(found, list) else []
    if not items or not all(isinstance(item, dict) for item in items):
        raise JobError("bad job", f"the job has no {key}")
    return cast("list[Message]", items)
