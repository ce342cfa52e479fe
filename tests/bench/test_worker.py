"""What a job costs beside compiling and measuring, with a worker that is warm: its processes, messages and folders.

make bench
"""

from __future__ import annotations

import json
import statistics
import time

from agent.support import FMA, unit
from tilewright_agent.jobs import build_job
from tilewright_agent.runner import Runner

JOBS = 20
OVERHEAD_SECONDS = 0.15


def test_a_warm_job_costs_little_beside_its_work() -> None:
    kernel = unit(FMA)
    assert kernel.kernel is not None
    taken: list[float] = []
    with Runner() as session:
        for number in range(JOBS + 2):
            job = build_job(kernel, kernel.kernel, f"b{number}", [{"N": 100}], gpu=session.has_gpu)
            begin = time.perf_counter()
            answer = session.connection.request(job)
            taken.append(time.perf_counter() - begin)
            assert answer["status"] == "ok", answer
    # The work of this job, parsing and interpreting a hundred elements, is a few milliseconds and counted too.
    median = statistics.median(taken[2:])
    print(json.dumps({"warm job, ms": round(median * 1e3, 1), "worst": round(max(taken[2:]) * 1e3, 1)}))
    assert median < OVERHEAD_SECONDS
