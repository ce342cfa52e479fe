"""The catalogue of known cheats: each must be caught, and none may get a time. Kernels run in processes of their own."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent import fake_torch
from agent.judging import Message, graded_on_fake, nothing, separate
from agent.test_cuda import DOUBLE, job
from tilewright_agent.worker import grade as grading
from tilewright_agent.worker import timing
from tilewright_agent.worker.cuda import Cuda
from tilewright_agent.worker.cuda_host import CudaHost
from tilewright_agent.worker.grade import JobError, grade

HEAD = 'import os, sys, time\ntorch = sys.modules["agent.fake_torch"]\n'

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A busy machine is no lie about times; the tests of the judge's clock have times that nothing explains away."""
    fake_torch.pending_errors.clear()
    monkeypatch.setattr(grading, "AUDIT_MS", 20.0)
    monkeypatch.setattr(grading, "AUDIT_MORE", grading.AUDIT_ROUNDS)
    monkeypatch.setattr(timing, "MOST_REPETITIONS", 20)
    yield
    fake_torch._elsewhere.clear()


def graded(text: str, folder: Path, *, confined: bool = False, **more: Any) -> Message:
    with separate(lambda: CudaHost(fake_torch), str(folder), confined=confined) as start:
        (result,) = grade(job(HEAD + text, measure=True, **more), Cuda(fake_torch), start, nothing)
    return result


def test_an_honest_kernel_is_right_and_has_all_its_times(tmp_path: Path) -> None:
    result = graded(DOUBLE, tmp_path, confined=True)
    assert (result["correct"], result["message"]) == (True, "")
    assert (result["median_ms"], result["warm_ms"], result["method"]) == (0.25, 0.25, "events")
    assert result["sets"] == grading.SETS


def test_a_short_kernel_is_timed_warm_in_a_graph() -> None:
    (result,) = graded_on_fake(job(DOUBLE.replace("0.25", "0.01"), measure=True))
    assert (result["correct"], result["method"]) == (True, "graph")
    assert result["warm_ms"] == pytest.approx(0.01)


def test_a_short_kernel_that_cannot_be_captured_is_timed_by_events() -> None:
    text = DOUBLE.replace("0.25", "0.01").replace(
        "torch.launch(work)", "torch.launch(work) if not torch._captured else 1 / 0  # not permitted while capturing"
    )
    (result,) = graded_on_fake(job(text, measure=True))
    assert (result["correct"], result["method"]) == (True, "events")
    assert result["warm_ms"] == pytest.approx(0.01)


def test_arguments_rotate_and_inputs_are_new_while_timing() -> None:
    seen = types.ModuleType("seen_by_the_kernel")
    seen.places, seen.values = [], []  # type: ignore[attr-defined]
    sys.modules["seen_by_the_kernel"] = seen
    note = "seen = sys.modules['seen_by_the_kernel']; seen.places.append(id(x)); seen.values.append(float(x[0, 0]))"
    (result,) = graded_on_fake(job(DOUBLE.replace("out.copy_", f"{note}; out.copy_"), measure=True))
    assert result["correct"] is True
    places, values = seen.places[2:], seen.values[2:]  # type: ignore[attr-defined]
    assert len(set(places)) == grading.SETS
    assert all(a != b for a, b in pairwise(places[:20])), "no two cold launches in a row are alike"
    cold = timing.WARM_UPS + result["repetitions"]
    assert len(set(values[:cold])) == cold, "and none has the inputs of another"


CHEATS = {
    "replays the first answer": """
saved = []
def prepare(x, out):
    def work():
        if not saved: saved.append((x + x).clone())
        out.copy_(saved[0])
    return lambda: torch.launch(work)
""",
    "remembers answers by the place of the tensors": """
saved = {}
def prepare(x, out):
    def work():
        place = x.array.__array_interface__["data"][0]
        if place not in saved: saved[place] = (x + x).clone()
        out.copy_(saved[place])
    return lambda: torch.launch(work)
""",
    "works only the first time": """
def prepare(x, out):
    done = []
    def work():
        if not done: out.copy_(x + x)
        done.append(1)
    return lambda: torch.launch(work)
""",
    "works while it is bound, where no one looks at the clock": """
def prepare(x, out):
    out.copy_(x + x)
    return lambda: None
""",
    "works only until it is timed": """
count = []
def prepare(x, out):
    def work():
        count.append(1)
        if len(count) <= 1: out.copy_(x + x)
    return lambda: torch.launch(work)
""",
    "gives back its input": """
def prepare(x, out):
    return lambda: torch.launch(lambda: out.copy_(x))
""",
    "makes its input the answer": """
def prepare(x, out):
    return lambda: torch.launch(lambda: x.copy_(out))
""",
    "writes a constant": """
def prepare(x, out):
    return lambda: torch.launch(lambda: out.fill_(0.0))
""",
    "works on another stream": """
def prepare(x, out):
    return lambda: torch.launch(lambda: (torch.advance(5.0), out.copy_(x + x)), stream="another")
""",
    "computes every second launch only": """
count = []
def prepare(x, out):
    def work():
        count.append(1)
        if len(count) % 2: out.copy_(x + x)
    return lambda: torch.launch(work)
""",
}


