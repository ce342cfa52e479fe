"""Kernels in Python: `@tw.kernel` and what the decorated name can do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, overload

from tilewright.expand import expand
from tilewright.frontend import KernelUnit, parse_module
from tilewright.interpret import RunReport, interpret
from tilewright.ir import nodes as ir
from tilewright.lower import Lowered, lower
from tilewright.source import SourceText


class KernelError(ValueError):
    """The kernel cannot be used as it stands; the message holds the front end's problems with their lines."""


class KernelFunction:
    """A kernel. Its body is read from the source file, by the same front end as in the editor, and never executed.

    `gemm(a, b, c)` launches on CUDA tensors; `gemm.interpret(a, b, c)` runs on the CPU; `gemm.check()` verifies;
    `gemm.lower()` gives the generated code; `gemm.using(BM=64)` is the same kernel with other compile-time values.
    """

    def __init__(
        self, function: Callable[..., Any], consts: dict[str, int] | None = None, target: str | None = None
    ) -> None:
        self.function = function
        self.consts = consts or {}
        self.target = target
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def using(self, target: str | None = None, **consts: int) -> KernelFunction:
        """The kernel with other compile-time values or for another target."""
        return KernelFunction(self.function, {**self.consts, **consts}, target or self.target)

    @cached_property
    def unit(self) -> KernelUnit:
        """The kernel as the front end read it. Raises KernelError when its source is not to be had."""
        path = inspect.getsourcefile(self.function)
        if path is None or not Path(path).exists():
            raise KernelError(f"the source of '{self.__name__}' is not in a file; kernels are read from their source")
        unit = parse_module(SourceText(Path(path).read_bytes(), path)).unit(self.__name__)
        if unit is None:
            raise KernelError(
                f"no kernel '{self.__name__}' in {path}; is it decorated with @tw.kernel at module level?"
            )
        return unit.with_consts(self.target, **self.consts) if self.consts or self.target else unit

    @cached_property
    def kernel(self) -> ir.Kernel:
        """The Tile IR of this instance. Raises KernelError with every problem of the front end."""
        unit = self.unit
        errors = [p for p in unit.problems if p.severity == "error"]
        if unit.kernel is None or errors:
            source = SourceText.of(unit.text)
            lines = [f"line {source.line_of(p.span.start) + 1} of the kernel: {p.code} {p.message}" for p in errors]
            raise KernelError(f"'{self.__name__}' has errors:\n" + "\n".join(lines))
        return unit.kernel

    @cached_property
    def explicit(self) -> ir.Kernel:
        """The kernel in explicit instructions.

        Raises ExpansionError when a policy cannot be carried out, InferenceError when no layout fits.
        """
        return expand(self.kernel)

    def interpret(self, *arguments: Any) -> RunReport:
        """Run on the CPU with NumPy arrays (or CPU torch tensors), in place; argument errors name what is wrong."""
        return interpret(self.explicit, *arguments)

    def check(self) -> Any:
        """Verify; the result is a `tilewright_analysis.report.KernelReport`."""
        for point in entry_points(group="tilewright.checker"):
            return point.load()(self.unit)
        raise KernelError("no verifier is installed; the package tilewright_analysis provides it")

    def lower(self, target: str | None = None) -> Lowered:
        """Generated Gluon code with its launch description. Raises LoweringError."""
        return lower(self.using(target).explicit if target else self.explicit)

    @cached_property
    def _launcher(self) -> Callable[..., Any]:
        from tilewright.lower.load import load_launcher

        return load_launcher(self.lower())

    def __call__(self, *arguments: Any) -> None:
        """Launch on CUDA tensors, on their device and the current stream; CPU arrays go to the interpreter."""
        if all(getattr(getattr(a, "device", None), "type", "cpu") == "cpu" for a in arguments):
            self.interpret(*arguments)
            return
        self._launcher(*arguments)


@overload
def kernel(function: Callable[..., Any], /) -> KernelFunction: ...
@overload
def kernel(
    *, target: str = "sm_80", warps: int = 4, reference: str = ""
) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a kernel.

    `target`: the least GPU it is for ("sm_80" means sm_80 and up; "sm_90a" exactly that). `warps`: warps of 32 threads
    (AMD: 64) that compute. `reference`: what it computes ("C = A @ B"), an expression over its arguments to compare
    runs with.
    """
    if function is not None:
        return KernelFunction(function)
    return KernelFunction
