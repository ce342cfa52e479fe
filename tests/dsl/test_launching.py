"""Calls on CUDA tensors, with a torch that only has what a launch uses and a compiler that writes down what it launches."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import subprocess
import sys
import threading
import time
import warnings
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.lower.load import load_module

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Device:
    type: str
    index: int | None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


@dataclass(frozen=True)
class DType:
    name: str
    is_floating_point: bool = True

    def __str__(self) -> str:
        return f"torch.{self.name}"


@dataclass(eq=False)
class Tensor:
    shape: tuple[int, ...]
    dtype: DType = DType("float16")
    device: Device = Device("cuda", 0)
    address: int = 1 << 20
    strides: tuple[int, ...] = ()

    def stride(self, axis: int | None = None) -> Any:
        after = itertools.accumulate(reversed(self.shape[1:]), lambda a, b: a * b, initial=1)
        strides = self.strides or tuple(reversed(list(after)))
        return strides if axis is None else strides[axis]

    def data_ptr(self) -> int:
        return self.address

    def dim(self) -> int:
        return len(self.shape)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"


@dataclass
class Gpu:
    """The machine: its current device, whether its stream is being captured, and what was launched."""

    capability: tuple[int, int] = (9, 0)
    current: int = 0
    capturing: bool = False
    compilations: int = 0
    launches: list[tuple[str, int, tuple[int, ...], tuple[Any, ...]]] = field(default_factory=list)

    def torch(self) -> Any:
        @contextmanager
        def device(which: Any) -> Any:
            before, self.current = self.current, which if isinstance(which, int) else which.index
            yield
            self.current = before

        cuda = SimpleNamespace(
            device=device,
            get_device_capability=lambda _: self.capability,
            get_device_name=lambda _: "Fake GPU",
            get_device_properties=lambda _: SimpleNamespace(multi_processor_count=4),
            is_current_stream_capturing=lambda: self.capturing,
        )
        types = {name: DType(name) for name in ("float16", "float32", "bfloat16")}
        return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None), **types)

    def entry(self) -> Any:
        def compiled(grid: tuple[int, ...]) -> Any:
            return lambda *args: self.launches.append(("compiled", self.current, grid, args))

        def jit(grid: tuple[int, ...]) -> Any:
            def launch(*args: Any, **options: Any) -> Any:
                self.compilations += 1
                time.sleep(0.01)
                self.launches.append(("jit", self.current, grid, args))
                return Indexed(compiled)

            return launch

        return Indexed(jit)


@dataclass
class Indexed:
    get: Any

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.get(grid)


def kernel_of(monkeypatch: pytest.MonkeyPatch, file: str, name: str, gpu: Gpu) -> tw.KernelFunction:
    """A kernel of an example, whose generated module launches on `gpu`."""
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: tw.KernelFunction = getattr(module, name)
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    monkeypatch.setattr(load_module(function.lower()), name, gpu.entry())
    return function


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def gemm(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> tw.KernelFunction:
    return kernel_of(monkeypatch, "gemm", "gemm", gpu)


def operands(m: int = 512, n: int = 768, k: int = 64, **which: Any) -> tuple[Tensor, Tensor, Tensor]:
    return Tensor((m, k), **which), Tensor((k, n), **which), Tensor((m, n), **which)


def test_later_calls_launch_what_was_compiled_on_their_own_tensors(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    first, second = operands(), operands()
    assert gemm(*first) is None and gemm(*second) is None
    (how, _, grid, args), (again, _, grid_again, others) = gpu.launches
    assert (how, again, gpu.compilations) == ("jit", "compiled", 1)
    assert (grid, grid_again) == ((4,), (4, 1, 1))  # 4 x 3 tiles, persistent on 4 processors
    assert [a.base for a in args[:3]] == list(first) and [a.base for a in others[:3]] == list(second)
    assert args[3:] == others[3:] == (64, 512, 768)
    assert [(a.shape, a.strides, a.block_shape) for a in others[:3]] == [
        ([512, 64], [64, 1], [128, 64]), ([64, 768], [768, 1], [64, 256]), ([512, 768], [768, 1], [128, 256]),
    ]  # fmt: skip
    assert others[0] == type(args[0])(
        second[0], [512, 64], [64, 1], [128, 64], others[0].layout
    )  # what Triton's own constructor gives


def test_other_shapes_are_checked_and_get_their_own_grid(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    gemm(*operands())
    gemm(*operands(m=128, n=256))
    assert gpu.launches[-1][2] == (1,)
    with pytest.raises(tw.ArgumentError, match="assumes K % 8 == 0, which does not hold for K = 60"):
        gemm(*operands(k=60))


def test_a_misaligned_tensor_is_refused_after_aligned_ones_alike(gemm: tw.KernelFunction) -> None:
    a, b, c = operands()
    gemm(a, b, c)
    with pytest.raises(tw.ArgumentError, match="gemm: B must begin at a multiple of 16 bytes"):
        gemm(a, Tensor(b.shape, address=(1 << 20) + 8), c)


def test_strides_are_part_of_what_is_checked(gemm: tw.KernelFunction) -> None:
    a, b, c = operands()
    gemm(a, b, c)
    with pytest.raises(tw.ArgumentError) as caught:
        gemm(Tensor(a.shape, strides=(128, 1)), b, c)
    assert str(caught.value).splitlines() == [
        "gemm: A has stride 128 along axis 0, expected 64 elements (K); pass a contiguous array or declare the strides",
        "  A is float16 (512, 64), strides (128, 1), on cuda:0",
        "  A should be float16 [M = 512, K = 64], strides (K = 64, 1), on cuda:0",
    ]


def test_the_device_of_the_tensors_is_current_during_the_launch(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    for which in (1, 1, 0):
        gemm(*operands(device=Device("cuda", which)))
    assert [device for _, device, _, _ in gpu.launches] == [1, 1, 0]
    assert gpu.current == 0


def test_the_tensors_of_the_first_call_are_not_kept(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    tensors = operands()
    gone = [weakref.ref(t) for t in tensors]
    gemm(*tensors)
    del tensors
    gpu.launches.clear()
    gc.collect()
    assert all(ref() is None for ref in gone)


def test_nothing_is_compiled_in_a_graph(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    gpu.capturing = True
    with pytest.raises(tw.LaunchError, match="launch it once with such arguments before the capture"):
        gemm(*operands())
    gpu.capturing = False
    gemm(*operands())
    gpu.capturing = True
    gemm(*operands())
    gemm(*operands(m=128))  # another shape of what is compiled already
    assert gpu.compilations == 2 and len(gpu.launches) == 3


@pytest.mark.parametrize("capability", [(8, 0), (10, 0)])
def test_a_gpu_that_the_kernel_is_not_for(gpu: Gpu, gemm: tw.KernelFunction, capability: tuple[int, int]) -> None:
    gpu.capability = capability
    name = f"sm_{capability[0]}0"
    with pytest.raises(tw.LaunchError, match=rf"gemm is for sm_90a, and cuda:0 is a Fake GPU \({name}\); gemm\.using"):
        gemm(*operands())


def test_plain_targets_run_on_newer_gpus(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    function = kernel_of(monkeypatch, "gemm", "gemm_sm80", gpu)
    function(*operands())
    assert len(gpu.launches) == 1
    gpu.capability = (7, 5)
    with pytest.raises(tw.LaunchError, match="is for sm_80"):
        function(*operands(device=Device("cuda", 1)))


def test_arguments_that_do_not_fit_are_named(gemm: tw.KernelFunction) -> None:
    a, b, c = operands()
    for given, message in (
        ((a, b), r"gemm takes 3 arrays \(A, B, C\), got 2"),
        ((a, b, Tensor(c.shape, device=Device("cuda", 1))), r"C is on cuda:1, but A is on cuda:0\n  C is float16 \(512, 768\)"),
        ((a, b, Tensor(c.shape, device=Device("cpu", None))), "C is on cpu, but A is on cuda:0"),
        ((a, np.zeros((64, 768), np.float16), c), "B is a numpy.ndarray, expected a dense tensor of torch on a GPU"),
        ((a, b, 1.5), "C is a builtins.float, expected a dense tensor"),
        ((a, Tensor(b.shape, DType("float32")), c), r"B has elements float32, expected float16 \(f16\)"),
        ((a, Tensor((64, 0)), Tensor((512, 0))), r"size N is 0 \(axis 1 of B\)"),
        ((a, Tensor((64,)), c), r"B has shape \(64,\), expected 2 axes \[K, N\]"),
    ):  # fmt: skip
        with pytest.raises(tw.ArgumentError, match=message):
            gemm(*given)
    elsewhere = Device("mps", 0)
    with pytest.raises(tw.LaunchError, match="there are cuda and cpu"):
        gemm(*operands(device=elsewhere))


def test_threads_compile_once(gpu: Gpu, gemm: tw.KernelFunction) -> None:
    gemm.kernel  # noqa: B018  read before the threads start
    threads = [threading.Thread(target=gemm, args=operands()) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (gpu.compilations, len(gpu.launches)) == (1, 8)


def test_equal_kernels_share_what_is_compiled(gemm: tw.KernelFunction) -> None:
    assert gemm.using(BM=64) is gemm.using(BM=64)
    assert gemm.using(BM=64).using("sm_90a") is not gemm.using(BM=128)
    assert load_module(gemm.using(BM=128).lower()) is load_module(gemm.lower())
    assert load_module(gemm.using(BM=64).lower()) is not load_module(gemm.lower())


def test_a_cached_launch_takes_few_microseconds(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    function = kernel_of(monkeypatch, "elementwise", "multiply_add", gpu)
    tensors = [Tensor((1000,), DType("float32")) for _ in range(3)]
    function(*tensors)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            function(*tensors)
        best = min(best, (time.perf_counter() - start) / 100)
    # Tensors of the test compute their strides in Python; torch's do not.
    assert best < 40e-6


# --------------------------------------------------------------------------------------------- on the CPU


def test_cpu_arrays_are_interpreted_with_one_notice() -> None:
    spec = importlib.util.spec_from_file_location("elementwise", EXAMPLES / "elementwise.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y, out = np.ones(100, np.float32), np.full(100, 2, np.float32), np.zeros(100, np.float32)
    with pytest.warns(tw.InterpreterWarning, match=r"multiply_add: the arguments are on the CPU") as found:
        module.multiply_add(x, y, out)
    assert found[0].filename == __file__
    np.testing.assert_array_equal(out, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.multiply_add(x, y, out)
        module.multiply_add.interpret(x, y, out)


def test_the_cpu_needs_neither_torch_nor_triton() -> None:
    program = (
        "import sys, numpy as np, elementwise\n"
        "elementwise.multiply_add(*[np.ones(8, np.float32)] * 3)\n"
        "print('torch' in sys.modules, 'triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=EXAMPLES, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr


# --------------------------------------------------------------------------------------------- what it shows


def test_a_kernel_prints_what_it_is(gemm: tw.KernelFunction) -> None:
    assert str(gemm.using(BM=64)) == (
        "<kernel gemm(A: f16[M, K], B: f16[K, N], C: f16[M, N], BM=64, BN=256, BK=64, STAGES=3, GROUP=16) "
        "for sm_90a, 8 warps>"
    )
    assert repr(gemm.using(XX=1)).startswith("<kernel gemm: 'gemm' has errors: line ")

    def local() -> None:
        pass

    assert repr(tw.kernel(local)).startswith("<kernel local: no kernel 'local' in ")
    assert (gemm.__name__, gemm.__module__) == ("gemm", "gemm")


def test_the_package_lists_only_what_is_public() -> None:
    assert dir(tw) == sorted(tw.__all__)
    assert all(getattr(tw, name) is not None for name in dir(tw))
