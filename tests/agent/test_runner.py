"""Running kernels: on the interpreter for real, and through workers that misbehave or pretend to have a GPU."""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from agent.support import FMA, GEMM, GEMM_SM80, SOFTMAX, program, unit
from tilewright.frontend import KernelUnit, parse_module
from tilewright.source import SourceText
from tilewright_agent.runner import Runner, run_unit
from tilewright_agent.transport import Cancelled, Connection, ConnectionFailed, worker_command
from tilewright_agent.worker.protocol import PROTOCOL

HELLO = {
    "type": "hello", "protocol": PROTOCOL, "host": "box", "problem": "", "capabilities": ["run"],
    "devices": [{"kind": "gpu", "name": "NVIDIA H200"}], "versions": {"torch": "2.11.0", "triton": "3.6.0"},
}  # fmt: skip
# A worker with a pretended GPU; `answer(job)` is what each test makes of a job.
GPU = """
import json, os, sys, time
def say(m): print(json.dumps(m), flush=True)
{before}
say({hello})
def answer(job):
{body}
for line in sys.stdin:
    job = json.loads(line)
    if job["type"] == "job":
        answer(job)
"""


def fake(folder: Path, body: str, before: str = "", **hello: object) -> str:
    lines = "\n".join("    " + line for line in body.splitlines())
    return program(folder, GPU.format(before=before, hello=repr({**HELLO, **hello}), body=lines))


@pytest.mark.parametrize("text", [GEMM, GEMM_SM80, FMA, SOFTMAX])
def test_kernels_run_on_the_interpreter_and_are_right(text: str) -> None:
    steps: list[tuple[str, float]] = []
    result = run_unit(unit(text), progress=lambda message, share: steps.append((message, share)))
    assert result.status == "ok", result.message
    assert result.correct is True, result.message
    assert (result.device, result.label) == ("interpreter (no GPU)", "interpreter (no GPU)")
    assert result.median_ms is None and result.baseline_ms is None
    assert all(c.median_ms is None for c in result.cases)
    assert len(result.shapes) >= 2
    assert steps and all(0 <= share <= 1 for _, share in steps)


CASTS = """import tilewright as tw
from tilewright import Global, f8e4m3, f8e5m2, f32, u16, u32

N = tw.sizes("N")


@tw.kernel(reference="{reference}")
def cast(X: Global[{source}, N], Y: Global[{target}, N]):
    for i in tw.tiles(tw.cdiv(N, 256)):
        x = tw.load(X.tile((i * 256,), (256,)), other=0.0)
        tw.store(Y.tile((i * 256,), (256,)), {value})
"""


@pytest.mark.parametrize(
    ("source", "target", "value", "wrong", "reference"),
    [
        ("f8e4m3", "f32", "x.to(f32) * 2.0", "x.to(f32)", "Y = X.float() * 2"),
        ("f8e5m2", "f8e5m2", "(x.to(f32) * 2.0).to(f8e5m2)", "x", "Y = X.float() * 2"),
        ("f32", "f8e4m3", "x.to(f8e4m3)", "(x * 2.0).to(f8e4m3)", "Y = X"),
        ("u16", "u32", "x.to(u32) << 16", "x.to(u32) << 15", "Y = X.to(torch.int64) * 65536"),
    ],
)
def test_every_element_type_can_be_run(source: str, target: str, value: str, wrong: str, reference: str) -> None:
    names = {"source": source, "target": target, "reference": reference}
    result = run_unit(unit(CASTS.format(**names, value=value)))
    assert result.correct is True, result.message
    assert run_unit(unit(CASTS.format(**names, value=wrong))).correct is False


def examples() -> list[KernelUnit]:
    folder = Path(__file__).parents[2] / "examples"
    # A fault that needs many tiles does not show at the small sizes of a run; finding it is the verifier's part.
    files = [f for f in sorted(folder.glob("*.py")) if not f.name.startswith("faulty")]
    assert files
    return [u for f in files for u in parse_module(SourceText(f.read_bytes(), f.name)).units]


