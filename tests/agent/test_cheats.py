"""The catalogue of known cheats: each must be caught, and none may get a time."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import tilewright_reference as reference
from agent import fake_torch
from agent.test_cuda import DOUBLE, job
from tilewright_agent.worker import grade as grading
from tilewright_agent.worker import timing
from tilewright_agent.worker.cuda import Cuda
from tilewright_agent.worker.grade import JobError, grade

HEAD = 'import sys\ntorch = sys.modules["agent.fake_torch"]\n'


@pytest.fixture(autouse=True)
def undo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a cheat replaces is put back, which `setattr` to itself makes monkeypatch do."""
    fake_torch.pending_errors.clear()
    for owner, name in (
        (fake_torch._Event, "elapsed_time"), (fake_torch._Event, "record"), (fake_torch.cuda, "Event"),
        (fake_torch.cuda, "synchronize"), (fake_torch, "equal"), (fake_torch, "where"), (fake_torch.Tensor, "__le__"),
        (fake_torch.Tensor, "__add__"), (reference.Reference, "evaluate"), (grading, "TOLERANCE"),
        (grading, "Difference"), (Cuda, "difference"), (timing, "_elapsed"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, vars(owner)[name])
    yield
    fake_torch._elsewhere.clear()


def graded(text: str, **more: Any) -> dict[str, Any]:
    (result,) = grade(job(HEAD + text, measure=True, **more), Cuda(fake_torch), lambda *_: None)
    return result


def test_an_honest_kernel_is_right_and_has_all_its_times() -> None:
    (result,) = grade(job(DOUBLE, measure=True), Cuda(fake_torch), lambda *_: None)
    assert (result["correct"], result["message"]) == (True, "")
    assert (result["median_ms"], result["warm_ms"], result["method"]) == (0.25, 0.25, "events")
    assert result["sets"] == grading.SETS


def test_a_short_kernel_is_timed_warm_in_a_graph() -> None:
    (result,) = grade(job(DOUBLE.replace("0.25", "0.01"), measure=True), Cuda(fake_torch), lambda *_: None)
    assert (result["correct"], result["method"]) == (True, "graph")
    assert result["warm_ms"] == pytest.approx(0.01)


def test_a_short_kernel_that_cannot_be_captured_is_timed_by_events() -> None:
    text = DOUBLE.replace("0.25", "0.01").replace(
        "torch.launch(work)", "torch.launch(work) if not torch._captured else 1 / 0  # not permitted while capturing"
    )
    (result,) = grade(job(text, measure=True), Cuda(fake_torch), lambda *_: None)
    assert (result["correct"], result["method"]) == (True, "events")
    assert result["warm_ms"] == pytest.approx(0.01)


def test_inputs_rotate_while_timing() -> None:
    seen = types.ModuleType("seen_by_the_kernel")
    seen.places = []  # type: ignore[attr-defined]
    sys.modules["seen_by_the_kernel"] = seen
    text = DOUBLE.replace("out.copy_", "sys.modules['seen_by_the_kernel'].places.append(id(x)); out.copy_")
    (result,) = grade(job(text, measure=True), Cuda(fake_torch), lambda *_: None)
    assert result["correct"] is True
    places = seen.places[1:]  # type: ignore[attr-defined]
    assert len(set(places)) == grading.SETS
    assert all(a != b for a, b in pairwise(places[:20])), "no two cold launches in a row are alike"


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
}


@pytest.mark.parametrize("text", CHEATS.values(), ids=CHEATS.keys())
def test_a_cheat_is_wrong_and_gets_no_time(text: str) -> None:
    result = graded(text)
    assert result["correct"] is False
    assert result["message"]
    assert result.get("median_ms") is None and result.get("warm_ms") is None


def test_a_cheat_says_how_it_was_caught() -> None:
    assert "in the same places" in graded(CHEATS["works only the first time"])["message"]
    assert "in the timed launches" in graded(CHEATS["replays the first answer"])["message"]
    assert "outside the stream" in graded(CHEATS["works on another stream"])["message"]


HONEST = """
def prepare(x, out):
    def run():
        torch.launch(lambda: (torch.advance(0.25), out.copy_(x + x)))
        LATER
    NOW
    return run
"""
PATCHES = {
    "the timer": ("torch.cuda.Event.elapsed_time", "torch.cuda.Event.elapsed_time = lambda self, other: 0.001"),
    "the events": ("torch.cuda.Event", "torch.cuda.Event = type('Event', (torch.cuda.Event,), {})"),
    "waiting": ("torch.cuda.synchronize", "torch.cuda.synchronize = lambda: None"),
    "equality": ("torch.equal", "torch.equal = lambda a, b: True"),
    "a comparison": ("torch.Tensor.__le__", "torch.Tensor.__le__ = lambda a, b: a == a"),
    "arithmetic of the reference": ("torch.Tensor.__add__", "torch.Tensor.__add__ = lambda a, b: a"),
    "the reference": (
        "tilewright_reference.language.Reference.evaluate",
        "sys.modules['tilewright_reference.language'].Reference.evaluate = "
        "lambda self, t, b, precise, sizes: {'OUT': t['X']}",
    ),
    "the comparison": (
        "tilewright_agent.worker.cuda.Cuda.difference",
        "sys.modules['tilewright_agent.worker.cuda'].Cuda.difference = "
        "lambda self, *_: sys.modules['tilewright_agent.worker.grade'].Difference(0.0)",
    ),
    "the tolerances": (
        "tilewright_agent.worker.grade.TOLERANCE",
        "sys.modules['tilewright_agent.worker.grade'].TOLERANCE = {'f32': 1e9}",
    ),
    "the clock of the worker": (
        "tilewright_agent.worker.timing._elapsed",
        "sys.modules['tilewright_agent.worker.timing']._elapsed = lambda torch, events: [0.001] * len(events)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("when", ["NOW", "LATER"])
@pytest.mark.parametrize(("name", "patch"), PATCHES.values(), ids=PATCHES.keys())
def test_a_kernel_that_replaces_what_judges_it_is_caught(name: str, patch: str, when: str) -> None:
    text = HONEST.replace(when, patch).replace("NOW", "pass").replace("LATER", "pass")
    with pytest.raises(JobError) as error:
        graded(text)
    assert error.value.failure == "tampered"
    assert f"replaced {name}," in str(error.value)


def test_tolerances_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        grading.TOLERANCE["f32"] = 1e-5  # type: ignore[index]


def test_fewer_sets_rotate_where_they_do_not_fit() -> None:
    class Small(Cuda):
        made = 0

        def guarded(self, shape: Any, dtype: str, strides: Any = None) -> Any:
            self.made += 1
            if self.made > 7:  # two for the check, two for each of two sets, and one of a third
                raise JobError("out of memory", "it is full")
            return super().guarded(shape, dtype, strides)

    (result,) = grade(job(DOUBLE, measure=True), Small(fake_torch), lambda *_: None)
    assert (result["correct"], result["sets"]) == (True, 2)
