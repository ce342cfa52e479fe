"""Calls on CUDA tensors: streams, graphs, threads and mistakes, on a GPU of this machine."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"launched_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def vectors(n: int, count: int = 2) -> list[Any]:
    import torch  # pyright: ignore[reportMissingImports]

    return [torch.randn(n, device="cuda") for _ in range(count)] + [torch.zeros(n, device="cuda")]


def test_results_are_right_again_and_again_and_at_other_sizes() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    for n in (1000, 1000, 7, 4096, 1000):
        x, y, out = vectors(n)
        multiply_add(x, y, out)
        torch.testing.assert_close(out, x * y + x)


def test_a_product_through_tma_is_right_on_new_tensors() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs an sm_90 device")
    gemm = example("gemm").gemm
    for m, n, k in ((512, 768, 64), (512, 768, 64), (513, 1000, 264), (512, 768, 64)):
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(k, n, device="cuda", dtype=torch.float16)
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
        gemm(a, b, c)
        torch.testing.assert_close(c, (a.float() @ b.float()).half(), rtol=2e-3, atol=2e-2)


def test_the_current_stream_is_used() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    x, y, out = vectors(1 << 20)
    multiply_add(x, y, out)
    out.zero_()
    assert not bool(out.any())  # loading what this needs would wait for all streams
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # about 0.1 s, only in this stream
        multiply_add(x, y, out)
        done = side.record_event()
    assert not done.query() and not bool(out.any())  # behind the delay
    done.synchronize()
    torch.testing.assert_close(out, x * y + x)


@pytest.mark.parametrize("name", ["elementwise", "gemm"])
def test_a_graph_captures_launches_of_what_is_compiled(name: str) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    module = example(name)
    if name == "gemm":
        if torch.cuda.get_device_capability() != (9, 0):
            pytest.skip("needs an sm_90 device")
        x, y = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((256, 64), (64, 512)))
        out, kernel = torch.zeros(256, 512, device="cuda", dtype=torch.float16), module.gemm
    else:
        (x, y, out), kernel = vectors(5000), module.multiply_add

    def want() -> Any:
        return x @ y if name == "gemm" else x * y + x

    with pytest.raises(tw.LaunchError, match="before the capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        kernel(x, y, out)
    torch.cuda.synchronize()
    kernel(x, y, out)
    torch.cuda.synchronize()
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before = torch.cuda.memory_allocated()
        kernel(x, y, out)
        kernel(x, y, out)
        assert torch.cuda.memory_allocated() == before
    assert not bool(out.any())
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(out, want(), rtol=2e-3, atol=2e-2)


def test_a_new_shape_of_a_compiled_kernel_may_be_captured() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    multiply_add(*vectors(100))
    x, y, out = vectors(777)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply_add(x, y, out)
    graph.replay()
    torch.testing.assert_close(out, x * y + x)


def test_threads_launch_at_the_same_time() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    wrong: list[str] = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for n in range(seed, 3000, 211):
                    x, y, out = vectors(n)
                    multiply_add(x, y, out)
                    torch.testing.assert_close(out, x * y + x)
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_mistakes_are_named() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    x, y, out = vectors(1000)
    multiply_add(x, y, out)
    for given, message in (
        ((x, y.half(), out), r"Y has elements float16, expected float32 \(f32\)"),
        ((x, y[:999], out), r"Y has extent 999 along axis 0, expected 1000 \(N, from axis 0 of X\)"),
        ((x, y.cpu(), out), "Y is on cpu, but X is on cuda:0"),
        ((x, torch.randn(2000, device="cuda")[::2], out), "Y has stride 2 along axis 0, expected 1 elements"),
        ((x, torch.randn(1001, device="cuda")[1:], out), "Y must begin at a multiple of 16 bytes"),
        ((x, y.to_sparse(), out), "Y is a torch.Tensor, expected a dense tensor"),
        ((x, y), r"takes 3 arrays \(X, Y, OUT\), got 2"),
    ):
        with pytest.raises(tw.ArgumentError, match=message):
            multiply_add(*given)


def test_tensors_on_the_cpu_are_interpreted() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    multiply_add = example("elementwise").multiply_add
    x, y, out = (t.cpu() for t in vectors(1000))
    with pytest.warns(tw.InterpreterWarning, match="the arguments are on the CPU"):
        multiply_add(x, y, out)
    torch.testing.assert_close(out, x * y + x)
