"""Split contractions: each part as NumPy's, and their sum the whole product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import ArgumentError, Schedule, run
from tilewright_analysis import check_unit

UNITS = {u.name: u for u in read((Path(__file__).parents[2] / "examples" / "split_k_gemm.py").read_bytes()).units}
PARTIAL = ("split_k_gemm", "split_k_gemm_sm80")
PART = 128


def execute(name: str, arguments: list[np.ndarray], **consts: int) -> None:
    kernel = UNITS[name].with_consts(**consts).kernel
    assert kernel is not None
    run(expand(kernel), arguments, schedule=Schedule(tags=True))


@pytest.mark.parametrize("name", UNITS)
def test_proved(name: str) -> None:
    report = check_unit(UNITS[name])
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("shape", [(128, 256, 512), (70, 136, 264), (64, 128, 40)], ids=["even", "odd", "one part"])
@pytest.mark.parametrize("name", PARTIAL)
def test_parts_are_those_of_numpy_and_add_up_to_the_product(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    left, right = a.astype(np.float32), b.astype(np.float32)
    parts = np.full((-(-k // PART), m, n), np.nan, np.float32)
    c = np.full((m, n), np.nan, np.float16)
    execute(name, [a, b, parts], PART=PART)
    for s, part in enumerate(parts):
        here = slice(s * PART, (s + 1) * PART)
        assert np.allclose(part, left[:, here] @ right[here], atol=1e-3)
    execute("sum_of_parts", [parts, c])
    assert np.abs(c - left @ right).max() < 0.1


@pytest.mark.parametrize("name", PARTIAL)
def test_too_few_parts_are_refused(name: str) -> None:
    a, b = np.zeros((64, 264), np.float16), np.zeros((264, 64), np.float16)
    with pytest.raises(ArgumentError, match="SPLITS"):
        execute(name, [a, b, np.zeros((2, 64, 64), np.float32)], PART=PART)


@pytest.mark.parametrize("shape", [(128, 128, 512), (70, 136, 264), (64, 64, 40), (1, 8, 8)])
def test_parts_that_are_added_in_place_are_the_product(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    execute("split_k_gemm_atomic", [a, b, c], PART=PART)
    assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)
