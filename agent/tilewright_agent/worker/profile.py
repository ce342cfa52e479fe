"""Profiling: one more launch of a kernel that was graded, under Nsight Compute, or under torch.profiler without it.

Counters are no part of grading: they come after it, from a process of their own, and whatever goes wrong here is said
beside a result that stands. That process has the rights of the account, as Nsight Compute needs them.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from .counters import main_kernel, metrics, read_csv
from .protocol import Message

SECONDS = 120.0  # for each of the two profilers
NO_PERMISSION = "ERR_NVGPUCTRPERM"
_PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:)?([\w.:]+)")


def profile(job: Message, command: Sequence[str], folder: str) -> Message:
    """Counters of the first timed case of a job: `{"tool", "why", "sizes", "name", "kernels", "counters", "stalls"}`.

    `command` starts this worker, `folder` is for files. "tool" is "ncu", "torch.profiler", or empty where there is
    neither; "why" says why it is not Nsight Compute. Never raises for what a profiler does.
    """
    case = next((c for c in job["cases"] if c.get("measure")), job["cases"][0])
    task: Message = {
        "program": {key: job.get(key) for key in ("kernel", "module")}, "arguments": job["arguments"], "case": case,
    }  # fmt: skip
    empty: Message = {"name": "", "kernels": 0, "counters": {}, "stalls": {}}
    found, why = _nsight(task, command, folder)
    if found:
        return {**empty, **found, "tool": "ncu", "why": "", "sizes": case.get("sizes", {})}
    found, other = _torch(task, command, folder)
    tool = "torch.profiler" if found else ""
    if other:
        why = f"{why}; {other}"
    return {**empty, **found, "tool": tool, "why": why, "sizes": case.get("sizes", {})}


def find_nsight() -> str:
    """The newest Nsight Compute of this machine; empty: there is none."""
    if found := shutil.which("ncu"):
        return found
    return max((path for place in _PLACES for path in glob.glob(place)), key=_numbers, default="")


def _nsight(task: Message, command: Sequence[str], folder: str) -> tuple[Message, str]:
    """What Nsight Compute counted, or nothing and why."""
    tool = find_nsight()
    if not tool:
        return {}, "Nsight Compute (ncu) is not installed there"
    path, log = _write(task, folder), os.path.join(folder, "counters.csv")
    wanted = metrics()
    text = ""
    for _ in range(2):  # not every GPU has every metric
        fixed = [
            tool, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
            "--target-processes", "application-only", "--clock-control", "none", "--metrics", ",".join(wanted),
            "--log-file", log,
        ]  # fmt: skip
        with contextlib.suppress(OSError):
            os.unlink(log)
        trouble, said = _execute([*fixed, *command, "--profiled", path], folder)
        text = said
        with contextlib.suppress(OSError), open(log, encoding="utf-8", errors="replace") as file:
            text = file.read() + said
        if trouble:
            return {}, f"Nsight Compute {trouble}"
        if kernels := read_csv(text):
            return main_kernel(kernels), ""
        missing = set(_UNKNOWN_METRIC.findall(text))
        wanted = [m for m in wanted if m not in missing]
        if not missing:
            break
    return {}, _reason(text)


def _torch(task: Message, command: Sequence[str], folder: str) -> tuple[Message, str]:
    """What torch.profiler saw, or nothing and why."""
    target = os.path.join(folder, "trace.json")
    trouble, said = _execute([*command, "--profiled", _write({**task, "trace": target}, folder)], folder)
    if trouble:
        return {}, f"torch.profiler {trouble}"
    try:
        with open(target, encoding="utf-8") as file:
            found: Message = json.load(file)
    except (OSError, ValueError):
        return {}, f"torch.profiler gave nothing: {_last(said)}"
    return found, "" if found else "torch.profiler saw no kernel"


def _execute(command: Sequence[str], folder: str) -> tuple[str, str]:
    """What kept a command from running to its end, and what it wrote."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": folder, "TRITON_CACHE_DIR": os.path.join(folder, "triton")},
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end within {SECONDS:.0f} s", ""
    except OSError as error:
        return f"could not be started: {error}", ""
    return "", done.stdout.decode("utf-8", "replace")


def _write(task: Message, folder: str) -> str:
    path = os.path.join(folder, "profile.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(task, file)
    return path


def _reason(text: str) -> str:
    if NO_PERMISSION in text:
        return (
            f"the driver there lets only administrators read counters ({NO_PERMISSION}): load the nvidia module with "
            "NVreg_RestrictProfilingToAdminUsers=0, or start the worker with the capability SYS_ADMIN"
        )
    for mark in ("==ERROR==", "==WARNING=="):
        told = [line.removeprefix(mark).strip() for line in text.splitlines() if line.startswith(mark)]
        if told:
            return f"Nsight Compute counted nothing: {told[0]}"
    return f"Nsight Compute counted nothing: {_last(text)}"


def _last(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "it wrote nothing")


def _numbers(path: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", path)]
