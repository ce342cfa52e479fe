"""The judge's side of a machine without a GPU: it compares what Tilewright's interpreter computes, and has no times."""

from __future__ import annotations

import importlib
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright_reference import Backend
from tilewright_reference.numpy_functions import NumpyFunctions

from .describe import mismatch
from .terms import F16_OVERFLOW, Difference, Guarded, JobError, Launch, not_as_agreed, room
from .timing import Side

GUARD = 256  # elements before and after a tensor

_STORAGE: Mapping[str, str] = {
    "f16": "float16", "bf16": "float32", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i1": "bool",
    "f8e4m3": "float32", "f8e5m2": "float32",
}  # fmt: skip


def storage_of(dtype: str) -> str:
    """The NumPy type of an element type. Raises JobError."""
    if dtype not in _STORAGE:
        raise JobError("bad job", f"unknown element type {dtype!r}")
    return _STORAGE[dtype]


def _numbers() -> tuple[Any, Any]:
    """The interpreter's arithmetic and the element types; by name, as the worker is also shipped without them."""
    return importlib.import_module("tilewright.interpret.numeric"), importlib.import_module("tilewright.dtypes")


class Interpreter:
    """Compares what an interpreter computed. Tensors of bf16 and 8-bit floats are float32 arrays of such values."""

    guard = GUARD
    runs_code = False
    folder = ""  # of the job that runs, where its tensors are
    name = "interpreter (no GPU)"

    def __init__(self) -> None:
        self.backend: Backend = NumpyFunctions()

    def open(self, handle: Any, elements: int, dtype: str) -> Any:
        """A file that the process of the kernel maps too. `handle` is what that process says, so it is not trusted."""
        kind: Any = np.dtype(storage_of(dtype))
        path, size = str(handle), elements * kind.itemsize
        try:
            if os.path.realpath(os.path.dirname(path)) != os.path.realpath(self.folder):
                raise ValueError("a file outside the folder of the job")
            descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
            with os.fdopen(descriptor, "r+b") as file:
                if os.fstat(file.fileno()).st_size != size:
                    raise ValueError(f"no {size} bytes")
                return np.frombuffer(mmap.mmap(file.fileno(), size), kind)
        except (OSError, ValueError) as error:
            raise not_as_agreed(error) from None

    def private(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of the judge alone."""
        return np.zeros(tuple(shape), storage_of(dtype))

    def guarded(self, buffer: Any, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Guarded:
        """NaN, or an unlikely integer, inside and around."""
        size = room(shape, strides)
        self.poison(buffer, dtype)
        edges = (buffer[:GUARD], buffer[GUARD + size :])
        before = [e.tobytes() for e in edges]
        if strides is not None:
            return self._spread(buffer, shape, strides)
        tensor = buffer[GUARD : GUARD + size].reshape(shape)
        return Guarded(tensor, lambda: [e.tobytes() for e in edges] == before)

    def _spread(self, buffer: Any, shape: Sequence[int], strides: Sequence[int]) -> Guarded:
        """A tensor with gaps between its rows, which must stay as they are too."""
        steps = tuple(s * buffer.itemsize for s in strides)

        def elements(of: Any) -> Any:
            return np.lib.stride_tricks.as_strided(of[GUARD:], tuple(shape), steps)

        def outside() -> bytes:
            copy = buffer.copy()
            elements(copy)[...] = 0
            return copy.tobytes()

        before = outside()
        return Guarded(elements(buffer), lambda: outside() == before)

    def fill(self, tensor: Any, dtype: str, distribution: str, seed: int) -> None:
        """Random elements of the type."""
        random: Any = np.random.default_rng(seed)
        values: Any
        kind = tensor.dtype.kind
        if kind == "b":
            values = random.integers(0, 2, tensor.shape)
        elif kind in "iu" or distribution == "index":
            low = -8 if dtype == "i8" and distribution != "index" else 0
            values = random.integers(low, 8, tensor.shape)
        elif distribution == "uniform":
            values = random.random(tensor.shape)
        else:
            values = random.standard_normal(tensor.shape)
        tensor[...] = values
        if dtype == "bf16":
            tensor.view(np.uint32)[...] &= 0xFFFF0000
        elif dtype.startswith("f8"):
            numeric, dtypes = _numbers()
            tensor[...] = numeric.to_dtype(tensor, dtypes.ALL[dtype])

    def load(self, tensor: Any, data: bytes, dtype: str) -> None:
        """From raw bytes; bf16 comes as patterns of 16 bits, 8-bit floats as patterns of 8."""
        patterns = np.uint16 if dtype == "bf16" else np.uint8 if dtype.startswith("f8") else None
        raw: Any = np.frombuffer(data, patterns or tensor.dtype)
        if raw.size != tensor.size:
            raise JobError("bad job", f"{raw.size} elements given for a tensor of {tensor.size}")
        if dtype == "bf16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        elif patterns is not None:
            numeric, dtypes = _numbers()
            raw = numeric.from_bits(raw, dtypes.ALL[dtype])
        tensor[...] = raw.reshape(tensor.shape)

    def copy(self, tensor: Any) -> Any:
        """A copy."""
        return tensor.copy()

    def assign(self, target: Any, source: Any) -> None:
        """Copy the elements over."""
        target[...] = source

    def equal(self, first: Any, second: Any) -> bool:
        """Bit by bit, so that NaN equals itself."""
        return first.tobytes() == second.tobytes()

    def difference(self, got: Any, want: Any, tolerance: float) -> Difference:
        """In float64."""
        if tuple(got.shape) != tuple(want.shape):
            return Difference(math.inf, message=f"the reference has shape {want.shape}, the output {got.shape}")
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite: Any = np.isfinite(w)
        squares: Any = w[finite] ** 2
        scale = math.sqrt(float(squares.mean())) if squares.size else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(g - w)
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        if got.dtype == np.float16:  # beyond the range of the type infinity is right
            same |= np.isinf(g) & (g * w > 0) & (np.abs(w) * (1 + tolerance) >= F16_OVERFLOW)
        # A reference of zeros has no scale; the error then counts as it is.
        known: Any = np.where(finite, w, 0.0)
        limit: Any = np.abs(known) + (scale or 1.0)
        relative = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error / limit))
        wrong = ~(relative <= tolerance)
        count = int(wrong.sum())
        worst = float(relative.max()) if relative.size else 0.0
        if not count:
            return Difference(worst, 0, int(g.size))
        unwritten = int((np.isnan(g) & ~np.isnan(w)).sum())
        chosen = (np.isnan(g) & ~np.isnan(w)) if unwritten else wrong
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(chosen)), g.shape))
        text = mismatch(index, float(g[index]), float(w[index]), count, int(g.size), tolerance, unwritten)
        return Difference(worst, count, int(g.size), text)

    def synchronize(self) -> None:
        """Nothing runs ahead."""

    def poison(self, tensor: Any, dtype: str) -> None:
        """NaN, or an unlikely integer."""
        tensor[...] = self._poison(tensor.dtype)

    def sampler(self, launches: Sequence[Launch]) -> Side:
        """Never asked for: the interpreter's times are none (`InterpreterHost.sampler`)."""
        raise JobError("unsupported", "the interpreter has no clock")

    def release(self) -> None:
        """Memory is given back as it is dropped."""

    def failure(self, error: Exception) -> JobError:
        """What an error of the judge's own work means for the job."""
        if isinstance(error, MemoryError):
            return JobError("out of memory", "the machine has too little memory")
        return JobError("launch", f"{type(error).__name__}: {error}")

    def _poison(self, kind: Any) -> Any:
        if kind.kind == "f":
            return np.nan
        return True if kind.kind == "b" else np.frombuffer(b"\x5a" * kind.itemsize, kind)[0]
