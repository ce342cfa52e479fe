"""As much of torch as the GPU side of the worker uses, on NumPy, so that its logic runs where there is neither.

It shows that the worker's calls fit together; what the real library does with them is the GPU tests' to show.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np


class DType:
    def __init__(self, name: str, kind: str) -> None:
        self.name, self.np = name, np.dtype(kind)
        self.is_floating_point = self.np.kind == "f"


float16, float32, float64 = DType("float16", "f2"), DType("float32", "f4"), DType("float64", "f8")
bfloat16 = DType("bfloat16", "f4")
uint8, int32, int64 = DType("uint8", "u1"), DType("int32", "i4"), DType("int64", "i8")
bool = DType("bool", "?")
_BY_KIND = {d.np: d for d in (float16, float32, float64, uint8, int32, int64, bool)}


class Tensor:
    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    @property
    def dtype(self) -> DType:
        return _BY_KIND[self.array.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.array[tuple(map(_plain, index)) if isinstance(index, tuple) else _plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = _plain(value)

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __bool__(self) -> Any:
        return self.array.__bool__()

    def view(self, *how: Any) -> Tensor:
        if isinstance(how[0], DType):
            return Tensor(self.array.view(how[0].np))
        return Tensor(self.array.reshape(how[0] if isinstance(how[0], tuple) else how))

    def reshape(self, *shape: Any) -> Tensor:
        return Tensor(self.array.reshape(*shape))

    def clone(self) -> Tensor:
        return Tensor(self.array.copy())

    def numel(self) -> int:
        return self.array.size

    def element_size(self) -> int:
        return self.array.itemsize

    def to(self, dtype: DType) -> Tensor:
        return Tensor(self.array.astype(dtype.np))

    def fill_(self, value: Any) -> None:
        self.array[...] = value

    def zero_(self) -> None:
        self.array[...] = 0

    def copy_(self, other: Tensor) -> None:
        self.array[...] = other.array

    def normal_(self, generator: Any) -> None:
        self.array[...] = generator.standard_normal(self.array.shape)

    def uniform_(self, generator: Any) -> None:
        self.array[...] = generator.random(self.array.shape)

    def abs_(self) -> Tensor:
        np.abs(self.array, out=self.array)
        return self

    def abs(self) -> Tensor:
        return Tensor(np.abs(self.array))

    def min(self) -> Tensor:
        return Tensor(self.array.min())

    def square(self) -> Tensor:
        return Tensor(self.array**2)

    def sum(self, dtype: DType | None = None) -> Tensor:
        return Tensor(self.array.sum(dtype=dtype.np if dtype else None))

    def max(self) -> Tensor:
        return Tensor(self.array.max())

    def argmax(self) -> Tensor:
        return Tensor(self.array.argmax())

    def untyped_storage(self) -> _Storage:
        return _Storage(self)

    def set_(self, storage: _Opened, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
        assert (offset, stride) == (0, (1,))
        return Tensor(np.frombuffer(storage.memory, self.array.dtype)[: size[0]])


class _Storage:
    """Memory that another process can map: a file stands in for it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _share_cuda_(self) -> tuple[Any, ...]:
        array = self.tensor.array
        with tempfile.NamedTemporaryFile(prefix="fake-gpu-", delete=False) as file:
            file.write(array.tobytes())
            file.flush()
            memory = mmap.mmap(file.fileno(), array.nbytes)
        self.tensor.array = np.frombuffer(memory, array.dtype)
        return (0, file.name.encode(), array.nbytes, 0, b"", 0, b"", False)


class _Opened:
    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory


class UntypedStorage:
    @staticmethod
    def _new_shared_cuda(device: int, handle: bytes, size: int, *_: Any) -> _Opened:
        with open(handle, "r+b") as file:
            opened = _Opened(mmap.mmap(file.fileno(), size))
        os.unlink(handle)
        return opened


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _operator(name: str) -> Any:
    def apply(self: Tensor, *others: Any) -> Tensor:
        with np.errstate(all="ignore"):
            return Tensor(getattr(self.array, name)(*map(_plain, others)))

    return apply


