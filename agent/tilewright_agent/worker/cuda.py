"""An NVIDIA or AMD GPU through torch: launches the generated module, compares on the device, times with events."""

from __future__ import annotations

import hashlib
import importlib
import linecache
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright_reference import Backend

from .describe import mismatch
from .grade import F16_OVERFLOW, Difference, Guarded, JobError, Kernel, Launch, Timing, room
from .protocol import Message
from .seal import Seal
from .timing import capture, measure

GUARD = 4096  # elements before and after a tensor; a multiple of 128 bytes, so that TMA's alignment holds

_TYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i1": "bool",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


class Cuda:
    """The first GPU. Raises ImportError or RuntimeError where torch sees none."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.properties = torch.cuda.get_device_properties(0)
        self.name: str = self.properties.name
        self.backend: Backend = TorchFunctions(torch)
        # A reference in TF32 would be no reference.
        torch.backends.cuda.matmul.allow_tf32 = False
        self.seal = Seal(torch)  # before any kernel is loaded

    def kernel(self, job: Message) -> Kernel:
        """`prepare` of the generated module."""
        text = job.get("module")
        if not isinstance(text, str) or not text:
            raise JobError("bad job", "the job brings no generated module, which a GPU needs")
        # Two kernels of a job may have the same name; triton and linecache must not take one for the other.
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        name = f"<tilewright {job.get('kernel', 'kernel')} {digest}>"
        # Triton reads the source of its functions through linecache, so no file is needed.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        module = types.ModuleType(f"tilewright_generated_{digest}")
        module.__file__ = name
        sys.modules[module.__name__] = module  # where inspect and triton look up the module of a function
        try:
            exec(compile(text, name, "exec"), module.__dict__)
            prepare: Callable[..., Callable[[], None]] = module.prepare
        except Exception as error:
            raise JobError("compile", f"the generated module does not load: {type(error).__name__}: {error}") from error

        def bind(tensors: Sequence[Any]) -> Callable[[], None]:
            try:
                launch = prepare(*tensors)
            except Exception as error:
                raise self._failure(error) from error

            def run() -> None:
                try:
                    launch()
                except Exception as error:
                    raise self._failure(error) from error

            return run

        return bind

    def guarded(self, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Guarded:
        """NaN, or an unlikely integer, inside and around."""
        torch = self.torch
        if dtype not in _TYPES:
            raise JobError("bad job", f"unknown element type {dtype!r}")
        size, kind = room(shape, strides), getattr(torch, _TYPES[dtype])
        try:
            buffer = torch.empty(size + 2 * GUARD, dtype=kind, device="cuda")
        except Exception as error:
            raise self._failure(error) from error
        self.poison(buffer, dtype)
        if strides is not None:
            return self._spread(buffer, shape, strides)
        edges = [buffer[:GUARD].view(torch.uint8), buffer[GUARD + size :].view(torch.uint8)]
        before = [e.clone() for e in edges]

        def intact() -> bool:
            return all(bool(torch.equal(e, b)) for e, b in zip(edges, before, strict=True))

        return Guarded(buffer[GUARD : GUARD + size].view(*shape), intact)

    def _spread(self, buffer: Any, shape: Sequence[int], strides: Sequence[int]) -> Guarded:
        """A tensor with gaps between its rows, which must stay as they are too."""

        def outside() -> Any:
            copy = buffer.clone()
            copy.as_strided(tuple(shape), tuple(strides), GUARD).zero_()
            return copy.view(self.torch.uint8)

        before = outside()
        tensor = buffer.as_strided(tuple(shape), tuple(strides), GUARD)
        return Guarded(tensor, lambda: bool(self.torch.equal(outside(), before)))

    def fill(self, tensor: Any, dtype: str, distribution: str, seed: int) -> None:
        """Random elements from a generator of their own."""
        torch = self.torch
        generator = torch.Generator(device="cuda").manual_seed(seed)
        if not tensor.dtype.is_floating_point or distribution == "index":
            top = 2 if tensor.dtype == torch.bool else 8
            low = -8 if dtype == "i8" and distribution != "index" else 0
            tensor.copy_(torch.randint(low, top, tensor.shape, generator=generator, device="cuda"))
        elif dtype.startswith("f8"):  # torch draws no random numbers of these types
            draw = torch.rand if distribution == "uniform" else torch.randn
            tensor.copy_(draw(tensor.shape, generator=generator, device="cuda"))
        elif distribution == "uniform":
            tensor.uniform_(generator=generator)
        else:
            tensor.normal_(generator=generator)

    def load(self, tensor: Any, data: bytes, dtype: str) -> None:
        """From raw bytes."""
        raw = self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, _TYPES[dtype]))
        if raw.numel() != tensor.numel():
            raise JobError("bad job", f"{raw.numel()} elements given for a tensor of {tensor.numel()}")
        tensor.copy_(raw.view(tensor.shape))

    def copy(self, tensor: Any) -> Any:
        """A copy."""
        return tensor.clone()

    def equal(self, first: Any, second: Any) -> bool:
        """Bit by bit, so that NaN equals itself."""
        torch = self.torch
        return bool(torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8)))

    def difference(self, got: Any, want: Any, tolerance: float) -> Difference:
        """In float32 on the device, float64 for float64 outputs."""
        torch = self.torch
        if tuple(got.shape) != tuple(want.shape):
            shapes = f"the reference has shape {tuple(want.shape)}, the output {tuple(got.shape)}"
            return Difference(math.inf, message=shapes)
        total = got.numel()
        if total == 0:
            return Difference(0.0)
        kind = torch.float32 if got.dtype in (torch.float16, torch.bfloat16, torch.float32) else torch.float64
        g, w = got.to(kind), want.to(kind)
        finite = torch.isfinite(w)
        clean = torch.where(finite, w, torch.zeros_like(w))
        scale = math.sqrt(float(clean.square().sum(dtype=torch.float64)) / max(1, int(finite.sum())))
        same = (g == w) | (torch.isnan(g) & torch.isnan(w))
        if got.dtype == torch.float16:  # beyond the range of the type infinity is right
            beyond = (w.abs() * (1 + tolerance) >= F16_OVERFLOW) & (g * w > 0)
            same = same | (~torch.isfinite(g) & beyond)
        # A reference of zeros has no scale; the error then counts as it is.
        relative = (g - w).abs_() / (clean.abs_() + (scale or 1.0))
        relative = torch.where(torch.isnan(relative), torch.full_like(relative, math.inf), relative)
        relative = torch.where(same, torch.zeros_like(relative), relative)
        wrong = ~(relative <= tolerance)
        count, worst = int(wrong.sum()), float(relative.max())
        if not count:
            return Difference(worst, 0, total)
        undefined = torch.isnan(g) & ~torch.isnan(w)
        unwritten = int(undefined.sum())
        flat = int((undefined if unwritten else wrong).reshape(-1).to(torch.uint8).argmax())
        index: list[int] = []
        for extent in reversed(tuple(got.shape)):
            index.insert(0, flat % extent)
            flat //= extent
        at = tuple(index)
        return Difference(
            worst, count, total, mismatch(at, float(g[at]), float(w[at]), count, total, tolerance, unwritten)
        )

    def synchronize(self) -> None:
        """Wait; asynchronous errors show here."""
        try:
            self.torch.cuda.synchronize()
        except Exception as error:
            raise self._failure(error) from error

    def poison(self, tensor: Any, dtype: str) -> None:
        """NaN, or an unlikely integer."""
        if dtype.startswith("f8"):
            tensor.view(self.torch.uint8).fill_(0x7F)  # NaN in both
        elif tensor.dtype.is_floating_point:
            tensor.fill_(math.nan)
        else:
            tensor.view(self.torch.uint8).fill_(1 if dtype == "i1" else 0x5A)

    def time(self, candidate: Sequence[Launch], baseline: Sequence[Launch]) -> Timing | None:
        """Candidate and baseline in turn, with a cold and with a warm L2 (`timing`)."""
        try:
            return measure(self.torch, int(self.properties.L2_cache_size), candidate, baseline)
        except JobError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def strays(self, launch: Launch, outputs: Sequence[Any]) -> bool:
        """A launch that is captured into a graph does nothing yet, so whatever appears was done on another stream."""
        before = [self.copy(o) for o in outputs]
        graph = capture(self.torch, [launch])
        self.synchronize()
        del graph
        return not all(self.equal(o, b) for o, b in zip(outputs, before, strict=True))

    def tampered(self) -> str:
        """The first function of torch or of the worker that was replaced."""
        return self.seal.broken()

    def _failure(self, error: Exception) -> JobError:
        if isinstance(error, JobError):
            return error
        text, kind = str(error).strip(), type(error).__name__
        if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "out of memory" in text:
            return JobError("out of memory", f"{self.name}: {text.splitlines()[0] if text else kind}")
        if any(words in text for words in ("illegal memory access", "misaligned address", "illegal instruction")):
            return JobError("illegal access", f"{self.name}: {text.splitlines()[0]}")
        failure = "compile" if any(w in kind for w in ("Compilation", "OutOfResources", "PTXAS")) else "launch"
        return JobError(failure, f"{kind}: {text[:2000]}")


FUNCTIONAL = ("gelu", "silu", "conv2d", "scaled_dot_product_attention")  # what torch.nn.functional has


class TorchFunctions:
    """The functions of references in torch itself."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`torch.name`, or the function of `torch.nn.functional`."""
        if name == "reshape":  # torch.reshape takes the shape as one argument only
            return args[0].reshape(*args[1:])
        if name == "arange":
            return self.torch.arange(*args, device="cuda")
        if name == "scaled_dot_product_attention":
            kwargs = {n: bool(v) for n, v in kwargs.items()}
        functional = self.torch.nn.functional
        function = getattr(functional if name in FUNCTIONAL else self.torch, name)
        return function(*args, **kwargs)

    def cast(self, tensor: Any, name: str) -> Any:
        """`tensor.to(torch.name)`."""
        return tensor.to(getattr(self.torch, name))

    def float_bits(self, tensor: Any) -> int:
        """Bits of the floating-point type."""
        return 8 * tensor.element_size() if tensor.dtype.is_floating_point else 0

    def index_range(self, tensor: Any) -> tuple[int, int]:
        """The smallest and largest element."""
        if tensor.dtype.is_floating_point or tensor.dtype == self.torch.bool:
            raise TypeError(f"an index has integers, this one {tensor.dtype}")
        return (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, -1)

    def take(self, tensor: Any, index: tuple[Any, ...]) -> Any:
        """`tensor[index]`. Torch takes 32-bit indices as they are, and 8-bit ones for a mask."""
        torch = self.torch
        own = (torch.int32, torch.int64)
        parts = [i if getattr(i, "dtype", torch.int64) in own else i.to(torch.int64) for i in index]
        return tensor[tuple(parts)]


def load_torch() -> Any:
    """The torch module. Raises ImportError."""
    return importlib.import_module("torch")
