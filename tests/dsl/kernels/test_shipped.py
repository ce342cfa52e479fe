"""What the operators launch: generated modules, made of the kernels as they are, which need triton and torch alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from dsl.test_launching import DType, Gpu, Tensor
from tilewright import ArgumentError, LaunchError
from tilewright.kernels import build, catalogue, configurations, shipped

with_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def test_the_file_is_made_of_the_kernels_as_they_are() -> None:
    assert build.TARGET.read_text() == build.text(), "run `make kernels` and commit what it writes"


def test_every_kernel_has_one_entry() -> None:
    keys = [shipped.key(name, values) for _, name, values in catalogue.entries()]
    assert len(set(keys)) == len(keys)


def test_equal_values_are_the_same_kernel() -> None:
    values = dict(configurations.of_product(4096, 4096, 4096))
    assert shipped.kernel("gemm_nn", {**values, "T": "f16"}) is shipped.kernel("gemm_nn", {"T": "f16", **values})
    with pytest.raises(KeyError, match="BM=48"):
        shipped.kernel("gemm_nn", {**values, "BM": 48, "T": "f16"})


@with_triton
def test_neither_front_end_nor_numpy_is_needed() -> None:
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tree_sitter", "tree_sitter_python", "numpy", "z3", "rich", "pygls"}:
            raise ModuleNotFoundError(name)

import triton.experimental.gluon  # which may use NumPy itself
sys.meta_path.insert(0, Missing())
for name in [n for n in sys.modules if n.partition(".")[0] == "numpy"]:
    del sys.modules[name]
from tilewright.kernels import shipped
print(shipped.kernel("relu", {"T": "f32"}).module.bind.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "bind\n", done.stderr


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    return gpu


def relu(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> shipped.Shipped:
    found = shipped.kernel("relu", {"T": "f32"})
    fresh = shipped.Shipped(found.name, found.target, found.entry, found.source)
    monkeypatch.setattr(fresh.module, found.entry, gpu.entry())
    return fresh


@with_triton
def test_known_tensors_are_only_launched(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    kernel = relu(monkeypatch, gpu)
    for _ in range(3):
        kernel(Tensor((1000,), DType("float32")), Tensor((1000,), DType("float32")))
    kernel(Tensor((4096,), DType("float32")), Tensor((4096,), DType("float32")))
    assert [(how, grid) for how, _, grid, _ in gpu.launches] == [
        ("jit", (1,)), ("compiled", (1, 1, 1)), ("compiled", (1, 1, 1)), ("jit", (4,)),
    ]  # fmt: skip


@with_triton
def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    kernel = relu(monkeypatch, gpu)
    with pytest.raises(ArgumentError, match="relu"):
        kernel(Tensor((1000,), DType("float32")), Tensor((999,), DType("float32")))
    gpu.capability = (7, 5)
    with pytest.raises(LaunchError, match="sm_75"):
        kernel(Tensor((1000,), DType("float32")), Tensor((1000,), DType("float32")))
