"""Grading: is what the kernel computes right, and how long does it take? One procedure for every device.

The kernel runs in a process of its own (`candidate`), on tensors that it shares with the judge, which is here: the
judge makes the inputs, evaluates the reference and compares, in memory to which the kernel's process has no handle.
Outputs and the memory around every tensor are poisoned before a launch; inputs must come out unchanged. Sizes with
remainders are among the cases. Candidate and baseline are timed in turn, over several sets of arguments that rotate;
every cold launch has new inputs. What the timed launches wrote is compared too. Then the judge takes times with its own
clock, of launches on new inputs in the same places (`_Case._audit`): a kernel that replays an answer, remembers it by
the place of its tensors or lies about its time shows. So does work outside the stream that is timed.
"""

from __future__ import annotations

import base64
import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from tilewright_reference import BadReference, Reference, parse_reference

from .device import Device
from .program import Ask, Buffer, Program
from .protocol import Message
from .terms import Guarded, JobError, Launch, Timing, room
from .timing import Side, measure

# Largest error of an element, relative to its own magnitude plus the root mean square of the whole output. Twice the
# spacing of the element type for the rounding at the end; in float32 also room for another order of summation.
TOLERANCE: Mapping[str, float] = MappingProxyType(
    {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-12, "f8e4m3": 7e-2, "f8e5m2": 0.14}
)

SETS = 3  # sets of arguments that rotate while timing
CHECKED = 0.25  # the share of the timed launches whose results are compared, which ones nobody knows
STRAY_SECONDS = 0.005  # for work on another stream to show; a tenth of what the stream is held up for, or less
_TIMED = "in the timed launches"

# What the clock of the judge sees of a launch beyond the time on the device: messages, the host's part of the launch
# and waking up. A figure of the kernel's process is believed when it is not below that clock's by more than this.
AUDIT_ROUNDS = 3
AUDIT_MORE = 40  # rounds before a figure is doubted: a busy host makes single rounds slow
AUDIT_SHARE = 1.5
AUDIT_MS = 0.25

Progress = Callable[[str, int, int, str], None]
Start = Callable[[], Ask]
"""Starts a process for a kernel, and gives what sends it requests."""


@dataclass(frozen=True)
class Argument:
    """An argument: element type as Tilewright names it, role "in", "out" or "inout" of a tensor, or "scalar"."""

    name: str
    dtype: str
    role: str
    distribution: str = "normal"


@dataclass
class _Set:
    """The arguments of one launch."""

    tensors: dict[str, Guarded] = field(default_factory=dict[str, Guarded])
    before: dict[str, Any] = field(default_factory=dict[str, Any])  # copies of the inputs, and the scalars
    values: list[Any] = field(default_factory=list[Any])  # scalars and places in buffers, in the order of the kernel
    number: int = -1  # of its launch


def grade(job: Message, device: Device, start: Start, progress: Progress) -> list[Message]:
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
    program = _program(job, device, start)
    rival = _program(_rival(job), device, start) if job.get("baseline") else None
    done: list[Message] = []
    for i, case in enumerate(cases):
        sizes = ", ".join(f"{name}={value}" for name, value in case.get("sizes", {}).items())
        progress("check", i, len(cases), f"checking {sizes}")
        grading = _Case(job, case, arguments, reference, device)
        result = grading.check(program, int(case.get("seed", 1)))
        fair: Program | None = None
        if rival is not None:
            other = grading.check(rival, int(case.get("seed", 1)))
            result |= {f"baseline_{key}": other[key] for key in ("correct", "max_error", "message")}
            fair = rival if other["correct"] is not False else None  # a wrong kernel is no opponent
        if result["correct"] is not False and case.get("measure"):
            progress("time", i, len(cases), f"timing {sizes}")
            times, wrong, worst = grading.time(program, fair, rival is None)
            if result["max_error"] is not None:
                result["max_error"] = max(result["max_error"], worst)
            # A time of wrong results is no time.
            result |= {"correct": False, "message": wrong} if wrong else times
        for each in (program, rival) if rival is not None else (program,):
            if name := each.broken_seal():
                raise JobError("tampered", f"the kernel replaced {name}, by which it is timed; its times mean nothing")
        done.append({"sizes": case.get("sizes", {}), **result})
    return done


def _program(job: Message, device: Device, start: Start) -> Program:
    program = Program(start(), device)
    program.load({key: job.get(key) for key in ("kernel", "module", "dsl")})  # neither seeds nor the reference
    return program


