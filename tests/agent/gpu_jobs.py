"""Takes the worker to a GPU machine that has torch and triton and nothing of Tilewright.

    python tests/agent/gpu_jobs.py write FOLDER     # here: the worker as one file, and jobs for it
    python gpu_jobs.py run FOLDER                   # there: does the jobs and prints their results

Among the jobs are kernels that are wrong, cheat, touch memory that is not theirs, hang, or do not compile; each must be
reported as that, and the jobs after it must still succeed. Exit status 0 when every job ended as expected.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OK, WRONG = "ok", "wrong"

# Kernels that cheat, measured; each must be wrong, or end as said.
CHEATS = {
    "replays": (
        WRONG,
        """
saved = []
def prepare(X, OUT):
    def launch():
        if not saved: saved.append(X * 2)
        OUT.copy_(saved[0])
    return launch
""",
    ),
    "by place": (
        WRONG,
        """
saved = {}
def prepare(X, OUT):
    def launch():
        if X.data_ptr() not in saved: saved[X.data_ptr()] = X * 2
        OUT.copy_(saved[X.data_ptr()])
    return launch
""",
    ),
    "computes once": (
        WRONG,
        """
def prepare(X, OUT):
    OUT.copy_(X * 2)
    return lambda: None
""",
    ),
    "other stream": (
        WRONG,
        """
import torch
side = torch.cuda.Stream()
def prepare(X, OUT):
    def launch():
        with torch.cuda.stream(side):
            OUT.copy_(X * 2)
    return launch
""",
    ),
    "timer": (
        "tampered",
        """
import torch
torch.cuda.Event.elapsed_time = lambda self, other: 0.001
def prepare(X, OUT):
    return lambda: OUT.copy_(X * 2)
""",
    ),
    "forged": (
        "tampered",
        """
import torch, tilewright_agent.worker.seal as seal, tilewright_agent.worker.timing as timing
seal.Seal.broken = lambda self: ""
timing.Sampler.cold = lambda self, turn: (self.launches[turn % len(self.launches)](), torch.cuda.synchronize(), 0.06)[2]
timing.Sampler.warm = timing.Sampler.cold
def prepare(X, OUT):
    return lambda: (OUT.copy_(X * 2), torch.cuda._sleep(2_000_000))
""",
    ),
    "spies": (
        "launch",
        """
import os
def prepare(X, OUT):
    def launch():
        judge = os.getppid()
        for _ in range(2):
            for name in ("mem", "environ", "maps"):
                try:
                    open(f"/proc/{judge}/{name}", "rb").read(1)
                    os._exit(9)
                except OSError:
                    pass
            judge = int(open(f"/proc/{judge}/stat").read().rpartition(")")[2].split()[1])
        raise ValueError("nothing to see")
    return launch
""",
    ),
    "leaves a process": (
        OK,
        """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
def prepare(X, OUT):
    return lambda: OUT.copy_(X * 2)
""",
    ),
}

# Generated modules that misbehave, by what the worker must call it.
BAD_MODULES = {
    "illegal access": """
import torch, triton, triton.language as tl
@triton.jit
def stray(x):
    tl.store(x + (1 << 40), 1.0)
def prepare(X, OUT):
    return lambda: stray[(1,)](X)
""",
    "timeout": """
import torch
def prepare(X, OUT):
    return lambda: [torch.cuda._sleep(1 << 40) for _ in range(100)]
""",
    "compile": "import triton\nraise ImportError('nothing here')\n",
    "out of memory": """
import torch
def prepare(X, OUT):
    return lambda: torch.empty(1 << 45, device="cuda")
""",
    "crash": """
import os, signal
def prepare(X, OUT):
    return lambda: os.kill(os.getpid(), signal.SIGSEGV)
""",
    WRONG: """
def prepare(X, OUT):
    return lambda: OUT.copy_(X * 3)
