"""Profiles: what the profilers write, what is made of it, and what is said where there is none."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.support import FMA, unit
from tilewright_agent.profiles import NO_GPU, Profile, from_text, profile_of, to_text
from tilewright_agent.runner import Runner
from tilewright_agent.worker import profile as profiling
from tilewright_agent.worker.counters import METRICS, REASONS, main_kernel, metrics, read_csv, read_trace

RECORDED = Path(__file__).with_name("recorded")
JOB: dict[str, Any] = {
    "kernel": "k", "module": "def prepare(): ...", "arguments": [],
    "cases": [{"sizes": {"N": 7}, "measure": False}, {"sizes": {"N": 1024}, "measure": True}],
}  # fmt: skip

HEADER = '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","sm__warps_active.avg.pct_of_peak_sustained_active"'
PAGE = f"""==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Profiling "k" - 0: 0%....50%....100% - 3 passes
{HEADER}
"","","ns","byte","%"
"0","fill","900","1,024","10.5"
"1","k","12,345","4,194,304","nan"
==PROF== Disconnected from process 7
"""


def tool(folder: Path, body: str) -> Path:
    """A stand-in for ncu: `body` has `log`, the file that it is to write, `command`, and `wanted`, the metrics."""
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\nargs = sys.argv[1:]\nlog = args[args.index('--log-file') + 1]\n"
        "wanted = args[args.index('--metrics') + 1].split(',')\ncommand = args[args.index('--log-file') + 2:]\n" + body,
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def target(folder: Path, body: str) -> list[str]:
    """A stand-in for the process that is profiled; `task` is what it has to do."""
    script = folder / "target.py"
    script.write_text(f"import json, sys\ntask = json.load(open(sys.argv[2]))\n{body}", encoding="utf-8")
    return [sys.executable, str(script)]


def use(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    monkeypatch.setattr(profiling, "find_nsight", lambda: str(path) if path else "")


def test_a_raw_page_has_each_kernel_in_our_units() -> None:
    first, second = read_csv(PAGE)
    assert first["name"] == "fill" and first["counters"]["time_us"] == pytest.approx(0.9)
    assert second["counters"]["time_us"] == pytest.approx(12.345) and second["counters"]["dram_read_bytes"] == 4194304
    assert main_kernel([first, second])["name"] == "k" and main_kernel([first, second])["kernels"] == 2


def test_a_page_recorded_on_an_h200() -> None:
    (found,) = read_csv((RECORDED / "ncu_gemm.csv").read_text(encoding="utf-8"))
    assert set(found["counters"]) == set(METRICS) and found["name"] == "gemm"
    assert found["counters"]["time_us"] == pytest.approx(182.88)
    assert found["counters"]["dram_read_bytes"] == 144_353_024 and found["counters"]["tensor_percent"] == 94.63
    assert max(found["stalls"], key=lambda name: found["stalls"][name]) == "barrier"
    assert sum(found["stalls"].values()) == pytest.approx(1.0)


def test_a_trace_recorded_on_an_h200() -> None:
    found = read_trace(json.loads((RECORDED / "torch_softmax.json").read_text(encoding="utf-8")), 3)
    assert (found["name"], found["kernels"], found["counters"]["registers"]) == ("softmax", 1, 32)
    assert found["counters"]["time_us"] == pytest.approx(7.296)


def test_units_that_are_not_asked_for_are_understood() -> None:
    page = f'{HEADER}\n"","","ms","Mbyte","%"\n"0","k","1.5","2.25","50"\n'
    assert read_csv(page)[0]["counters"] == {"time_us": 1500.0, "dram_read_bytes": 2.25e6, "occupancy_percent": 50.0}


@pytest.mark.parametrize("text", ["", "==ERROR== no", "a,b\nc", HEADER, f"{HEADER}\n,,,,\n1,2"])
def test_what_is_no_page_has_no_kernels(text: str) -> None:
    assert read_csv(text) == []
    assert main_kernel([]) == {}


def test_stalls_are_shares() -> None:
    names = [f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in ("wait", "selected")]
    page = f'"Kernel Name","{names[0]}","{names[1]}"\n"","inst","inst"\n"k","3","1"\n'
    assert read_csv(page)[0]["stalls"] == {"wait": 0.75, "selected": 0.25}


def test_metrics_have_no_duplicates() -> None:
    assert len(set(metrics())) == len(metrics()) == 18 + len(REASONS)


def test_a_trace_of_torch_gives_time_registers_and_occupancy() -> None:
    args = {"registers per thread": 40, "shared memory": 2048, "est. achieved occupancy %": 75, "grid": [1, 1, 1]}
    events = [{"cat": "kernel", "name": "k", "dur": d, "args": args} for d in (10.0, 12.0, 30.0)]
    found = read_trace({"traceEvents": [*events, {"cat": "cuda_runtime", "name": "launch", "dur": 1000}]}, 3)
    assert found["counters"] == {
        "time_us": 12.0, "registers": 40.0, "shared_bytes": 2048.0, "occupancy_percent": 75.0
    }  # fmt: skip
    assert found["kernels"] == 1 and read_trace({"traceEvents": []}, 3) == {} and read_trace({}, 3) == {}


def test_nsight_compute_counts_the_first_timed_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tool(tmp_path, f"subprocess.run(command, check=True)\nopen(log, 'w').write({PAGE!r})"))
    command = target(tmp_path, f"open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps([sys.argv[1], task]))")
    found = profiling.profile(JOB, command, str(tmp_path))
    assert (found["tool"], found["why"], found["name"], found["sizes"]) == ("ncu", "", "k", {"N": 1024})
    flag, task = json.loads((tmp_path / "seen").read_text())
    assert flag == "--profiled" and task["case"]["sizes"] == {"N": 1024} and "trace" not in task


def test_metrics_that_a_gpu_lacks_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "if 'dram__bytes_read.sum' in wanted: open(log, 'w').write('==ERROR== Failed to find metric "
        f"dram__bytes_read.sum\\n'); sys.exit(1)\nopen(log, 'w').write({PAGE!r})"
    )
    use(monkeypatch, tool(tmp_path, body))
    assert profiling.profile(JOB, target(tmp_path, ""), str(tmp_path))["tool"] == "ncu"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled"),
        ("", "it wrote nothing"),
    ],
)
def test_without_counters_torch_looks_and_the_reason_is_said(
    said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tool(tmp_path, f"open(log, 'w').write({said!r})\nsys.exit(1)"))
    answer = '{"name": "k", "counters": {"time_us": 3.0}, "stalls": {}, "kernels": 1}'
    found = profiling.profile(JOB, target(tmp_path, f"open(task['trace'], 'w').write({answer!r})"), str(tmp_path))
    assert found["tool"] == "torch.profiler" and reason in found["why"] and found["counters"] == {"time_us": 3.0}


def test_with_neither_both_reasons_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    found = profiling.profile(JOB, target(tmp_path, "sys.exit('no torch here')"), str(tmp_path))
    assert found["tool"] == "" and found["counters"] == {}
    assert "not installed" in found["why"] and "no torch here" in found["why"]


def test_a_profiler_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "SECONDS", 0.5)
    use(monkeypatch, tool(tmp_path, "import time; time.sleep(60)"))
    found = profiling.profile(JOB, target(tmp_path, ""), str(tmp_path))
    assert found["tool"] == "" and "Nsight Compute did not end within" in found["why"]


def test_profiles_go_through_text() -> None:
    whole = Profile("ncu", "", {"N": 8}, "k", 2, {"time_us": 1.5}, {"wait": 0.5})
    assert from_text(to_text(whole)) == whole
    assert from_text("") is None and from_text("{") is None and from_text("[]") is None
    assert profile_of({"counters": {"time_us": None, "x": "y"}, "kernels": "many"}) == Profile()


def test_the_interpreter_has_no_counters_and_says_so() -> None:
    with Runner("local") as session:
        if session.has_gpu:
            pytest.skip("there is a GPU")
        result = session.run(unit(FMA), [{"N": 64}], profile=True)
        assert result.correct is True and result.profile == Profile(why=NO_GPU)
        assert session.run(unit(FMA), [{"N": 64}]).profile is None
