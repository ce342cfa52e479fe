"""Grading on the interpreter: kernels that are right, and kernels that are wrong in each way it looks for."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from agent.judging import graded_here
from agent.support import FMA, unit
from tilewright_agent.jobs import build_job
from tilewright_agent.worker.grade import JobError
from tilewright_agent.worker.interpreter import GUARD, Interpreter
from tilewright_agent.worker.interpreter_host import InterpreterHost

Launch = Callable[..., None]


class Samples:
    """A clock that says always the same."""

    def __init__(self, launches: Sequence[Callable[[], None]], milliseconds: float) -> None:
        self.launches, self.milliseconds = list(launches), milliseconds

    def cold(self, turn: int) -> float:
        self.launches[turn % len(self.launches)]()
        return self.milliseconds

    warm = cold

    def graph(self) -> bool:
        return False

    def replay(self) -> float:
        raise AssertionError("there is no graph")


class Clocked(Interpreter):
    """The judge's side of the interpreter, with a clock for baselines."""

    def sampler(self, launches: Sequence[Callable[[], None]]) -> Samples:
        return Samples(launches, 0.6)


class Python(InterpreterHost):
    """The interpreter's side of kernels with Python functions by name, and a clock that can be read."""

    def __init__(self, clock: bool, **launches: Launch) -> None:
        super().__init__()
        self.functions, self.clock = launches, clock
        self.launches = 0

    def load(self, program: dict[str, Any]) -> Callable[[Sequence[Any]], Callable[[], None]]:
        launch = self.functions[program["kernel"]]

        def bind(tensors: Sequence[Any]) -> Callable[[], None]:
            def run() -> None:
                self.launches += 1
                launch(*tensors)

            return run

        return bind

    def sampler(self, launches: Sequence[Callable[[], None]]) -> Samples | None:
        return Samples(launches, 0.5) if self.clock else None


def job(**more: Any) -> dict[str, Any]:
    return {
        "kernel": "double",
        "arguments": [{"name": "X", "dtype": "f32", "role": "in"}, {"name": "OUT", "dtype": "f32", "role": "out"}],
        "reference": "X * 2",
        "cases": [{"sizes": {"N": 100}, "shapes": {"X": [10, 10], "OUT": [10, 10]}, "seed": 1, "measure": True}],
        **more,
    }


def graded(launch: Launch, clock: bool = False, **more: Any) -> dict[str, Any]:
    (result,) = graded_here(job(**more), Clocked(), lambda: Python(clock, double=launch))
    return result


def double(x: Any, out: Any) -> None:
    out[...] = x * 2


def allocation(tensor: Any) -> Any:
    """All elements of the allocation that holds a tensor."""
    base = tensor
    while isinstance(base.base, np.ndarray):
        base = base.base
    return base


def outside(tensor: Any, index: int) -> None:
    """Write to an element of the allocation that holds a tensor, as a stray pointer would."""
    allocation(tensor)[index] = 0


def test_a_right_kernel_is_right() -> None:
    result = graded(double)
    assert (result["correct"], result["message"], result["max_error"]) == (True, "", 0.0)
    assert result.get("median_ms") is None


def test_a_time_is_reported_where_there_is_a_clock() -> None:
    result = graded(double, clock=True)
    assert (result["median_ms"], result["baseline_ms"], result["repetitions"]) == (0.5, 0.6, 200)


def test_an_element_that_is_off_is_named_with_both_values() -> None:
    def wrong(x: Any, out: Any) -> None:
        double(x, out)
        out[3, 7] = 100

    result = graded(wrong)
    assert result["correct"] is False
    assert "1 of 100 elements" in result["message"]
    assert "[3, 7]: 100 instead of" in result["message"]


def test_elements_that_are_never_written_show() -> None:
    def partial(x: Any, out: Any) -> None:
        out[:9] = x[:9] * 2

    result = graded(partial)
    assert result["correct"] is False
    assert "10 of 100 elements are NaN" in result["message"]
    assert "[9, 0]" in result["message"]


@pytest.mark.parametrize("index", [GUARD - 1, GUARD + 100])
@pytest.mark.parametrize("which", ["X", "OUT"])
def test_a_write_beside_a_tensor_shows(index: int, which: str) -> None:
    def stray(x: Any, out: Any) -> None:
        double(x, out)
        outside(out if which == "OUT" else x, index)

    result = graded(stray)
    assert result["correct"] is False
    assert f"outside {which}" in result["message"]


def test_a_read_beside_a_tensor_poisons_the_result() -> None:
    def reader(x: Any, out: Any) -> None:
        base = allocation(x)
        out[...] = np.roll(base, -1)[GUARD : GUARD + 100].reshape(10, 10) * 0 + x * 2

    assert graded(reader)["correct"] is False


def test_a_changed_input_shows() -> None:
    def greedy(x: Any, out: Any) -> None:
        double(x, out)
        x[0, 0] += 1

    assert "changed its input X" in graded(greedy)["message"]


def test_a_replayed_answer_shows_after_timing() -> None:
    remembered: list[Any] = []

    def replay(x: Any, out: Any) -> None:
        if not remembered:
            remembered.append(x * 2)
        out[...] = remembered[0]

    result = graded(replay, clock=True)
    assert result["correct"] is False
    assert "in the timed launches" in result["message"]


def test_a_wrong_kernel_is_not_timed() -> None:
    host = Python(True, double=lambda x, out: None)
    (result,) = graded_here(job(), Clocked(), lambda: host)
    assert "median_ms" not in result
    assert host.launches == 1