""",
}


def write(folder: Path) -> None:
    """Needs Tilewright."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from agent.support import FMA, GEMM, GEMM_SM80, SOFTMAX, unit
    from tilewright_agent.jobs import build_job
    from tilewright_agent.worker.archive import write_archive
    from tilewright_agent.worker.protocol import PROTOCOL
    from tilewright_analysis.perf.shapes import large_shapes, small_shapes

    folder.mkdir(parents=True, exist_ok=True)
    write_archive(folder / "worker.pyz")
    jobs: list[tuple[str, dict[str, Any]]] = []
    arguments = [{"name": "X", "dtype": "f32", "role": "in"}, {"name": "OUT", "dtype": "f32", "role": "out"}]
    cases = [{"sizes": {"N": 64}, "shapes": {"X": [64], "OUT": [64]}, "seed": 1}]
    for expected, module in BAD_MODULES.items():
        jobs.append((expected, {
            "type": "job", "protocol": PROTOCOL, "id": expected, "kernel": expected, "device": "gpu", "module": module,
            "arguments": arguments, "reference": "X * 2", "cases": cases, "seconds": 60 if expected != "timeout" else 15,
        }))  # fmt: skip
    large = [{"sizes": {"N": 1 << 22}, "shapes": {"X": [1 << 22], "OUT": [1 << 22]}, "seed": 1, "measure": True}]
    for identity, (expected, module) in CHEATS.items():
        jobs.append((expected, {
            "type": "job", "protocol": PROTOCOL, "id": identity, "kernel": "cheat", "device": "gpu", "module": module,
            "arguments": arguments, "reference": "X * 2", "cases": large, "seconds": 60,
        }))  # fmt: skip
    honest = "def prepare(X, OUT):\n    return lambda: OUT.copy_(X * 2)\n"
    for i in range(8):  # what a job costs beside compiling and measuring
        jobs.append((OK, {
            "type": "job", "protocol": PROTOCOL, "id": f"warm {i}", "kernel": "honest", "device": "gpu", "module": honest,
            "arguments": arguments, "reference": "X * 2", "cases": cases, "seconds": 60,
        }))  # fmt: skip
    unnamed = FMA.replace(', reference="X * Y + X"', "")
    for identity, text in (
        ("gemm", GEMM),
        ("gemm_sm80", GEMM_SM80),
        ("fma", FMA),
        ("softmax", SOFTMAX),
        ("bare", unnamed),
    ):
        found = unit(text)
        assert found.kernel is not None
        large = large_shapes(found.kernel)
        shapes = (*large, *small_shapes(found.kernel))
        jobs.append((OK, build_job(found, found.kernel, identity, shapes, gpu=True, measured=len(large))))
    with (folder / "jobs.jsonl").open("w", encoding="utf-8") as file:
        for expected, job in jobs:
            file.write(json.dumps([expected, job]) + "\n")
    print(f"{len(jobs)} jobs in {folder}")


def run(folder: Path) -> int:
    """Needs the standard library; the worker needs torch and triton."""
    worker = subprocess.Popen(
        [sys.executable, str(folder / "worker.pyz")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdin is not None and worker.stdout is not None
    begin = time.monotonic()
    print(worker.stdout.readline().decode().strip(), f"after {time.monotonic() - begin:.2f} s")
    unexpected = 0
    for line in (folder / "jobs.jsonl").read_text(encoding="utf-8").splitlines():
        expected, job = json.loads(line)
        begin = time.monotonic()
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.flush()
        result: dict[str, Any] = {"type": "progress"}
        while result["type"] == "progress":
            answer = worker.stdout.readline()
            if not answer:
                print("the worker died")
                return 1
            result = json.loads(answer)
        outcome = result.get("failure") or (OK if all(c["correct"] is not False for c in result["cases"]) else WRONG)
        fits = outcome == expected
        unexpected += not fits
        took = f"{time.monotonic() - begin:.3f} s"
        head = "as expected" if fits else "UNEXPECTED "
        print(f"{head} {job['id']} ({took}): {outcome} {str(result.get('message'))[:600]}", flush=True)
        for case in result.get("cases", []):
            print("   ", json.dumps(case))
    worker.stdin.close()
    worker.wait(10)
    return 1 if unexpected else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "run"):
        raise SystemExit(__doc__)
    target = Path(sys.argv[2])
    raise SystemExit(run(target) if sys.argv[1] == "run" else write(target))