class _Case:
    def __init__(
        self, job: Message, case: Message, arguments: Sequence[Argument], reference: Reference | None, device: Device
    ) -> None:
        self.job, self.case, self.all = job, case, arguments
        self.arguments = [a for a in arguments if a.role != "scalar"]
        self.reference, self.device = reference, device
        # Not those of the job: who wrote the kernel may know them, and what follows from them.
        self.seeds = random.SystemRandom()

    def check(self, program: Program, seed: int) -> Message:
        made = self._make(program, self.seeds.getrandbits(40) if self.device.runs_code else seed, 0)
        want = self._wanted(made.before)
        made.number = program.bind(made.values)
        self._poison(made)  # after binding, which is no place to compute
        program.launch([made.number])
        worst, problems = self._compare(made, want)
        del made
        program.forget()
        self.device.release()
        if want is None and not problems:
            return {"correct": None, "max_error": None, "message": "there is no reference to compare with"}
        return {"correct": not problems, "max_error": worst, "message": "; ".join(problems)}

    def time(self, program: Program, rival: Program | None, with_reference: bool) -> tuple[Message, str, float]:
        """Time the kernel beside the rival, or beside the reference: the times, what is wrong, the largest error."""
        sets = self._sets(program)
        side = program.sampler([made.number for made in sets])
        if side is None:
            program.forget()
            return {}, "", 0.0
        for made in sets:
            self._poison(made)
        if self._strays(program, sets[0]):
            program.forget()
            return {}, "the kernel works outside the stream that is timed, so its time would mean nothing", 0.0
        sides: list[Side] = [side]
        if rival is not None:
            others = self._sets(rival)[: len(sets)]
            beside = rival.sampler([made.number for made in others])
            sides += [beside] if beside is not None else []
        elif with_reference and self.reference is not None:
            sides.append(self.device.sampler([self._baseline(self.reference, dict(made.before)) for made in sets]))

        launched, problems = set[int](), list[str]()

        def renew(turn: int) -> None:
            number = turn % len(sets)
            made = sets[number]
            if number in launched and not problems and self.seeds.random() < CHECKED:
                problems.extend(self._compare(made, self._wanted(made.before))[1])
            launched.add(number)
            self._renew(made)
            self.device.synchronize()

        timing = measure(sides, len(sets), renew)
        wrong, worst = (f"{_TIMED}: {'; '.join(problems)}", 0.0) if problems else self._still_right(sets)
        if not wrong:
            wrong, error = self._audit(program, sets, timing)
            worst = max(worst, error)
        count = len(sets)
        sets.clear()
        for each in (program, rival) if rival is not None else (program,):
            each.forget()
        self.device.release()
        return {
            "median_ms": timing.median_ms, "spread_ms": timing.spread_ms, "baseline_ms": timing.baseline_ms,
            "baseline_spread_ms": timing.baseline_spread_ms, "warm_ms": timing.warm_ms,
            "baseline_warm_ms": timing.baseline_warm_ms, "method": timing.method, "sets": count,
            "repetitions": timing.repetitions,
        }, wrong, worst  # fmt: skip

    def _strays(self, program: Program, made: _Set) -> bool:
        """While the stream is held up nothing on it is done, so whatever appears was done on another one.

        A launch that waits for the device shows nothing: the stream is free when it returns.
        """
        outputs = [made.tensors[a.name].tensor for a in self.arguments if a.role != "in"]
        before = [self.device.copy(o) for o in outputs]
        self.device.synchronize()
        program.stall(made.number)
        time.sleep(STRAY_SECONDS)
        changed = not all(self.device.equal(o, b) for o, b in zip(outputs, before, strict=True))
        held = program.stalled()
        program.launch([])
        return changed and held

    def _baseline(self, reference: Reference, inputs: Mapping[str, Any]) -> Launch:
        def run() -> None:
            reference.evaluate(inputs, self.device.backend, precise=False, sizes=self.case.get("sizes", {}))

        try:
            run()
        except BadReference as error:
            raise JobError("reference", f"as the baseline, in the types of the inputs: {error}") from None
        return run

    def _sets(self, program: Program) -> list[_Set]:
        """Sets of arguments to rotate, bound; fewer where they do not fit the memory."""
        sets: list[_Set] = []
        for i in range(SETS):
            try:
                made = self._make(program, self.seeds.getrandbits(40), 1 + i)
                made.number = program.bind(made.values)
            except JobError as error:
                if error.failure != "out of memory" or not sets:
                    raise
                break
            sets.append(made)
        return sets

    def _still_right(self, sets: Sequence[_Set]) -> tuple[str, float]:
        """What is wrong with the results of the timed launches, and the largest error."""
        worst = 0.0
        repeats = all(a.role != "inout" for a in self.arguments)  # a second launch on its own results is another task
        for made in sets if repeats else ():
            error, problems = self._compare(made, self._wanted(made.before))
            worst = max(worst, error)
            if problems:
                return f"{_TIMED}: {'; '.join(problems)}", worst
        return "", worst

    def _audit(self, program: Program, sets: Sequence[_Set], timing: Timing) -> tuple[str, float]:
        """New inputs in the same places, launches by the clock of the judge: what is wrong, and the largest error.

        All launches are compared, so all have to be done. The least time of several rounds counts: a busy host makes
        rounds slow and cannot make them fast.
        """
        if self.case.get("given"):
            return "", 0.0
        worst, least = 0.0, float("inf")
        numbers = [made.number for made in sets]
        for turn in range(AUDIT_MORE):
            for i, made in enumerate(sets):
                self._renew(made, SETS + 1 + i)
                self._poison(made)
            self.device.synchronize()
            seconds = program.launch(numbers)
            for made in sets:
                error, problems = self._compare(made, self._wanted(made.before))
                worst = max(worst, error)
                if problems:
                    return f"after timing, with other inputs in the same places: {'; '.join(problems)}", worst
            least = min(least, seconds * 1e3 / len(sets))
            if turn + 1 >= AUDIT_ROUNDS and least <= AUDIT_SHARE * timing.median_ms + AUDIT_MS:
                return "", worst
        raise JobError("tampered", (
            f"the process of the kernel says that a launch takes {timing.median_ms:.4g} ms, the clock of the judge "
            f"says {least:.4g} ms; its times mean nothing"
        ))  # fmt: skip

    def _poison(self, made: _Set) -> None:
        for argument in self.arguments:
            if argument.role == "out":
                self.device.poison(made.tensors[argument.name].tensor, argument.dtype)
        self.device.synchronize()

    def _renew(self, made: _Set, draw: int | None = None) -> None:
        """New inputs in the same places. Index tensors change where a `draw` is said: they come from the client."""
        given: Mapping[str, str] = self.case.get("given") or {}
        tables: Sequence[Mapping[str, str]] = self.case.get("tables") or [{}]
        for argument in self.arguments:
            if argument.role == "out" or argument.name in given or (draw is None and argument.name in tables[0]):
                continue
            tensor = made.tensors[argument.name].tensor
            self._fill(argument, tensor, self.seeds.getrandbits(40), draw or 0)
            self.device.assign(made.before[argument.name], tensor)

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

    def _make(self, program: Program, seed: int, draw: int) -> _Set:
        """Arguments in memory of the kernel's process, not yet bound."""
        made = _Set()
        given: Mapping[str, str] = self.case.get("given") or {}
        shapes = {a.name: self._shape(a.name) for a in self.arguments}
        strides: Mapping[str, list[int]] = self.case.get("strides", {})
        sizes = [room(shapes[a.name], strides.get(a.name)) + 2 * self.device.guard for a in self.arguments]
        wanted = [(size, a.dtype) for size, a in zip(sizes, self.arguments, strict=True)]
        buffers = iter(program.allocate(wanted))
        for i, argument in enumerate(self.all):
            if argument.role == "scalar":
                made.values.append(self._scalar(argument.name))
                made.before[argument.name] = made.values[-1]
                continue
            buffer: Buffer = next(buffers)
            shape, step = shapes[argument.name], strides.get(argument.name)
            guarded = self.device.guarded(buffer.storage, shape, argument.dtype, step)
            if argument.role != "out":
                if argument.name in given:
                    self.device.load(guarded.tensor, base64.b64decode(given[argument.name]), argument.dtype)
                else:
                    self._fill(argument, guarded.tensor, seed * 64 + i, draw)
                made.before[argument.name] = self.device.copy(guarded.tensor)
            made.tensors[argument.name] = guarded
            made.values.append({"buffer": buffer.number, "shape": shape, "strides": step, "offset": self.device.guard})
        self.device.synchronize()
        return made

    def _shape(self, name: str) -> list[int]:
        shape: list[int] | None = self.case.get("shapes", {}).get(name)
        if shape is None:
            raise JobError("bad job", f"the case {self.case.get('sizes')} gives no shape for {name}")
        return shape

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
            like = self.device.private(self.case["shapes"][argument.name], argument.dtype)
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