@pytest.mark.parametrize("example", examples(), ids=lambda u: f"{u.path}:{u.name}")
def test_examples_run_on_the_interpreter(example: KernelUnit) -> None:
    result = run_unit(example)
    assert result.status == "ok", result.message
    assert example.reference, "an example says what it computes"
    assert result.correct is True, result.message


ROWS = """import tilewright as tw
from tilewright import Global, f32, i32

T, V = tw.sizes("T", "V")


@tw.kernel(reference="OUT = TABLE[IDS]")
def rows(TABLE: Global[f32, V], IDS: Global[i32, T], OUT: Global[f32, T]):
    tw.assume(lambda t: 0 <= IDS[t] < V)
    for i in tw.tiles(tw.cdiv(T, 128)):
        ids = tw.load(IDS.tile((i * 128,), (128,)), other=0)
        tw.store(OUT.tile((i * 128,), (128,)), tw.load(TABLE.at((ids,))))
"""


def test_inputs_satisfy_what_a_kernel_assumes_of_its_data() -> None:
    right = run_unit(unit(ROWS), shapes=[{"T": 300, "V": 3}, {"T": 5, "V": 1}])
    assert right.correct is True, right.message
    wrong = ROWS.replace("TABLE.at((ids,))", "TABLE.at((tw.minimum(ids, 1),))")
    assert run_unit(unit(wrong), shapes=[{"T": 300, "V": 3}]).correct is False


def test_what_a_kernel_scatters_to_is_an_output() -> None:
    text = ROWS.replace('(reference="OUT = TABLE[IDS]")', "")
    text = text.replace("Global[f32, V], IDS", "Global[f32, T], IDS").replace(
        "OUT: Global[f32, T]", "OUT: Global[f32, V]"
    )
    body = """        x = tw.load(TABLE.tile((i * 128,), (128,)), other=0.0)
        tw.store(OUT.at((ids,)), x, mask=i * 128 + tw.arange(128) < T)
"""
    text = text[: text.index("        tw.store")] + body
    result = run_unit(unit(text), shapes=[{"T": 300, "V": 9}])
    assert (result.status, result.correct) == ("ok", None), result.message
    assert "no reference" in result.message


def test_index_tensors_of_a_gpu_travel_as_values_and_differ_between_launches(tmp_path: Path) -> None:
    log = tmp_path / "job.json"
    result = run_unit(unit(ROWS), fake(tmp_path, f"json.dump(job, open({str(log)!r}, 'w'))\n" + CASES))
    assert result.status == "ok", result.message
    for case in json.loads(log.read_text())["cases"]:
        assert len(case["tables"]) == (5 if case["measure"] else 1)
        drawn = [np.frombuffer(zlib.decompress(base64.b64decode(t["IDS"])), "<i4") for t in case["tables"]]
        assert all(d.shape == (case["sizes"]["T"],) and 0 <= d.min() <= d.max() < case["sizes"]["V"] for d in drawn)
        assert len({d.tobytes() for d in drawn}) == len(drawn)


def test_index_tensors_too_large_to_send_are_refused(tmp_path: Path) -> None:
    result = run_unit(unit(ROWS), fake(tmp_path, CASES), shapes=[{"T": 1 << 21, "V": 8}])
    assert (result.status, result.failure) == ("failed", "compile")
    assert "8388608 bytes for T = 2097152, V = 8" in result.message and "smaller sizes" in result.message


def test_a_rival_that_assumes_more_of_the_data_is_not_raced() -> None:
    even = ROWS.replace("tw.assume(lambda t: 0 <= IDS[t] < V)", "tw.assume(lambda t: IDS[t] == 0)")
    with Runner() as session:
        same = session.run(unit(ROWS), [{"T": 300, "V": 9}], against=unit(ROWS))
        assert same.correct is True, same.message
        refused = session.run(unit(ROWS), [{"T": 300, "V": 9}], against=unit(even))
    assert refused.status == "failed" and "IDS[t] == 0" in refused.message


