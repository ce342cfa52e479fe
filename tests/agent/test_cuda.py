"""The GPU side of the worker on a stand-in for torch: loading, poison, guards, comparison, timing, failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agent import fake_torch
from agent.judging import graded_on_fake
from tilewright_agent.worker.cuda import GUARD, Cuda
from tilewright_agent.worker.grade import JobError

# What lowering writes, in miniature: `prepare` checks and returns the launch.
MODULE = """
import sys
torch = sys.modules["agent.fake_torch"]
def prepare(x, out):
    if x.shape != out.shape:
        raise ValueError("shapes differ")
    def work():
        torch.advance(0.25)
        {body}
    def run():
        torch.launch(work)
    return run
"""
DOUBLE = MODULE.format(body="out.copy_(x + x)")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    fake_torch.pending_errors.clear()
    yield


def job(module: str = DOUBLE, dtype: str = "f32", measure: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "kernel": "double",
        "module": module,
        "arguments": [{"name": "X", "dtype": dtype, "role": "in"}, {"name": "OUT", "dtype": dtype, "role": "out"}],
        "reference": "X + X",
        "cases": [{"sizes": {"N": 6}, "shapes": {"X": [4, 6], "OUT": [4, 6]}, "seed": 1, "measure": measure}],
        **more,
    }


def graded(**options: Any) -> dict[str, Any]:
    (result,) = graded_on_fake(job(**options))
    return result


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32", "u8"])
def test_a_right_module_is_right(dtype: str) -> None:
    result = graded(dtype=dtype)
    assert (result["correct"], result["message"]) == (True, "")


@pytest.mark.parametrize("shape", ["4, 6", "(4, 6)"])
def test_a_reference_may_reshape(shape: str) -> None:
    assert graded(reference=f"(X + X).reshape(24).reshape({shape})")["correct"] is True


def test_references_are_not_computed_in_tf32() -> None:
    fake_torch.backends.cuda.matmul.allow_tf32 = True
    Cuda(fake_torch)
    assert fake_torch.backends.cuda.matmul.allow_tf32 is False


def test_launch_and_baseline_are_timed_without_the_delay_before_them() -> None:
    result = graded(measure=True)
    assert result["median_ms"] == pytest.approx(0.25)
    assert result["baseline_ms"] == pytest.approx(0.0)
    assert result["spread_ms"] == pytest.approx(0.0)
    assert result["repetitions"] >= 15
    # Each sample keeps the stream busy once for either side, so that the host's part of a launch is not timed.
    assert fake_torch.sleeps >= 2 * result["repetitions"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("out.copy_(x)", "24 of 24 elements differ"),
        ("out[:3] = (x + x)[:3]", "6 of 24 elements are NaN"),
        ("out.copy_(x + x); x.zero_()", "changed its input X"),
        (f"out.copy_(x + x); _base(out)[{GUARD - 1}] = 0", "outside OUT"),
        (f"out.copy_(x + x); _base(x)[{GUARD + 24}] = 0", "outside X"),
    ],
)
def test_a_wrong_module_is_wrong(body: str, says: str) -> None:
    helper = "def _base(t):\n    a = t.array\n    while hasattr(a.base, 'base'): a = a.base\n    return a\n"
    result = graded(module=helper + MODULE.format(body=body))
    assert result["correct"] is False
    assert says in result["message"]


def test_the_first_wrong_element_is_named() -> None:
    result = graded(module=MODULE.format(body="out.copy_(x + x); out[2, 5] = 1000"))
    assert "[2, 5]: 1000 instead of" in result["message"]


@pytest.mark.parametrize(
    ("module", "failure", "says"),
    [
        ("def prepare(:", "compile", "SyntaxError"),
        ("import nothing_of_that_name", "compile", "nothing_of_that_name"),
        ("x = 1", "compile", "prepare"),
        ("", "bad job", "generated module"),
        ("def prepare(x, out): raise ValueError('rows are 3 bytes')", "launch", "rows are 3 bytes"),
        (MODULE.format(body="raise OSError(28, 'No space left on device')"), "disk full", "No space left"),
        (MODULE.format(body="raise MemoryError"), "out of memory", "Fake GPU"),
        (MODULE.format(body="torch.pending_errors.append(RuntimeError('CUDA error: an illegal memory access was'))"),
         "illegal access", "Fake GPU: CUDA error"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_named(module: str, failure: str, says: str) -> None:
    with pytest.raises(JobError) as error:
        graded(module=module)
    assert error.value.failure == failure
    assert says in str(error.value)


def test_a_tensor_that_does_not_fit_is_out_of_memory() -> None:
    huge = [{"sizes": {}, "shapes": {"X": [1 << 29], "OUT": [1 << 29]}, "seed": 1}]
    with pytest.raises(JobError) as error:
        graded_on_fake(job(cases=huge))
    assert error.value.failure == "out of memory"


def test_a_reference_takes_rows_by_number_and_8_bit_numbers_are_no_mask() -> None:
    functions = Cuda(fake_torch).backend
    x = fake_torch.Tensor(np.arange(12.0).reshape(4, 3))
    for kind in (np.uint8, np.int32, np.int64):
        rows = fake_torch.Tensor(np.array([1, 0, 1], kind))
        assert functions.index_range(rows) == (0, 1)
        np.testing.assert_array_equal(functions.take(x, (rows,)).array, x.array[[1, 0, 1]])
        np.testing.assert_array_equal(functions.take(x, (slice(None), rows)).array, x.array[:, [1, 0, 1]])
    for other in (x, fake_torch.Tensor(np.array([True]))):
        with pytest.raises(TypeError, match="integers"):
            functions.index_range(other)


def test_given_elements_and_expected_ones_replace_a_reference() -> None:
    import base64

    x = np.arange(24, dtype=np.float32)
    case = {
        "sizes": {"N": 6}, "shapes": {"X": [4, 6], "OUT": [4, 6]}, "seed": 1,
        "given": {"X": base64.b64encode(x.tobytes()).decode()},
        "expected": {"OUT": base64.b64encode((2 * x).tobytes()).decode()},
    }  # fmt: skip
    (right,) = graded_on_fake(job(reference="", cases=[case]))
    assert right["correct"] is True
    (wrong,) = graded_on_fake(job(MODULE.format(body="out.copy_(x)"), reference="", cases=[case]))
    assert wrong["correct"] is False


def test_the_source_of_a_generated_function_is_found_without_a_file() -> None:
    text = "import inspect\n" + DOUBLE.replace(
        "def run():", "assert 'advance' in inspect.getsource(prepare)\n    def run():"
    )
    assert graded(module=text)["correct"] is True
