"""Runs lowered kernels on a GPU: correctness against float32 references, then timings against torch in the same run.

Needs torch and triton only. Usage: `python run_h200.py FOLDER [RESULT.json]`; FOLDER holds what `generate.py` wrote. The
generated modules are run as they are; nothing of Tilewright is imported.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import triton

GUARD = 4096  # elements on either side of an output that must stay as they were
REPEATS = 30


def load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Output:
    """An output tensor full of NaN between guard zones."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        count = 1
        for extent in shape:
            count *= extent
        self.buffer = torch.full((count + 2 * GUARD,), float("nan"), dtype=dtype, device="cuda")
        self.buffer[:GUARD] = 7.0
        self.buffer[GUARD + count :] = 7.0
        self.tensor = self.buffer[GUARD : GUARD + count].view(shape)
        self.count = count

    def guards_intact(self) -> bool:
        return bool((self.buffer[:GUARD] == 7.0).all()) and bool((self.buffer[GUARD + self.count :] == 7.0).all())


def gemm_case(m: int, n: int, k: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    # Beside the rounding to f16: tensor cores truncate, so each of the k / 16 steps may lose a unit of the last place of a
    # partial sum, which is about sqrt(k).
    return [a, b], Output((m, n), torch.float16), lambda: a.float() @ b.float(), 1e-6 + k / 16 * 2.0**-23 * k**0.5


def softmax_case(m: int, n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(m, n, device="cuda") * 4
    return [x], Output((m, n), torch.float32), lambda: torch.softmax(x.double(), 1).float(), 1e-7


def fma_case(n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    return [x, y], Output((n,), torch.float32), lambda: x * y + x, 1e-6


def fma16_case(n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x, y = (torch.randn(n, device="cuda", dtype=torch.float16) for _ in range(2))
    return [x, y], Output((n,), torch.float16), lambda: x.float() * y.float() + x.float(), 4e-3


def math_case(n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(n, device="cuda") * 3
    x[:: max(1, n // 50)] *= 1e-3

    def reference() -> torch.Tensor:
        d = x.double()
        value = torch.tanh(d) + torch.sigmoid(d) + torch.erf(d) + torch.sin(d) * torch.cos(d) + torch.floor(d)
        return (value + torch.sqrt(d.abs()) + torch.log2(d.abs() + 1) + torch.maximum(d, -d * 0.5)).float()

    return [x], Output((n,), torch.float32), reference, 2e-6


def rows_case(m: int, n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x, bias = torch.randn(m, n, device="cuda"), torch.randn(n, device="cuda")
    return [x, bias], Output((m,), torch.float32), lambda: (x + bias).double().sum(1).float(), 1e-4


def transposed_case(m: int, n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(m, n, device="cuda")
    return [x], Output((n, m), torch.float32), lambda: x.T + x.double().sum(0).float()[:, None], 1e-4


def rotated_case(n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(n, device="cuda")

    def reference() -> torch.Tensor:
        result = torch.empty_like(x)
        for t in range(7):
            result.view(7, -1)[-t % 7] = x.view(7, -1)[t] + ((-t - 1) // 2 + 4)
        return result

    return [x], Output((n,), torch.float32), reference, 1e-6


def types_case(n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(n, device="cuda") * 3

    def reference() -> torch.Tensor:
        whole, half, at = x.to(torch.int32), x.half(), torch.arange(n, device="cuda")
        functions = torch.tanh(half).clamp(min=0.5) + torch.sigmoid(half)
        chosen = torch.where(x < 0, functions.float(), (at % 256).float())
        return chosen + torch.maximum(whole, -whole.abs()) + (at // 256).float() + (whole == 3).float()

    return [x], Output((n,), torch.float32), reference, 4e-3


def three_axes_case(m: int, n: int, k: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.rand(m, n, k, device="cuda") + 0.5

    def reference() -> torch.Tensor:
        # A tile is 16 x 32: rows past the edge are zeros, which the maximum sees.
        top = x.amax(1, keepdim=True) if n >= 16 else x.amax(1, keepdim=True).clamp(min=0.0)
        return x / x.sum(2, keepdim=True) - top

    return [x], Output((m, n, k), torch.float32), reference, 1e-5


def scaled_case(m: int, n: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    x = torch.randn(m, n, device="cuda", dtype=torch.float16)
    return [x], Output((m, n), torch.float16), lambda: 2 * x.float(), 1e-6


def biased_case(m: int, n: int, k: int) -> tuple[list[torch.Tensor], Output, Callable[[], torch.Tensor], float]:
    (a, b), output, product, slack = gemm_case(m, n, k)
    bias = torch.randn(n, device="cuda")
    return [a, b, bias], output, lambda: torch.relu(product() + bias), slack


CASES: dict[str, Callable[..., Any]] = {
    "gemm": gemm_case, "softmax": softmax_case, "fma": fma_case, "fma16": fma16_case, "math": math_case, "rows": rows_case, "transposed": transposed_case,
    "rotated": rotated_case, "types": types_case, "three_axes": three_axes_case, "scaled": scaled_case, "biased": biased_case,
}  # fmt: skip


def check(module: ModuleType, kind: str, shape: list[int]) -> dict[str, Any]:
    torch.manual_seed(sum(shape))
    inputs, output, reference, slack = CASES[kind](*shape)
    before = [t.clone() for t in inputs]
    module.launch(*inputs, output.tensor)
    torch.cuda.synchronize()
    expected, got = reference(), output.tensor.float()
    half = 2.0**-10 if output.tensor.dtype == torch.float16 else 4e-6
    error = (got - expected).abs()
    allowed = half * expected.abs() + slack
    wrong = ~(error <= allowed)  # NaN counts as wrong
    return {
        "shape": shape,
        "ok": not bool(wrong.any()) and output.guards_intact() and all(map(torch.equal, before, inputs)),
        "wrong": int(wrong.sum()),
        "guards": output.guards_intact(),
        "max_error": float(error.nan_to_num(nan=float("inf")).max()),
        "max_error_over_allowed": float((error / allowed).nan_to_num(nan=float("inf")).max()),
    }


def baselines(kind: str, inputs: list[torch.Tensor], out: torch.Tensor) -> dict[str, Callable[[], Any]]:
    match kind:
        case "gemm":
            return {"torch.matmul": lambda: torch.matmul(inputs[0], inputs[1], out=out)}
        case "softmax":
            return {"torch.softmax": lambda: torch.softmax(inputs[0], 1, out=out)}
        case "fma" | "fma16":
            return {
                "torch.addcmul": lambda: torch.addcmul(inputs[0], inputs[0], inputs[1], out=out),
                "eager x*y+x": lambda: torch.add(inputs[0] * inputs[1], inputs[0], out=out),
            }
        case _:
            return {}


def work(kind: str, shape: list[int]) -> tuple[float, str]:
    """Operations or bytes of a case."""
    match kind:
        case "gemm":
            return 2.0 * shape[0] * shape[1] * shape[2], "TFLOP/s"
        case "softmax":
            return 8.0 * shape[0] * shape[1], "TB/s"
        case "fma16":
            return 6.0 * shape[0], "TB/s"
        case _:
            return 12.0 * shape[0], "TB/s"


def measure(module: ModuleType, kind: str, shape: list[int], flush: torch.Tensor) -> dict[str, Any]:
    """Milliseconds of the kernel and of torch, interleaved, the L2 cache filled with other data before each run."""
    inputs, output, _, _ = CASES[kind](*shape)
    runs = {"tilewright": module.prepare(*inputs, output.tensor), **baselines(kind, inputs, output.tensor)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(-5, REPEATS):
        for name, run in runs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            # Keeps the GPU busy for about 0.5 ms while the launch is prepared, so that only the kernel is timed.
            torch.cuda._sleep(1_000_000)
            start.record()
            run()
            end.record()
            end.synchronize()
            if repeat >= 0:
                times[name].append(start.elapsed_time(end))
    host: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        runs["tilewright"]()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize()
    amount, unit = work(kind, shape)
    rates = {name: amount / statistics.median(t) / 1e9 for name, t in times.items()}
    fastest = max(rate for name, rate in rates.items() if name != "tilewright")
    return {
        "shape": shape,
        "unit": unit,
        "rate": {name: round(rate, 3) for name, rate in rates.items()},
        "host_us": round(statistics.median(host) * 1e6, 1),
        "ratio": round(rates["tilewright"] / fastest, 4),
        "median_ms": {name: round(statistics.median(t), 4) for name, t in times.items()},
        "quartiles_ms": {name: [round(q, 4) for q in statistics.quantiles(t, n=4)] for name, t in times.items()},
    }


def copy_milliseconds() -> float:
    """Median time to copy 1 GiB on the device."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return float(triton.testing.do_bench(lambda: target.copy_(source), return_mode="median"))  # pyright: ignore[reportArgumentType]


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = Path(sys.argv[1])
    jobs = json.loads((folder / "jobs.json").read_text())
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    copy = copy_milliseconds()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "copy_TB_s": round(2 * 2**30 / copy / 1e9, 3), "repeats": REPEATS, "kernels": {},
    }  # fmt: skip
    for job in jobs:
        began = time.time()
        entry: dict[str, Any] = {"kind": job["kind"], "checks": [], "timings": []}
        result["kernels"][job["name"]] = entry
        try:
            module = load_module(folder / f"{job['name']}.py")
            for shape in job["checks"]:
                entry["checks"].append(check(module, job["kind"], shape))
            for shape in job["timings"]:
                entry["timings"].append(measure(module, job["kind"], shape, flush))
                if job["kind"] in ("softmax", "fma", "fma16"):
                    entry["timings"][-1]["of_copy"] = round(
                        entry["timings"][-1]["rate"]["tilewright"] / result["copy_TB_s"], 3
                    )
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {str(error)[-1500:]}"
        entry["seconds"] = round(time.time() - began, 1)
        good = all(c["ok"] for c in entry["checks"]) and "error" not in entry
        print(job["name"], "ok" if good else "WRONG", entry["seconds"], "s", entry.get("error", ""), flush=True)
        for c in entry["checks"]:
            if not c["ok"]:
                print("   wrong", c, flush=True)
        for t in entry["timings"]:
            print("   ", t["shape"], t["rate"], t["unit"], "ratio", t["ratio"], t.get("of_copy", ""), flush=True)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
