"""Times the functions of `tilewright.kernels` against PyTorch on one GPU: a table, and JSON with `--json FILE`.

    python tests/bench/gpu/bench_gpu.py [--json FILE] [--only product,rows,…] [--rounds N] [--compiled]

Each case runs ours and the baseline in turns, from CUDA graphs of several launches over rotating inputs, and takes the
median of the rounds; the whole is done twice, and the spread is how far the two medians are apart. Results are compared
with f64 (products: f32 in full precision). The ceiling of what moves memory is a copy of the same bytes in the same run,
that of products the fastest product of the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import cases
import models
import torch
from cases import Case

_LAUNCHES = 8


def graph(run: Callable[..., Any], inputs: list[tuple[Any, ...]], keep: list[Any]) -> Callable[[], float]:
    """Microseconds of one run, out of a graph that runs all inputs in turn. What it writes to is kept in `keep`."""
    for given in inputs[:2]:
        run(*given)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        keep += [run(*given) for given in inputs]
    keep.append(captured)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def measure() -> float:
        start.record()
        captured.replay()
        end.record()
        end.synchronize()
        return 1000 * start.elapsed_time(end) / len(inputs)

    return measure


def error(ours: Any, exact: Any) -> float:
    """The greatest difference as a fraction of the greatest value."""
    return float((ours.double() - exact.double()).abs().max() / exact.double().abs().max().clamp(min=1e-30))


def run_case(case: Case, rounds: int, compiled: bool) -> dict[str, Any]:
    """Medians in microseconds of both, twice, with the error."""
    inputs = [case.make() for _ in range(_LAUNCHES)]
    wrong = error(case.ours(*inputs[0]), case.exact(*inputs[0]))
    keep: list[Any] = []
    base = torch.compile(case.base, dynamic=False) if compiled else case.base
    timers = [graph(case.ours, inputs, keep), graph(base, inputs, keep)]
    medians: list[tuple[float, float]] = []
    for _ in range(2):
        times: tuple[list[float], list[float]] = ([], [])
        for timer in timers:
            timer()
        for _ in range(rounds):
            for found, timer in zip(times, timers, strict=True):
                found.append(timer())
        medians.append((statistics.median(times[0]), statistics.median(times[1])))
    ours, base = (statistics.mean(m[i] for m in medians) for i in range(2))
    ratios = [b / o for o, b in medians]
    return {
        "group": case.group, "name": case.name, "shape": case.shape, "us": ours, "baseline_us": base,
        "ratio": base / ours, "spread": abs(ratios[0] - ratios[1]), "error": wrong, "right": wrong <= case.tolerance,
        "moved": case.moved, "flops": case.flops,
    }  # fmt: skip


def copy_bandwidth() -> float:
    """Bytes a second of a copy of half a gibibyte, read and written: by the driver, or by torch, whichever is faster."""
    a = torch.randn(1 << 27, device="cuda")
    b = torch.empty_like(a)
    copies = (lambda: b.copy_(a), lambda: torch.add(a, 0.0, out=b))
    best = min(statistics.median(timer() for _ in range(11)) for timer in (graph(c, [()] * 8, []) for c in copies))
    return 2 * a.numel() * a.itemsize / (1e-6 * best)


def main() -> None:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="product,quantized,attention,experts,rows,memory,activations")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compiled", action="store_true", help="baselines under torch.compile")
    options = parser.parse_args()
    torch.manual_seed(0)
    groups = {
        "product": cases.products, "quantized": models.quantized, "attention": models.attention,
        "experts": models.experts, "rows": cases.rows, "memory": models.memory, "activations": cases.activations,
    }  # fmt: skip
    ceiling = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {ceiling / 1e12:.2f} TB/s")
    found: list[dict[str, Any]] = []
    for group in options.only.split(","):
        for case in groups[group]():
            try:
                row = run_case(case, options.rounds, options.compiled)
            except Exception as failure:
                row = {
                    "group": case.group,
                    "name": case.name,
                    "shape": case.shape,
                    "failure": f"{type(failure).__name__}: {failure}",
                }
                print(f"{case.name:24} {case.shape:18} failed: {row['failure'][:300]}", flush=True)
                found.append(row)
                continue
            reached = (
                f"{row['moved'] / row['us'] * 1e6 / ceiling:6.0%} of copy"
                if case.moved
                else f"{case.flops / row['us'] / 1e6:6.0f} TFLOP/s"
            )
            print(
                f"{case.name:24} {case.shape:18} {row['us']:9.1f} µs  {row['baseline_us']:9.1f} µs  {row['ratio']:5.2f}× "
                f"± {row['spread']:.2f}  {reached}  error {row['error']:.1e}{'' if row['right'] else '  WRONG'}",
                flush=True,
            )
            found.append(row)
            torch.cuda.empty_cache()
    for group in options.only.split(","):
        ratios = [r["ratio"] for r in found if r["group"] == group and "ratio" in r]
        if ratios:
            print(
                f"{group}: geometric mean {statistics.geometric_mean(ratios):.3f}×, least {min(ratios):.2f}×, of {len(ratios)}"
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(
                {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "copy": ceiling, "rows": found},
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
