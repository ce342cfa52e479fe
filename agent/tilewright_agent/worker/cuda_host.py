"""The kernel's side of a GPU: loads a generated module and launches it on memory that it shares with the judge.

What is here runs in one process with generated code, so nothing that it says is trusted: values are compared, and times
cross-checked, by the judge.
"""

from __future__ import annotations

import hashlib
import linecache
import math
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .protocol import Message
from .seal import Seal
from .terms import JobError, Kernel, Launch
from .timing import Sampler, Side
from .torches import failure_of, kind_of

STALL_CYCLES = 200_000_000  # about 0.1 s


class CudaHost:
    """The first GPU."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.properties = torch.cuda.get_device_properties(0)
        self.name: str = self.properties.name
        torch.empty(1, dtype=torch.uint8, device="cuda")  # a context, which takes long, before there is a job
        self._held: Any = None  # the event behind what holds the stream up
        self.seal = Seal(torch)  # before any kernel is loaded

    def load(self, program: Message) -> Kernel:
        """`prepare` of the generated module."""
        text = program.get("module")
        if not isinstance(text, str) or not text:
            raise JobError("bad job", "the job brings no generated module, which a GPU needs")
        # Two kernels may have the same name; triton and linecache must not take one for the other.
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        name = f"<tilewright {program.get('kernel', 'kernel')} {digest}>"
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
                raise failure_of(self.name, error) from error

            def run() -> None:
                try:
                    launch()
                except Exception as error:
                    raise failure_of(self.name, error) from error

            return run

        return bind

    def buffer(self, elements: int, dtype: str) -> Any:
        """A flat tensor."""
        kind = kind_of(self.torch, dtype)
        try:
            return self.torch.empty(elements, dtype=kind, device="cuda")
        except Exception as error:
            raise failure_of(self.name, error) from error

    def share(self, buffer: Any) -> Any:
        """The CUDA IPC handle of a buffer, in JSON. The judge sees this process's memory, and not the other way."""
        try:
            parts = buffer.untyped_storage()._share_cuda_()
        except Exception as error:
            raise failure_of(self.name, error) from error
        return [{"hex": bytes(p).hex()} if isinstance(p, bytes | bytearray) else p for p in parts]

    def view(self, buffer: Any, shape: Sequence[int], strides: Sequence[int] | None, offset: int) -> Any:
        """A tensor inside a buffer."""
        if strides is not None:
            return buffer.as_strided(tuple(shape), tuple(strides), offset)
        return buffer[offset : offset + math.prod(shape)].view(*shape)

    def synchronize(self) -> None:
        """Wait; asynchronous errors show here."""
        try:
            self.torch.cuda.synchronize()
        except Exception as error:
            raise failure_of(self.name, error) from error

    def sampler(self, launches: Sequence[Launch]) -> Side:
        """Samples of launches in this process."""
        return Sampler(self.torch, int(self.properties.L2_cache_size), launches)

    def stall(self, launch: Launch) -> None:
        """Hold the stream up, and launch behind that."""
        self.synchronize()
        self.torch.cuda._sleep(STALL_CYCLES)
        self._held = self.torch.cuda.Event()
        self._held.record()
        launch()

    def stalled(self) -> bool:
        """Whether the stream is still held up."""
        return not self._held.query()

    def release(self) -> None:
        """Give memory that is no longer needed back to the device, where the judge may want it."""
        self.torch.cuda.empty_cache()

    def tampered(self) -> str:
        """The first function by which times are taken that was replaced."""
        return self.seal.broken()