def test_a_wrong_kernel_is_found_wrong_with_shape_and_element() -> None:
    result = run_unit(unit(FMA.replace("x * y + x)", "x * y + y)")))
    assert result.status == "ok"
    assert result.correct is False
    assert "N = " in result.message and "instead of" in result.message


def test_a_kernel_without_a_reference_claims_nothing() -> None:
    result = run_unit(unit(FMA.replace(', reference="X * Y + X"', "")))
    assert (result.status, result.correct, result.max_error) == ("ok", None, None)
    assert "no reference" in result.message


def test_a_kernel_with_errors_is_not_run() -> None:
    result = run_unit(unit(FMA.replace("x * y + x", "x * nowhere")))
    assert (result.status, result.failure) == ("failed", "compile")
    assert "nowhere" in result.message


def test_given_shapes_are_run_and_those_that_break_assumptions_refused() -> None:
    assert run_unit(unit(SOFTMAX), shapes=[{"M": 3, "N": 5}]).shapes == ({"M": 3, "N": 5},)
    refused = run_unit(unit(SOFTMAX), shapes=[{"M": 3, "N": 2000}])
    assert refused.status == "failed"
    assert "N <= 1024" in refused.message and "N = 2000" in refused.message
    assert "M" in run_unit(unit(SOFTMAX), shapes=[{"N": 5}]).message


def test_a_reference_outside_the_language_is_refused_by_the_worker() -> None:
    result = run_unit(unit(FMA.replace('X * Y + X")', "__import__('os')\")")))
    assert (result.status, result.failure) == ("failed", "reference")


@pytest.mark.parametrize("runner", ["", "   ", "ssh 'unbalanced", "/no/such/program", "no-such-program-anywhere"])
def test_a_runner_that_is_no_command_says_so(runner: str) -> None:
    result = run_unit(unit(FMA), runner)
    assert (result.status, result.failure) == ("failed", "connection")
    assert result.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise SystemExit(255)", "ssh could not connect"),
        ("import sys; print('Host key verification failed.', file=sys.stderr); sys.exit(255)", "Host key"),
        ("print('hello')", "hello"),
        ("for i in range(1000): print('noise', i)", "no worker"),
        ('print(\'{"type": "result"}\', flush=True); input()', "instead of a greeting"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_command_that_is_no_worker_says_what_happened(tmp_path: Path, text: str, says: str) -> None:
    result = run_unit(unit(FMA), program(tmp_path, text))
    assert (result.status, result.failure, result.correct) == ("failed", "connection", None)
    assert says in result.message


def test_what_a_login_shell_prints_before_the_greeting_is_skipped(tmp_path: Path) -> None:
    runner = fake(tmp_path, "pass", before="print('Welcome to gpu-box')")
    with Runner(runner) as session:
        assert session.has_gpu


def test_another_protocol_is_refused(tmp_path: Path) -> None:
    result = run_unit(unit(FMA), fake(tmp_path, "pass", protocol=PROTOCOL + 1))
    assert result.failure == "protocol"
    assert "same version" in result.message


def test_a_machine_that_can_run_nothing_says_why(tmp_path: Path) -> None:
    result = run_unit(unit(FMA), fake(tmp_path, "pass", capabilities=[], problem="no torch here"))
    assert result.failure == "unsupported"
    assert "no torch here" in result.message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os._exit(1)", "lost the worker"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("print('Segmentation fault', flush=True)", "cannot be trusted"),
        ("say({'type': 'error', 'message': 'too large'})", "too large"),
    ],
)
def test_a_worker_lost_in_the_middle_gives_no_number(tmp_path: Path, body: str, says: str) -> None:
    result = run_unit(unit(FMA), fake(tmp_path, body))
    assert (result.status, result.failure) == ("failed", "connection")
    assert (result.correct, result.median_ms) == (None, None)
    assert says in result.message


def test_a_hanging_run_can_be_cancelled(tmp_path: Path) -> None:
    runner = fake(tmp_path, "time.sleep(600)")
    asked = threading.Event()
    threading.Timer(0.5, asked.set).start()
    start = time.monotonic()
    result = run_unit(unit(FMA), runner, cancelled=asked.is_set)
    assert (result.status, result.failure) == ("cancelled", "cancelled")
    assert time.monotonic() - start < 15


