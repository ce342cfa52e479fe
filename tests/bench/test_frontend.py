"""Latency of the front end: one edit in a file of 1,000 lines with 20 kernels, as a ratio to reading it afresh.

make bench
"""

import statistics
import time
from pathlib import Path

from tilewright.frontend import parse_module
from tilewright.source import SourceText

EXAMPLE = (Path(__file__).parents[2] / "examples" / "gemm_instructions.py").read_text()


def thousand_lines() -> str:
    head, _, kernel = EXAMPLE.partition("@tw.kernel")
    kernels = [("@tw.kernel" + kernel).replace("def gemm_instructions", f"def gemm_{i}") for i in range(20)]
    return head + "\n\n".join(kernels)


def test_one_edit_in_a_large_file():
    text = thousand_lines()
    assert text.count("\n") >= 1000
    fresh: list[float] = []
    for _ in range(10):
        start = time.perf_counter()
        module = parse_module(SourceText.of(text))
        fresh.append(time.perf_counter() - start)
    assert len(module.units) == 20 and not module.all_problems
    edits: list[float] = []
    at = text.index("tw.wgmma_wait(1)", len(text) // 2) + len("tw.wgmma_wait(")
    for i in range(200):
        text = text[:at] + "01"[i % 2] + text[at + 1 :]
        source = SourceText.of(text)
        start = time.perf_counter()
        module = parse_module(source, module)
        _ = module.all_problems
        edits.append(time.perf_counter() - start)
    p95 = statistics.quantiles(edits, n=20)[-1]
    lines = text.count("\n")
    print(
        f"\n{lines} lines, 20 kernels: afresh {min(fresh) * 1e3:.1f} ms ({lines / min(fresh):,.0f} lines/s); "
        f"after one edit median {statistics.median(edits) * 1e3:.2f} ms, p95 {p95 * 1e3:.2f} ms "
        f"(target 15 ms), ratio {min(fresh) / statistics.median(edits):.1f}"
    )
