"""The judge's side of a GPU: fills, poisons and compares memory that the process of a kernel shares with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tilewright_reference import Backend

from .describe import mismatch
from .protocol import Message
from .terms import F16_OVERFLOW, Difference, Guarded, JobError, Launch, not_as_agreed
from .timing import Sampler, Side
from .torches import TYPES, failure_of, kind_of

GUARD = 4096  # elements before and after a tensor; a multiple of 128 bytes, so that TMA's alignment holds


class Cuda:
    """The first GPU. Raises ImportError or RuntimeError where torch sees none."""

    guard = GUARD
    runs_code = True
    folder = ""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.properties = torch.cuda.get_device_properties(0)
        self.name: str = self.properties.name
        self.backend: Backend = TorchFunctions(torch)
        # A reference in TF32 would be no reference.
        torch.backends.cuda.matmul.allow_tf32 = False

    def open(self, handle: Any, elements: int, dtype: str) -> Any:
        """Memory of another process, as a flat tensor. `handle` is what that process says, so it is not trusted."""
        torch, kind = self.torch, kind_of(self.torch, dtype)
        size = elements * torch.empty(0, dtype=kind, device="cuda").element_size()
        try:
            parts = [
                bytes.fromhex(str(cast("Message", p)["hex"])) if isinstance(p, dict) else p
                for p in cast("list[Any]", handle)
            ]
            if len(parts) != 8 or parts[2] != size:
                raise ValueError(f"{parts[2]} bytes for {elements} elements of {dtype}")
            storage = torch.UntypedStorage._new_shared_cuda(*parts)
            return torch.empty(0, dtype=kind, device="cuda").set_(storage, 0, (elements,), (1,))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise not_as_agreed(error) from None
        except Exception as error:
            raise failure_of(self.name, error) from error

    def private(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of the judge alone."""
        return self.torch.empty(math.prod(shape), dtype=kind_of(self.torch, dtype), device="cuda").view(*shape)

    def guarded(self, buffer: Any, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Guarded:
        """NaN, or an unlikely integer, inside and around."""
        torch = self.torch
        self.poison(buffer, dtype)
        if strides is not None:
            return self._spread(buffer, shape, strides)
        size = math.prod(shape)
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
        raw = self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, TYPES[dtype]))
        if raw.numel() != tensor.numel():
            raise JobError("bad job", f"{raw.numel()} elements given for a tensor of {tensor.numel()}")
        tensor.copy_(raw.view(tensor.shape))

    def copy(self, tensor: Any) -> Any:
        """A copy."""
        try:
            return tensor.clone()
        except Exception as error:
            raise failure_of(self.name, error) from error

    def assign(self, target: Any, source: Any) -> None:
        """Copy the elements over."""
        target.copy_(source)

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
            raise failure_of(self.name, error) from error

    def poison(self, tensor: Any, dtype: str) -> None:
        """NaN, or an unlikely integer."""
        if dtype.startswith("f8"):
            tensor.view(self.torch.uint8).fill_(0x7F)  # NaN in both
        elif tensor.dtype.is_floating_point:
            tensor.fill_(math.nan)
        else:
            tensor.view(self.torch.uint8).fill_(1 if dtype == "i1" else 0x5A)

    def sampler(self, launches: Sequence[Launch]) -> Side:
        """Samples of launches in this process."""
        return Sampler(self.torch, int(self.properties.L2_cache_size), launches)

    def release(self) -> None:
        """Give memory that is no longer needed back to the device, where the process of a kernel may want it."""
        self.torch.cuda.empty_cache()

    def failure(self, error: Exception) -> JobError:
        """What an error of the judge's own work means for the job."""
        return failure_of(self.name, error)


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