def test_rounding_of_the_output_type_is_no_error_and_more_is() -> None:
    half = [{"name": "X", "dtype": "f16", "role": "in"}, {"name": "OUT", "dtype": "f16", "role": "out"}]

    def third(x: Any, out: Any) -> None:
        out[...] = (x.astype(np.float32) / 3).astype(np.float16)

    def sloppy(x: Any, out: Any) -> None:
        out[...] = (x.astype(np.float32) / 3 * 1.01).astype(np.float16)

    assert graded(third, arguments=half, reference="X / 3")["correct"] is True
    assert graded(sloppy, arguments=half, reference="X / 3")["correct"] is False
    assert graded(sloppy, arguments=half, reference="X / 3", tolerance={"OUT": 0.1})["correct"] is True


def test_beyond_the_range_of_f16_infinity_is_right_and_within_it_is_not() -> None:
    half = [{"name": "X", "dtype": "f16", "role": "in"}, {"name": "OUT", "dtype": "f16", "role": "out"}]

    def scaled(factor: float) -> Launch:
        def launch(x: Any, out: Any) -> None:
            with np.errstate(over="ignore"):
                out[...] = x.astype(np.float32) * factor

        return launch

    def endless(x: Any, out: Any) -> None:
        out[...] = np.sign(x) * np.inf

    assert graded(scaled(60000), arguments=half, reference="X * 60000")["correct"] is True
    assert graded(scaled(-60000), arguments=half, reference="X * 60000")["correct"] is False
    assert "inf instead of" in graded(endless, arguments=half, reference="X * 60000")["message"]


def tables(*drawn: list[int]) -> list[dict[str, str]]:
    data = [zlib.compress(np.array(d, "<i4").tobytes()) for d in drawn]
    return [{"IDS": base64.b64encode(d).decode()} for d in data]


def test_index_tensors_come_with_the_job_and_change_between_launches() -> None:
    seen: list[int] = []
    arguments = [{"name": "IDS", "dtype": "i32", "role": "in"}, {"name": "OUT", "dtype": "i32", "role": "out"}]

    def copy(x: Any, out: Any) -> None:
        seen.append(int(x[0]))
        out[...] = x

    drawn = tables([10, 1], [11, 2], [12, 3], [13, 4], [14, 5])
    case = {"sizes": {}, "shapes": {"IDS": [2], "OUT": [2]}, "seed": 1, "measure": True, "tables": drawn}
    result = graded(copy, True, arguments=arguments, reference="IDS", cases=[case])
    assert result["correct"] is True
    timed = 2 + 200 + 50  # warm-ups come first
    assert seen[0] == 10 and set(seen[1:timed]) == {11, 12, 13}
    assert set(seen[-3:]) == {14, 10, 11}, "new ones for the launches by the clock of the judge"

    for wrong, says in ((tables([1, 2, 3]), "3 elements"), ([{"IDS": "AAAA"}], "IDS cannot be read")):
        with pytest.raises(JobError, match=says) as error:
            graded(copy, arguments=arguments, reference="IDS", cases=[{**case, "tables": wrong}])
        assert error.value.failure == "bad job"


@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinities_and_nans_of_the_reference_are_wanted() -> None:
    def invert(x: Any, out: Any) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            out[...] = x * 0 / 0

    result = graded(invert, reference="X * 0 / 0")
    assert result["correct"] is True


def test_an_inout_argument_starts_from_its_own_values() -> None:
    arguments = [{"name": "X", "dtype": "f32", "role": "in"}, {"name": "OUT", "dtype": "f32", "role": "inout"}]

    def accumulate(x: Any, out: Any) -> None:
        out += x

    assert graded(accumulate, arguments=arguments, reference="OUT + X")["correct"] is True
    assert graded(double, arguments=arguments, reference="OUT + X")["correct"] is False


def test_without_a_reference_nothing_is_claimed() -> None:
    result = graded(double, reference="")
    assert result["correct"] is None
    assert "no reference" in result["message"]


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"arguments": []}, "bad job"),
        ({"arguments": [{"name": "X"}]}, "bad job"),
        ({"arguments": ["X"]}, "bad job"),
        ({"cases": []}, "bad job"),
        ({"cases": [{"sizes": {}}]}, "bad job"),
        ({"reference": "Y * 2"}, "reference"),
        ({"reference": "X @ X[:1]"}, "reference"),
    ],
)
def test_a_job_that_makes_no_sense_says_why(change: dict[str, Any], failure: str) -> None:
    with pytest.raises(JobError) as error:
        graded(double, **change)
    assert error.value.failure == failure
    assert str(error.value)


def test_a_kernel_goes_through_the_interpreter() -> None:
    found = unit(FMA)
    assert found.kernel is not None
    made = build_job(found, found.kernel, "1", [{"N": 100}, {"N": 3000}], gpu=False)
    first, second = graded_here(made, Interpreter(), InterpreterHost)
    assert (first["correct"], second["correct"]) == (True, True)
    made["reference"] = "X * Y + Y"
    assert graded_here(made, Interpreter(), InterpreterHost)[0]["correct"] is False


def test_bf16_goes_through_the_interpreter() -> None:
    text = FMA.replace("f32", "bf16")
    found = unit(text)
    assert found.kernel is not None
    made = build_job(found, found.kernel, "1", [{"N": 300}], gpu=False)
    assert graded_here(made, Interpreter(), InterpreterHost)[0]["correct"] is True