@pytest.mark.parametrize("text", CHEATS.values(), ids=CHEATS.keys())
def test_a_cheat_is_wrong_and_gets_no_time(text: str, tmp_path: Path) -> None:
    result = graded(text, tmp_path)
    assert result["correct"] is False
    assert result["message"]
    assert result.get("median_ms") is None and result.get("warm_ms") is None


def test_a_launch_that_waits_for_the_device_is_no_cheat(tmp_path: Path) -> None:
    text = HONEST.replace("NOW", "pass").replace("LATER", "torch.cuda.synchronize()")
    result = graded(text, tmp_path)
    assert (result["correct"], result["message"]) == (True, "")


KNOWING = """
import numpy as np
def prepare(x, out):
    def work():
        for seed in range(200):
            known = np.random.default_rng(64 + seed).standard_normal(x.shape).astype(np.float32)
            if (known == x.array).all():
                out.array[...] = known * 2
    return lambda: torch.launch(work)
"""


def test_seeds_of_a_job_say_nothing_about_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked() -> Message:
        with separate(lambda: CudaHost(fake_torch), str(tmp_path)) as start:
            (result,) = grade(job(HEAD + KNOWING), Cuda(fake_torch), start, nothing)
        return result

    assert checked()["correct"] is False
    monkeypatch.setattr(Cuda, "runs_code", False)
    assert checked()["correct"] is True, "it would have got through"


def test_a_cheat_says_how_it_was_caught(tmp_path: Path) -> None:
    assert "in the timed launches" in graded(CHEATS["works only the first time"], tmp_path)["message"]
    assert "in the timed launches" in graded(CHEATS["replays the first answer"], tmp_path)["message"]
    assert "outside the stream" in graded(CHEATS["works on another stream"], tmp_path)["message"]
    # Inputs are in place before the timed launches; only those by the clock of the judge show it.
    late = (
        HONEST.replace("NOW", "pass")
        .replace("LATER", "pass")
        .replace("out.copy_(x + x)", "out.copy_(x + x) if len(count) < 40 else None, count.append(1)")
    )
    assert "with other inputs" in graded("count = []\n" + late, tmp_path)["message"]


HONEST = """
def prepare(x, out):
    def run():
        torch.launch(lambda: (torch.advance(0.25), out.copy_(x + x)))
        LATER
    NOW
    return run
"""
TIMERS = {
    "the timer": ("torch.cuda.Event.elapsed_time", "torch.cuda.Event.elapsed_time = lambda self, other: 0.001"),
    "the events": ("torch.cuda.Event", "torch.cuda.Event = type('Event', (torch.cuda.Event,), {})"),
    "waiting": ("torch.cuda.synchronize", "torch.cuda.synchronize = lambda: None"),
    "the samples": (
        "tilewright_agent.worker.timing.Sampler.cold",
        "sys.modules['tilewright_agent.worker.timing'].Sampler.cold = lambda self, turn: 0.001",
    ),
    "the answers": (
        "tilewright_agent.worker.candidate.Session._sample",
        "sys.modules['tilewright_agent.worker.candidate'].Session._sample = lambda self, request: {'value': 0.001}",
    ),
}


@pytest.mark.parametrize("when", ["NOW", "LATER"])
@pytest.mark.parametrize(("name", "patch"), TIMERS.values(), ids=TIMERS.keys())
def test_a_kernel_that_replaces_what_times_it_is_caught(name: str, patch: str, when: str, tmp_path: Path) -> None:
    text = HONEST.replace(when, patch).replace("NOW", "pass").replace("LATER", "pass")
    try:
        result = graded(text, tmp_path)
    except JobError as error:
        assert error.failure == "tampered"
        assert f"replaced {name}," in str(error)
    else:  # a timer that is replaced may also be one that no longer launches
        assert result["correct"] is False


JUDGES = {
    "equality": "torch.equal = lambda a, b: True",
    "a comparison": "torch.Tensor.__le__ = lambda a, b: a == a",
    "arithmetic of the reference": "torch.Tensor.__add__ = lambda a, b: a",
    "the reference": (
        "import tilewright_reference.language as l; l.Reference.evaluate = lambda self, t, b, precise, sizes: {'OUT': t['X']}"
    ),
    "the comparison": (
        "import tilewright_agent.worker.cuda as c, tilewright_agent.worker.grade as g; "
        "c.Cuda.difference = lambda self, *_: g.Difference(0.0)"
    ),
    "the tolerances": "import tilewright_agent.worker.grade as g; g.TOLERANCE = {'f32': 1e9}",
}  # fmt: skip


