"""The worker on a real GPU: right, timed beside its baseline, and unharmed by kernels that misbehave."""

from __future__ import annotations

import pytest

from agent.gpu_jobs import BAD_MODULES
from agent.support import FMA, GEMM, SOFTMAX, unit
from tilewright_agent.optimize import optimize
from tilewright_agent.runner import Runner, run_unit
from tilewright_agent.worker.protocol import PROTOCOL

pytestmark = pytest.mark.gpu

STRAY = BAD_MODULES["illegal access"]
HANG = """
import torch
def prepare(*tensors):
    return lambda: [torch.cuda._sleep(1 << 40) for _ in range(100)]
"""


@pytest.mark.parametrize("text", [GEMM, FMA, SOFTMAX])
def test_kernels_are_right_and_timed(text: str) -> None:
    result = run_unit(unit(text))
    assert result.status == "ok", result.message
    assert result.correct is True, result.message
    assert result.median_ms is not None and result.baseline_ms is not None
    assert 0.5 < result.baseline_ms / result.median_ms < 4
    assert "interpreter" not in result.label


@pytest.mark.parametrize(("module", "failures"), [(STRAY, {"illegal access", "launch"}), (HANG, {"timeout"})])
def test_a_kernel_that_misbehaves_leaves_the_worker_alone(module: str, failures: set[str]) -> None:
    argument = {"name": "X", "dtype": "f32", "role": "in"}
    out = {"name": "OUT", "dtype": "f32", "role": "out"}
    job = {
        "type": "job", "protocol": PROTOCOL, "id": "bad", "kernel": "bad", "device": "gpu", "module": module,
        "arguments": [argument, out], "reference": "X * 2", "seconds": 20,
        "cases": [{"sizes": {}, "shapes": {"X": [64], "OUT": [64]}, "seed": 1}],
    }  # fmt: skip
    with Runner() as session:
        result = session.connection.request(job)
        assert result["failure"] in failures, result["message"]
        after = session.run(unit(FMA), [{"N": 1000}], measured=0)
    assert after.correct is True, after.message


def test_optimize_measures() -> None:
    slow = GEMM.replace("BM: Const = 128, BN: Const = 256", "BM: Const = 64, BN: Const = 64").replace(
        "warps=8", "warps=4"
    )
    result = optimize(unit(slow), runner="local", limit=8)
    assert result.variants[0].measured_ms is not None, result.summary
    assert result.proposed != result.original, result.summary