for _name in (
    "add", "sub", "mul", "truediv", "matmul", "eq", "le", "ge", "gt", "and", "or", "invert", "neg",
    "radd", "rsub", "rmul",
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _operator(f"__{_name}__"))


def empty(size: int, dtype: DType, device: str) -> Tensor:
    assert device == "cuda"
    if size > 1 << 28:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate a lot")
    return Tensor(np.zeros(size, dtype.np))


def randint(low: int, high: int, shape: tuple[int, ...], generator: Any, device: str) -> Tensor:
    return Tensor(generator.integers(low, high, shape))


def frombuffer(data: bytearray, dtype: DType) -> Tensor:
    return Tensor(np.frombuffer(data, dtype.np))


def equal(a: Tensor, b: Tensor) -> Any:
    return np.array_equal(a.array, b.array)


def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    return Tensor(np.where(condition.array, _plain(a), _plain(b)))


def isfinite(a: Tensor) -> Tensor:
    return Tensor(np.isfinite(a.array))


def isnan(a: Tensor) -> Tensor:
    return Tensor(np.isnan(a.array))


def zeros_like(a: Tensor) -> Tensor:
    return Tensor(np.zeros_like(a.array))


def full_like(a: Tensor, value: float) -> Tensor:
    return Tensor(np.full_like(a.array, value))


def softmax(a: Tensor, dim: int) -> Tensor:
    e = np.exp(a.array - a.array.max(dim, keepdims=True))
    return Tensor(e / e.sum(dim, keepdims=True))


class Generator:
    def __init__(self, device: str) -> None:
        assert device == "cuda"

    def manual_seed(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)


class OutOfMemoryError(RuntimeError):
    pass


class _Event:
    """Time passes only in kernels: `advance` is called by those of the tests."""

    now = 0.0

    def __init__(self, enable_timing: Any = False) -> None:
        self.at = math.nan

    def query(self) -> Any:
        return not _stalled

    def record(self) -> None:
        self.at = _Event.now

    def elapsed_time(self, other: _Event) -> float:
        return other.at - self.at


def advance(milliseconds: float) -> None:
    _Event.now += milliseconds


_captured: list[list[Any]] = []  # the graph that is being captured, if any
_elsewhere: list[Any] = []  # work of other streams, done when the device is waited for


def launch(work: Any, *, stream: str = "current") -> None:
    """What kernels of the tests do their work by: at once, into a graph, or on a stream that nobody waits for."""
    if stream != "current":
        _elsewhere.append(work)
        if _stalled:  # nobody holds that stream up
            _elsewhere.pop()()
    elif _stalled:
        _stalled.append(work)
    elif _captured:
        _captured[-1].append(work)
    else:
        work()


class CUDAGraph:
    def __init__(self) -> None:
        self.work: list[Any] = []

    def replay(self) -> None:
        for work in self.work:
            work()


class _Capture:
    def __init__(self, graph: CUDAGraph) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        _captured.append(self.graph.work)

    def __exit__(self, *_: Any) -> None:
        _captured.pop()


sleeps = 0
_stalled: list[Any] = []  # what waits on the current stream while it is held up


def _sleep(cycles: int) -> None:
    global sleeps
    if cycles > 1_000_000:
        _stalled.append(lambda: None)
        return
    sleeps += 1
    advance(0.2)


pending_errors: list[Exception] = []


def _synchronize() -> None:
    held, _stalled[:] = list(_stalled), []
    for work in held:
        work()
    while _elsewhere:
        _elsewhere.pop(0)()
    if pending_errors:
        raise pending_errors.pop()


cuda = SimpleNamespace(
    get_device_properties=lambda index: SimpleNamespace(name="Fake GPU", L2_cache_size=1 << 20, total_memory=1 << 30),
    synchronize=_synchronize,
    Event=_Event,
    CUDAGraph=CUDAGraph,
    graph=_Capture,
    empty_cache=lambda: None,
    current_stream=lambda: None,
    set_stream=lambda stream: None,
    _sleep=_sleep,
)
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)))
nn = SimpleNamespace(functional=SimpleNamespace())