@pytest.mark.parametrize("patch", JUDGES.values(), ids=JUDGES.keys())
def test_what_judges_a_kernel_is_out_of_its_reach(patch: str, tmp_path: Path) -> None:
    """The patches are in force where the kernel runs, and change nothing where it is judged."""
    try:
        result = graded(f"{patch}\ndef prepare(x, out):\n    return lambda: out.copy_(x)\n", tmp_path)
    except JobError as error:
        assert error.failure == "tampered"  # parts of the worker are sealed, used or not
    else:
        assert result["correct"] is False


# What breaks the seal as well, so that the kernel's process vouches for everything.
FORGED = """
import tilewright_agent.worker.seal as seal, tilewright_agent.worker.timing as timing
seal.Seal.broken = lambda self: ""
timing.Sampler.cold = lambda self, turn: (self.launches[turn % len(self.launches)](), 0.06)[1]
timing.Sampler.warm = timing.Sampler.cold
def prepare(x, out):
    return lambda: torch.launch(lambda: (time.sleep(0.05), out.copy_(x + x)))
"""


def test_the_clock_of_the_judge_finds_a_time_that_is_a_lie(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the clock of the judge says 5") as error:
        graded(FORGED, tmp_path)
    assert error.value.failure == "tampered"


def test_answering_before_the_work_is_done_is_caught(tmp_path: Path) -> None:
    text = """
import threading
import tilewright_agent.worker.candidate as candidate, tilewright_agent.worker.seal as seal
seal.Seal.broken = lambda self: ""
candidate.Session._launch = lambda self, request: threading.Timer(0.3, self.launches[0]).start() or {}
def prepare(x, out):
    return lambda: out.copy_(x + x)
"""
    assert graded(text, tmp_path)["correct"] is False


ANSWERS = {
    "no message": r"b'done\n'",
    "no object": r"b'[1, 2]\n'",
    "a number for a list": r"""b'{"type": "answer", "ok": true, "numbers": 3, "handles": 4}\n'""",
    "a negative time": r"""b'{"type": "answer", "ok": true, "number": -1, "value": -1}\n'""",
    "a line without an end": r"b'x' * (1 << 25)",
}


@pytest.mark.parametrize("line", ANSWERS.values(), ids=ANSWERS.keys())
def test_answers_that_make_no_sense_end_the_job(line: str, tmp_path: Path) -> None:
    text = f"""
import tilewright_agent.worker.channel as channel
def send(self, message, line={line}):
    left = memoryview(line)
    while left:
        left = left[os.write(self.writer, left):]
channel.Channel.send = send
def prepare(x, out):
    return lambda: out.copy_(x + x)
"""
    with pytest.raises(JobError) as error:
        graded(text, tmp_path)
    assert error.value.failure in ("tampered", "launch")


@pytest.mark.parametrize("handle", ["[]", "[0, {'hex': 'zz'}, 1, 0, 0, 0, 0, 0]", "'/etc/passwd'", "None", "[1] * 8"])
def test_memory_that_is_not_as_agreed_is_refused(handle: str, tmp_path: Path) -> None:
    text = f"""
import tilewright_agent.worker.cuda_host as host
host.CudaHost.share = lambda self, buffer: {handle}
def prepare(x, out):
    return lambda: out.copy_(x + x)
"""
    with pytest.raises(JobError, match="not as agreed") as error:
        graded(text, tmp_path)
    assert error.value.failure == "tampered"


def test_a_kernel_that_dies_says_how(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="SIGSEGV") as error:
        graded("def prepare(x, out):\n    return lambda: os.kill(os.getpid(), 11)\n", tmp_path)
    assert error.value.failure == "crash"


def test_tolerances_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        grading.TOLERANCE["f32"] = 1e-5  # type: ignore[index]


def test_fewer_sets_rotate_where_they_do_not_fit() -> None:
    class Small(Cuda):
        made = 0

        def guarded(self, buffer: Any, shape: Any, dtype: str, strides: Any = None) -> Any:
            self.made += 1
            if self.made > 7:  # two for the check, two for each of two sets, and one of a third
                raise JobError("out of memory", "it is full")
            return super().guarded(buffer, shape, dtype, strides)

    (result,) = graded_on_fake(job(DOUBLE, measure=True), Small(fake_torch))
    assert (result["correct"], result["sets"]) == (True, 2)
