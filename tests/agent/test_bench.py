"""Benchmarks over shapes, against the reference or another kernel; pretended GPUs give the times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.judging import graded_here, graded_on_fake
from agent.support import FMA, GEMM, GEMM_SM80, SOFTMAX, unit
from agent.test_cuda import job as cuda_job
from agent.test_grade import Clocked, Python, double, job
from agent.test_runner import fake
from tilewright_agent.bench import BadSizes, bench, bench_shapes
from tilewright_agent.runner import Runner
from tilewright_agent.worker.grade import JobError

# Times grow with N; a second kernel takes twice as long.
BODY = """
with open(LOG, "a") as log: log.write(json.dumps(job) + chr(10))
(c,) = job["cases"]
n = c["sizes"]["N"]
if n == 13:
    say({"type": "result", "id": job["id"], "status": "failed", "failure": "out of memory", "message": "too large",
         "device": "NVIDIA H200", "cases": []})
else:
    case = {"sizes": c["sizes"], "correct": True, "max_error": 1e-6, "message": "", "median_ms": n / 100,
            "spread_ms": n / 1e4, "baseline_ms": n / (50 if "baseline" in job else 100), "baseline_spread_ms": 0.0}
    say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": "", "device": "NVIDIA H200",
         "cases": [case]})
"""


def body(log: Path) -> str:
    return f"LOG = {str(log)!r}\n" + BODY


def kernel_of(text: str) -> Any:
    found = unit(text).kernel
    assert found is not None
    return found


def test_each_shape_is_a_job_of_its_own_and_one_that_fails_leaves_the_others(tmp_path: Path) -> None:
    log = tmp_path / "jobs"
    steps: list[float] = []
    with Runner(fake(tmp_path, body(log))) as session:
        shapes = [{"N": n} for n in (100, 13, 300)]
        found = list(bench(session, unit(FMA), shapes, progress=lambda message, share: steps.append(share)))
    assert [dict(s) for s, _ in found] == shapes
    assert [r.status for _, r in found] == ["ok", "failed", "ok"]
    assert [r.median_ms for _, r in found] == [1.0, None, 3.0]
    assert found[1][1].failure == "out of memory"
    jobs = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(c["measure"] for j in jobs for c in j["cases"]) and len(jobs) == 3
    assert steps == sorted(steps)


def test_another_kernel_is_lowered_and_raced_in_the_same_job(tmp_path: Path) -> None:
    log = tmp_path / "jobs"
    other = unit(FMA.replace("fused_multiply_add", "other").replace("1024", "256"))
    with Runner(fake(tmp_path, body(log))) as session:
        ((_, result),) = bench(session, unit(FMA), [{"N": 100}], other)
    assert (result.median_ms, result.baseline_ms) == (1.0, 2.0)
    sent = json.loads(log.read_text())
    assert sent["baseline"]["kernel"] == "other"
    assert "def prepare(" in sent["baseline"]["module"] and sent["baseline"]["module"] != sent["module"]


@pytest.mark.parametrize(
    ("ours", "other", "shape", "says"),
    [
        (FMA, SOFTMAX, {"N": 100}, "size M"),
        (SOFTMAX, SOFTMAX.replace("softmax(\n", "other(\n").replace("BN: Const = 1024", "BN: Const = 64"),
         {"M": 4, "N": 100}, "assumes N <= 64"),
        (FMA, FMA.replace("Y: Global[f32, N]", "Y: Global[f16, N]").replace("x * y + x", "x * y.to(f32) + x"),
         {"N": 100}, "argument 2 is f32 100 (in)"),
        (GEMM_SM80, GEMM_SM80.replace("A: Global[f16, M, K]", "A: Global[f16, K, M]")
         .replace("A.tile((pm * BM, k), (BM, BK))", "A.tile((k, pm * BM), (BK, BM))")
         .replace("tw.mma(a, b, acc)", "tw.mma(tw.transpose(a), b, acc)"),
         {"M": 64, "N": 64, "K": 32}, "argument 1"),
    ],
)  # fmt: skip
def test_kernels_of_other_arguments_cannot_be_raced(ours: str, other: str, shape: dict[str, int], says: str) -> None:
    with Runner() as session:
        ((_, result),) = bench(session, unit(ours), [shape], unit(other))
    assert result.status == "failed"
    assert says in result.message


def test_without_a_gpu_both_kernels_are_compared_with_the_reference() -> None:
    wrong = unit(FMA.replace("x * y + x)", "x * y + y)").replace("fused_multiply_add", "other"))
    with Runner() as session:
        ((_, right),) = bench(session, unit(FMA), [{"N": 100}], unit(FMA))
        ((_, result),) = bench(session, unit(FMA), [{"N": 100}], wrong)
    assert (right.correct, right.cases[0].baseline_message) == (True, "")
    assert (result.correct, result.median_ms) == (True, None)
    assert "instead of" in result.cases[0].baseline_message


# ------------------------------------------------------------------------------------------------ sizes


def test_all_combinations_are_run_and_what_is_left_out_gets_a_default() -> None:
    shapes = bench_shapes(kernel_of(GEMM), {"M": [64, 128], "K": [8, 16]}, gpu=True)
    assert len(shapes) == 4
    assert {(s["M"], s["K"]) for s in shapes} == {(64, 8), (64, 16), (128, 8), (128, 16)}
    assert {s["N"] for s in shapes} == {4096}
    assert bench_shapes(kernel_of(GEMM), {}, gpu=True)[0]["M"] == 4096
    assert bench_shapes(kernel_of(GEMM), {}, gpu=False)[0]["M"] < 1024


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"Q": [1]}, "no size Q; it has K, M, N"),
        ({"M": [0]}, "from 1 on"),
        ({"M": []}, "from 1 on"),
        ({"K": [7]}, "K % 8 == 0"),
        ({"M": list(range(1, 2000))}, "1999 combinations"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(wanted: dict[str, list[int]], says: str) -> None:
    with pytest.raises(BadSizes, match=says):
        bench_shapes(kernel_of(GEMM), wanted, gpu=False)


# ------------------------------------------------------------------------------------------------ in the worker


def raced(rival: Any, **more: Any) -> dict[str, Any]:
    made = job(**{"baseline": {"kernel": "rival"}, **more})
    (result,) = graded_here(made, Clocked(), lambda: Python(True, double=double, rival=rival))
    return result


def test_a_right_rival_is_timed() -> None:
    result = raced(double)
    assert (result["median_ms"], result["baseline_ms"], result["baseline_correct"]) == (0.5, 0.5, True)


def test_a_wrong_rival_is_no_opponent_and_the_reference_does_not_stand_in_for_it() -> None:
    def triple(x: Any, out: Any) -> None:
        out[...] = x * 3

    result = raced(triple)
    assert (result["correct"], result["median_ms"], result["baseline_ms"]) == (True, 0.5, None)
    assert result["baseline_correct"] is False and "instead of" in result["baseline_message"]


def test_a_baseline_that_is_no_program_is_a_bad_job() -> None:
    with pytest.raises(JobError) as error:
        raced(double, baseline="rival")
    assert error.value.failure == "bad job"


def test_on_a_gpu_two_kernels_of_one_name_are_two_modules() -> None:
    from agent.test_cuda import DOUBLE, MODULE

    slower = MODULE.format(body="torch.advance(0.75); out.copy_(x + x)")
    made = cuda_job(DOUBLE, measure=True, baseline={"kernel": "double", "module": slower})
    (result,) = graded_on_fake(made)
    assert (result["median_ms"], result["baseline_ms"]) == (pytest.approx(0.25), pytest.approx(1.0))