def test_a_command_that_never_reads_can_be_cancelled(tmp_path: Path) -> None:
    # More than a pipe holds, to a worker that greets and then sleeps.
    runner = program(tmp_path, f"import json, time\nprint(json.dumps({HELLO!r}), flush=True)\ntime.sleep(600)")
    start = time.monotonic()
    with pytest.raises(Cancelled), Runner(runner, lambda: time.monotonic() - start > 1.0) as session:
        session.connection.request({"type": "job", "id": "1", "padding": "x" * 1_000_000})
    assert time.monotonic() - start < 30


def test_a_worker_is_killed_when_its_client_is_done(tmp_path: Path) -> None:
    # A worker that ignores the end of its input and everything polite.
    stubborn = fake(tmp_path, "pass", before="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    path = Path(stubborn.split()[-1])
    path.write_text(path.read_text() + "time.sleep(600)\n")
    connection = Connection(worker_command(stubborn))
    connection.close()
    assert connection.returncode == -signal.SIGKILL


CASES = """
cases = [{"sizes": c["sizes"], "correct": True, "max_error": 1e-4, "message": "",
          "median_ms": 0.2 if c["measure"] else None, "baseline_ms": 0.25 if c["measure"] else None} for c in job["cases"]]
say({"type": "progress", "id": job["id"], "stage": "time", "done": 1, "total": 2, "message": "timing"})
say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": "", "device": "NVIDIA H200",
     "cases": cases})
"""


def test_a_gpu_gets_the_lowered_module_and_large_shapes(tmp_path: Path) -> None:
    log = tmp_path / "job.json"
    body = f"json.dump(job, open({str(log)!r}, 'w'))\n" + CASES
    result = run_unit(unit(GEMM), fake(tmp_path, body))
    assert result.status == "ok", result.message
    assert (result.correct, result.median_ms, result.baseline_ms) == (True, 0.2, 0.25)
    assert result.label == "NVIDIA H200, torch 2.11.0, triton 3.6.0"
    job = json.loads(log.read_text())
    assert "def prepare(A, B, C)" in job["module"]
    assert job["dsl"] == {}, "a GPU machine needs nothing of the language"
    assert job["reference"] == "C = A.float() @ B.float()"
    assert {c["sizes"]["M"] for c in job["cases"] if c["measure"]} >= {4096}
    assert any(not c["measure"] for c in job["cases"])
    assert [a["role"] for a in job["arguments"]] == ["in", "in", "out"]


def test_without_a_reference_a_gpu_is_compared_with_the_interpreter(tmp_path: Path) -> None:
    log = tmp_path / "job.json"
    body = f"json.dump(job, open({str(log)!r}, 'w'))\n" + CASES
    run_unit(unit(FMA.replace(', reference="X * Y + X"', "")), fake(tmp_path, body))
    small = [c for c in json.loads(log.read_text())["cases"] if not c["measure"]]
    assert small
    assert all(set(c["given"]) == {"X", "Y"} and set(c["expected"]) == {"OUT"} for c in small)


def test_a_job_that_failed_keeps_its_words(tmp_path: Path) -> None:
    body = """say({"type": "result", "id": job["id"], "status": "failed", "failure": "illegal access",
     "message": "NVIDIA H200: CUDA error", "device": "NVIDIA H200", "cases": []})"""
    result = run_unit(unit(FMA), fake(tmp_path, body))
    assert (result.status, result.failure, result.correct) == ("failed", "illegal access", None)
    assert "CUDA error" in result.message


def test_one_session_serves_several_kernels() -> None:
    with Runner() as session:
        assert not session.has_gpu
        results = [session.run(unit(text)) for text in (FMA, SOFTMAX, FMA)]
    assert [r.correct for r in results] == [True, True, True]


def test_local_is_this_python() -> None:
    assert worker_command("local")[0] == sys.executable
    with pytest.raises(ConnectionFailed):
        worker_command("")
