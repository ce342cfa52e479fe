"""Batched products: proved, and the same numbers as NumPy's, whatever the order of events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import Schedule, run
from tilewright_analysis import check_unit

UNITS = {u.name: u for u in read((Path(__file__).parents[2] / "examples" / "batched_gemm.py").read_bytes()).units}
# Small tiles of the same kernels: the shapes below then have several of them.
SMALL = {
    "batched_gemm": {"BM": 128, "BN": 64, "BK": 64, "STAGES": 2, "GROUP": 2},
    "batched_gemm_sm80": {"BM": 64, "BN": 64, "BK": 32, "STAGES": 3},
}
EVEN, ODD = (2, 256, 128, 128), (3, 257, 136, 72)


def product(name: str, shape: tuple[int, int, int, int], schedule: Schedule, **consts: int) -> float:
    """The largest difference from NumPy's product."""
    batch, m, n, k = shape
    rng = np.random.default_rng(batch * m + k)
    a = rng.standard_normal((batch, m, k)).astype(np.float16)
    b = rng.standard_normal((batch, k, n)).astype(np.float16)
    c = np.full((batch, m, n), np.nan, np.float16)
    kernel = UNITS[name].with_consts(**consts).kernel
    assert kernel is not None
    run(expand(kernel), [a, b, c], schedule=schedule)
    return float(np.abs(c - a.astype(np.float32) @ b.astype(np.float32)).max())


@pytest.mark.parametrize("name", UNITS)
def test_proved(name: str) -> None:
    report = check_unit(UNITS[name])
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize("shape", [EVEN, ODD], ids=["even", "odd"])
@pytest.mark.parametrize("name", UNITS)
def test_the_numbers_are_those_of_numpy(name: str, shape: tuple[int, int, int, int]) -> None:
    assert product(name, shape, Schedule(tags=True)) < 0.05
    assert product(name, shape, Schedule(happens_before=True), **SMALL[name]) < 0.05


@pytest.mark.parametrize("name", UNITS)
def test_every_order_of_events_gives_them(name: str) -> None:
    for seed in range(3):
        assert product(name, (2, 129, 72, 136), Schedule(seed, adversarial=True), **SMALL[name]) < 0.05
