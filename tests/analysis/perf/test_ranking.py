"""The model's ranking of tile shapes against what an H200 measured (`h200_gemm.json`, docs/measurements.md)."""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path

import pytest

from tilewright.frontend import parse_module
from tilewright.ir import nodes as ir
from tilewright.source import SourceText
from tilewright_analysis.perf import estimate

MEASURED = json.loads((Path(__file__).parent / "h200_gemm.json").read_text())
EXAMPLE = (Path(__file__).parents[3] / "examples" / "gemm.py").read_text()


@cache
def variant(name: str) -> ir.Kernel:
    """The kernel `gemm` of the example with the tile, stages, warps and group that a name has."""
    *values, warps, group = map(int, name.split("_"))
    text = EXAMPLE.replace("warps=8, reference", f"warps={warps}, reference", 1)
    unit = next(u for u in parse_module(SourceText(text.encode(), "gemm.py")).units if u.name == "gemm")
    made = unit.with_consts(**dict(zip(("BM", "BN", "BK", "STAGES"), values, strict=True)), GROUP=group).kernel
    assert made is not None
    return made


def ranks(values: list[float]) -> list[int]:
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


@pytest.mark.slow
def test_the_model_ranks_tiles_as_the_gpu_does() -> None:
    """Spearman's rank correlation, and what it costs to run the variant that the model likes best."""
    correlations: list[float] = []
    losses: list[float] = []
    for row in (row for run in MEASURED["runs"] for row in run):
        sizes = dict(zip("MNK", row["shape"], strict=True))
        names = list(row["us"])
        measured = [row["us"][n] for n in names]
        predicted = [estimate(variant(n), sizes).microseconds for n in names]
        correlations.append(statistics.correlation(ranks(measured), ranks(predicted)))
        losses.append(measured[predicted.index(min(predicted))] / min(measured))
    assert statistics.mean(correlations) > 0.84 and min(correlations) > 0.5
    assert statistics.median(losses) < 1.03 and max(losses) < 1.4
