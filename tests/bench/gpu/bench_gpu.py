"""Times the functions of `tilewright.kernels` against PyTorch on one GPU: a table, and JSON with `--json FILE`.

    python tests/bench/gpu/bench_gpu.py [--json FILE] [--only product,rows,activations] [--rounds N]

Each case runs ours and the baseline in turns, from CUDA graphs of several launches over rotating inputs, and takes the
median of the rounds; the whole is done twice, and the spread is how far the two medians are apart. Results are compared
with f64 (products: f32 in full precision). The ceiling of what moves memory is a copy of the same bytes in the same run,
that of products the fastest product of the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tilewright import kernels

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
_LAUNCHES = 8


@dataclass
class Case:
    """One row of the table: `make` gives fresh inputs; `moved` bytes or `flops` of one run."""

    group: str
    name: str
    shape: str
    make: Callable[[], tuple[Any, ...]]
    ours: Callable[..., Any]
    base: Callable[..., Any]
    exact: Callable[..., Any]
    moved: int = 0
    flops: int = 0
    tolerance: float = 2e-2


def products() -> Iterator[Case]:
    """Products of half precision: square, tall, wide, skinny, odd, deep."""
    sizes = [
        (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096),
        (4096, 4096, 512), (32768, 512, 1024), (16, 8192, 8192), (64, 8192, 8192), (128, 4096, 14336),
        (4054, 4008, 4072), (3000, 3000, 3000), (1000, 5000, 2000), (1024, 1024, 8192), (2048, 8192, 8192),
        (8192, 1024, 8192), (777, 1024, 4096), (2560, 10240, 2560),
    ]  # fmt: skip
    for m, n, k in sizes:
        for dtype in (HALF, BRAIN) if (m, n, k) in sizes[2:4] else (HALF,):
            yield Case(
                "product", f"matmul {_short(dtype)}", f"{m}×{n}×{k}", lambda m=m, n=n, k=k, t=dtype: (_normal(m, k, t), _normal(k, n, t)),
                kernels.matmul, torch.matmul, _product, flops=2 * m * n * k,
            )  # fmt: skip
    for m, n, k in ((4096, 4096, 4096), (2048, 11008, 4096), (512, 4096, 4096)):
        yield Case(
            "product", "linear f16", f"{m}×{n}×{k}", lambda m=m, n=n, k=k: (_normal(m, k, HALF), _normal(n, k, HALF), _normal(1, n, HALF)[0]),
            lambda x, w, b: kernels.linear(x, w, b), F.linear, lambda x, w, b: _product(x, w.t()) + b, flops=2 * m * n * k,
        )  # fmt: skip
        yield Case(
            "product", "linear + gelu f16", f"{m}×{n}×{k}", lambda m=m, n=n, k=k: (_normal(m, k, HALF), _normal(n, k, HALF), _normal(1, n, HALF)[0]),
            lambda x, w, b: kernels.linear(x, w, b, "gelu"), lambda x, w, b: F.gelu(F.linear(x, w, b)),
            lambda x, w, b: F.gelu(_product(x, w.t()) + b), flops=2 * m * n * k,
        )  # fmt: skip


def rows() -> Iterator[Case]:
    """Operations on rows."""
    for m, n, dtype in (
        (32768, 1024, SINGLE),
        (32768, 1024, BRAIN),
        (8192, 4096, BRAIN),
        (4096, 16384, BRAIN),
        (2048, 131072, BRAIN),
    ):

        def make(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return (_normal(m, n, t),)

        shape, size = f"{m}×{n}", m * n * dtype.itemsize
        yield Case("rows", f"softmax {_short(dtype)}", shape, make, kernels.softmax, lambda x: torch.softmax(x, -1),
                   lambda x: torch.softmax(x.double(), -1), moved=2 * size)  # fmt: skip
        if n > 32768:
            continue
        yield Case("rows", f"log_softmax {_short(dtype)}", shape, make, kernels.log_softmax,
                   lambda x: torch.log_softmax(x, -1), lambda x: torch.log_softmax(x.double(), -1), moved=2 * size)  # fmt: skip

        def weighted(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return _normal(m, n, t), _normal(1, n, t)[0], _normal(1, n, t)[0]

        yield Case("rows", f"rms_norm {_short(dtype)}", shape, weighted, lambda x, w, b: kernels.rms_norm(x, w),
                   lambda x, w, b: F.rms_norm(x, x.shape[1:], w, 1e-6),
                   lambda x, w, b: F.rms_norm(x.double(), x.shape[1:], w.double(), 1e-6), moved=2 * size)  # fmt: skip
        yield Case("rows", f"layer_norm {_short(dtype)}", shape, weighted, kernels.layer_norm,
                   lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
                   lambda x, w, b: F.layer_norm(x.double(), x.shape[1:], w.double(), b.double()), moved=2 * size)  # fmt: skip

        def labelled(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return _normal(m, n, t), torch.randint(0, n, (m,), device="cuda")

        yield Case("rows", f"cross_entropy {_short(dtype)}", shape, labelled, kernels.cross_entropy,
                   lambda x, t: F.cross_entropy(x, t, reduction="none"),
                   lambda x, t: F.cross_entropy(x.double(), t, reduction="none"), moved=size)  # fmt: skip


def activations() -> Iterator[Case]:
    """The activations of KernelBench's first level, on 67 million elements, and a gated one."""
    pairs: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
        ("relu", kernels.relu, torch.relu),
        ("leaky_relu", kernels.leaky_relu, F.leaky_relu),
        ("sigmoid", kernels.sigmoid, torch.sigmoid),
        ("tanh", kernels.tanh, torch.tanh),
        ("swish", kernels.silu, lambda x: x * torch.sigmoid(x)),
        ("gelu", kernels.gelu, F.gelu),
        ("new_gelu", lambda x: kernels.gelu(x, "tanh"), _new_gelu),
        ("selu", kernels.selu, F.selu),
        ("hardsigmoid", kernels.hardsigmoid, F.hardsigmoid),
        ("softplus", kernels.softplus, F.softplus),
        ("softsign", kernels.softsign, lambda x: x / (1 + x.abs())),
        ("elu", kernels.elu, F.elu),
        ("hardtanh", kernels.hardtanh, F.hardtanh),
    ]
    m, n = 4096, 16384
    for dtype in (SINGLE, BRAIN):
        for name, ours, base in pairs:
            yield Case(
                "activations", f"{name} {_short(dtype)}", f"{m}×{n}", lambda t=dtype: (_normal(m, n, t),), ours, base,
                lambda x, base=base: base(x.double()), moved=2 * m * n * dtype.itemsize,
            )  # fmt: skip
        yield Case(
            "activations", f"silu × up {_short(dtype)}", f"{m}×{n}", lambda t=dtype: (_normal(m, n, t), _normal(m, n, t)),
            kernels.silu_and_multiply, lambda g, u: F.silu(g) * u, lambda g, u: F.silu(g.double()) * u.double(),
            moved=3 * m * n * dtype.itemsize,
        )  # fmt: skip


def _new_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def _product(a: Any, b: Any) -> Any:
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return torch.matmul(a.float(), b.float())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def _normal(m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(m, n, device="cuda").to(dtype)


def _short(dtype: torch.dtype) -> str:
    return {HALF: "f16", BRAIN: "bf16", SINGLE: "f32"}[dtype]


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


def run_case(case: Case, rounds: int) -> dict[str, Any]:
    """Medians in microseconds of both, twice, with the error."""
    inputs = [case.make() for _ in range(_LAUNCHES)]
    wrong = error(case.ours(*inputs[0]), case.exact(*inputs[0]))
    keep: list[Any] = []
    timers = [graph(case.ours, inputs, keep), graph(case.base, inputs, keep)]
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
    parser.add_argument("--only", default="product,rows,activations")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.manual_seed(0)
    groups = {"product": products, "rows": rows, "activations": activations}
    ceiling = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {ceiling / 1e12:.2f} TB/s")
    found: list[dict[str, Any]] = []
    for group in options.only.split(","):
        for case in groups[group]():
            try:
                row = run_case(case, options.rounds)
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
