"""Calls on tensors of torch: what a call needs is found out once for a kind of arguments; later ones only launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, cast

from tilewright import arguments
from tilewright.arguments import ArgumentError, TensorFacts, check_count
from tilewright.dtypes import DType
from tilewright.generated import LaunchError, check_device, tensor_kinds
from tilewright.ir import nodes as ir
from tilewright.lower import Lowered
from tilewright.lower.load import load_module

Launch = Callable[..., Any]

MOST_KINDS = 4096
"""Kinds of arguments that are remembered for a kernel, so that ever new shapes do not fill the memory."""


class Launcher:
    """Launches one kernel on CUDA tensors, on their device and its current stream.

    Arguments that agree in shapes, strides, types, device and alignment are checked and prepared once. A launch with
    known arguments allocates nothing and waits for nothing, so a CUDA graph may capture it. Safe to call from several
    threads.
    """

    def __init__(self, kernel: ir.Kernel, lower: Callable[[], Lowered]) -> None:
        """`lower` gives the generated code; it is called at the first launch."""
        self._kernel, self._lower = kernel, lower
        wanted = kernel.arguments
        self._first = next(i for i, a in enumerate(wanted) if isinstance(a, ir.Param))
        # Of scalars those count among what is known whose value decides how the kernel is launched.
        decides = arguments.decisive(kernel)
        self._scalars = {i: a.name in decides for i, a in enumerate(wanted) if isinstance(a, ir.ScalarParam)}
        self._known: dict[Any, Launch] = {}
        self._ready: set[object] = set()
        self._lock = Lock()

    def find(self, given: Sequence[Any]) -> Launch | None:
        """The launch for arguments of a kind that was seen before; None for others, tensors or not."""
        try:
            return self._known.get(self._kind(given))
        except (AttributeError, IndexError, TypeError, RuntimeError):
            return None  # something that is not a dense tensor

    def first(self, given: Sequence[Any]) -> None:
        """Check arguments of a new kind, launch, and remember how.

        Raises ArgumentError for arguments that do not fit, LaunchError, LoweringError, and what the compiler raises.
        """
        facts = self._facts(given)
        arguments.bind(self._kernel, facts, _torch_types)
        import torch  # pyright: ignore[reportMissingImports]

        # One thread compiles; those that wait for it then find what it found.
        with self._lock:
            device = given[self._first].device
            launch = self.find(given) or self._prepare(given, cast(Any, torch), device)
            launch(*given)
            self._ready.add(device)
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[self._kind(given)] = launch

    def _kind(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """What decides how a kernel is launched on arguments."""
        if not self._scalars:
            return tensor_kinds(given)
        tensors = [a for i, a in enumerate(given) if i not in self._scalars]
        values: list[object] = [(type(given[i]), given[i] if d else None) for i, d in self._scalars.items()]
        return (*tensor_kinds(tensors), *values)

    def _prepare(self, given: Sequence[Any], torch: Any, device: Any) -> Launch:
        if device not in self._ready:
            check_device(self._kernel.name, self._kernel.target, torch, device)
        bind = self._module().bind
        try:
            launch: Launch = bind(*given)
        except ValueError as error:
            raise ArgumentError(f"{self._kernel.name}: {error}") from None
        return launch

    def _module(self) -> Any:
        try:
            return load_module(self._lower())
        except ImportError as error:
            raise LaunchError(f"launching needs torch and triton ({error}): pip install 'tilewright[gpu]'") from error

    def _facts(self, given: Sequence[Any]) -> list[object]:
        check_count(self._kernel, len(given))
        found: list[object] = []
        for param, argument in zip(self._kernel.arguments, given, strict=True):
            if isinstance(param, ir.ScalarParam):
                found.append(argument)
                continue
            try:
                if str(getattr(argument, "layout", "torch.strided")) != "torch.strided":
                    raise TypeError  # sparse tensors have shape, strides and type as well
                dtype = str(argument.dtype).removeprefix("torch.")
                shape, strides = tuple(argument.shape), tuple(argument.stride())
                found.append(TensorFacts(dtype, shape, strides, str(argument.device)))
            except (AttributeError, TypeError, RuntimeError):
                where = f"{type(argument).__module__}.{type(argument).__qualname__}"
                raise ArgumentError(
                    f"{self._kernel.name}: {param.name} is a {where}, expected a dense tensor of torch on a GPU, "
                    "as the other arguments are"
                ) from None
        return found


def _torch_types(dtype: DType) -> tuple[str, ...]:
    return (dtype.torch,)
