"""What a cached call costs on the host, beside the same generated kernel launched by hand through Gluon, in one run.

make bench
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.lower.load import load_module

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS, CALLS = 60, 100  # fewer calls a round than the driver queues


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"measured_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def microseconds(torch: Any, ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of a call, all ways in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-3, ROUNDS):
        for name, way in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                way()
            took = (time.perf_counter() - start) / CALLS
            if number >= 0:
                times[name].append(took * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


@pytest.mark.gpu
def test_a_cached_launch_beside_gluon() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    x, y, out = (torch.randn(1024, device="cuda") for _ in range(3))
    by_hand = load_module(multiply_add.lower()).multiply_add
    report(torch, "multiply_add (3 pointers)", {
        "call": lambda: multiply_add(x, y, out),
        "gluon": lambda: by_hand[(1,)](x, y, out, 1024, num_warps=4),
    })  # fmt: skip
    if torch.cuda.get_device_capability() != (9, 0):
        return
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    gemm = example("gemm").gemm
    a, b, c = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((128, 64), (64, 256), (128, 256)))
    lowered = gemm.lower()
    boxes = {d.source: d for d in lowered.launch.arguments if d.kind == "descriptor"}
    module = load_module(lowered)
    layouts = {name: eval(box.layout, vars(module)) for name, box in boxes.items()}

    def described(name: str, tensor: Any) -> Any:
        return TensorDescriptor.from_tensor(tensor, list(boxes[name].block), layouts[name])

    given = [("A", a), ("B", b), ("C", c)]
    ready = [described(*pair) for pair in given]
    options = {"num_warps": lowered.launch.num_warps, "maxnreg": lowered.launch.maxnreg}
    report(torch, "gemm (3 descriptors)", {
        "call": lambda: gemm(a, b, c),
        "gluon": lambda: module.gemm[(1,)](*ready, 64, 128, 256, **options),
        "gluon, descriptors made for each call":
            lambda: module.gemm[(1,)](*[described(*pair) for pair in given], 64, 128, 256, **options),
    })  # fmt: skip


def report(torch: Any, what: str, ways: dict[str, Callable[[], Any]]) -> None:
    found = microseconds(torch, ways)
    more = found["call"] - found["gluon"]
    words = ", ".join(f"{name} {t:.1f} µs" for name, t in found.items())
    print(f"\n{what}: {words}; a call adds {more:+.1f} µs (target < 20), ratio {found['call'] / found['gluon']:.2f}")
    assert more < 20
