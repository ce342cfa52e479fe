"""Kernels in Python: `@tw.kernel` and what the decorated name can do."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, update_wrapper
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, overload

from tilewright.arguments import ArgumentError
from tilewright.dtypes import DType
from tilewright.expand import expand
from tilewright.frontend import KernelUnit, Module, parse_module
from tilewright.interpret import RunReport, interpret
from tilewright.interpret.numeric import accepted
from tilewright.ir import nodes as ir
from tilewright.ir.expr import show
from tilewright.launching import Launcher
from tilewright.lower import Lowered, lower
from tilewright.source import SourceText


class KernelError(ValueError):
    """The kernel cannot be used as it stands; the message holds the front end's problems with their lines."""


class InterpreterWarning(UserWarning):
    """A kernel was called with arrays or tensors of the CPU, so the interpreter runs it, which is slow.

    Given once for a kernel. `kernel.interpret(…)` means the interpreter, and does not warn.
    """


class KernelFunction:
    """A kernel. Its body is read from the source file, by the same front end as in the editor, and never executed.

    `gemm(a, b, c)` launches on CUDA tensors; `gemm.interpret(a, b, c)` runs on the CPU; `gemm.check()` verifies;
    `gemm.lower()` gives the generated code; `gemm.using(BM=64)` is the same kernel with other compile-time values;
    `gemm.tune()` is the fastest proved of these.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        consts: Mapping[str, int | str] | None = None,
        target: str | None = None,
        read: KernelUnit | None = None,
    ) -> None:
        """`read` is what the front end made of another text than that of the file, such as a tuned one."""
        update_wrapper(self, function)
        self.__name__: str = function.__name__
        self.function = function
        self.consts = dict(consts or {})
        self.target = target
        self._read = read
        self._others: dict[object, KernelFunction] = {}
        self._typed: dict[tuple[Any, ...], KernelFunction] = {}
        self._told = False
        self.report: Any = None
        """Of a kernel from `tune`: what was tried, a `tilewright_agent.variants.Optimization` with a `summary`."""

    def using(self, target: str | None = None, **consts: int | DType) -> KernelFunction:
        """The kernel with other compile-time values, element types or for another target: `gemm.using("sm_80", BM=64)`.

        `warps=` overrides that of the decorator. Equal values give the same object, so what was compiled for it is
        found again. An element type that is chosen here (`T=tw.bf16`) is no longer that of the arguments.
        """
        named = {name: value.name if isinstance(value, DType) else value for name, value in consts.items()}
        wanted, target = {**self.consts, **named}, target or self.target
        key = (target, *sorted(wanted.items()))
        if key not in self._others:
            self._others.setdefault(key, KernelFunction(self.function, wanted, target, self._read))
        return self._others[key]

    @cached_property
    def unit(self) -> KernelUnit:
        """The kernel as the front end read it. Raises KernelError when its source is not to be had."""
        unit = self._read
        if unit is None:
            source = self._source()
            unit = _module(source.data, source.path).unit(self.__name__)
            if unit is None:
                raise KernelError(
                    f"no kernel '{self.__name__}' in {source.path}; is it decorated with @tw.kernel at module level?"
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
        """Run on the CPU with NumPy arrays (or CPU torch tensors), in place.

        Raises ArgumentError for arguments that do not fit, naming what each is and should be, and Violation for what no
        correct kernel does.
        """
        typed = self._of_types(arguments)
        return typed.interpret(*arguments) if typed is not self else interpret(self.explicit, *arguments)

    def check(self) -> Any:
        """Verify; the result is a `tilewright_analysis.report.KernelReport`, whose `verdict` is "proved", …."""
        return _provided("tilewright.checker", "verifier", "tilewright_analysis")(self.unit)

    def lower(self, target: str | None = None) -> Lowered:
        """Generated Gluon code (`.source`) with its launch description. Raises LoweringError."""
        return lower(self.using(target).explicit if target else self.explicit)

    def tune(
        self,
        sizes: Mapping[str, int] | Sequence[Mapping[str, int]] = (),
        *,
        runners: str | Sequence[str] = "local",
        limit: int = 64,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> KernelFunction:
        """The fastest proved configuration of the kernel, as a kernel: `fast = gemm.tune({"M": 4096, "N": 4096})`.

        Tries at most `limit` configurations: the declared choices (`tw.choice`), then what the rules of `tilewright
        optimize` add. Only what the verifier proves is run. `fast.report.summary` is a table of what was tried.

        Args:
            sizes: the problem sizes to be fast at, or several of them: the geometric mean of the times decides. Sizes
                that are left out are large.
            runners: names from the project's pyproject.toml, commands, or "local"; all with the same kind of GPU.
            limit: how many configurations are considered.
            progress: called with the number decided, their total and a line about the last one.

        Raises KernelError for a kernel with errors, ValueError for sizes and runners that cannot be used and when no
        configuration is proved and gives right results, ConnectionError when no runner answers. Without a GPU on the
        runners, the static performance model decides.
        """
        _ = self.kernel  # raises for a kernel with errors
        tune = _provided("tilewright.tuner", "tuner", "tilewright_agent")
        unit, report = tune(
            self.unit,
            sizes=[sizes] if isinstance(sizes, Mapping) else list(sizes),
            runners=[runners] if isinstance(runners, str) else list(runners),
            limit=limit,
            progress=progress,
        )
        tuned = KernelFunction(self.function, None, self.target, self._read if unit is None else unit)
        tuned.report = report
        return tuned

    @cached_property
    def _types(self) -> tuple[tuple[str, int], ...]:
        """Names of element types that arguments decide, each with the position of a tensor that has it."""
        kernel = self.kernel
        positions = {a.name: i for i, a in enumerate(kernel.arguments)}
        free = (t for t in kernel.element_types if t.tensors and t.name not in self.consts)
        return tuple((t.name, positions[t.tensors[0]]) for t in free)

    def _of_types(self, arguments: Sequence[Any]) -> KernelFunction:
        """This kernel for the element types of the arguments; a wrong number of them is for the launch to refuse."""
        if not self._types or len(arguments) != len(self.kernel.arguments):
            return self
        key = tuple(getattr(arguments[at], "dtype", None) for _, at in self._types)
        found = self._typed.get(key)
        if found is None:
            chosen: dict[str, DType] = {}
            for (name, at), dtype in zip(self._types, key, strict=True):
                param = next(t for t in self.kernel.element_types if t.name == name)
                tensor = self.kernel.arguments[at].name
                chosen[name] = _element_type(self.__name__, param, tensor, dtype)
            found = self._typed[key] = self.using(None, **chosen)
        return found

    @cached_property
    def _launcher(self) -> Launcher:
        return Launcher(self.kernel, self.lower)

    def __call__(self, *arguments: Any) -> None:
        """Launch on CUDA tensors, on their device and its current stream; CPU arrays go to the interpreter.

        The first call with tensors of a kind compiles and checks; later ones only launch, and may be captured by a
        CUDA graph.
        """
        typed = self._of_types(arguments) if self._types else self
        launcher = typed._launcher
        launch = launcher.find(arguments)
        if launch is not None:
            launch(*arguments)
        elif all(getattr(getattr(a, "device", None), "type", "cpu") == "cpu" for a in arguments):
            if not self._told:
                self._told = True
                warnings.warn(
                    f"{self.__name__}: the arguments are on the CPU, so the interpreter runs the kernel, slowly. "
                    f"Pass CUDA tensors to launch it, or say {self.__name__}.interpret(…) to mean the interpreter",
                    InterpreterWarning,
                    stacklevel=2,
                )
            self.interpret(*arguments)
        else:
            launcher.first(arguments)

    def __repr__(self) -> str:
        try:
            kernel = self.kernel
        except (KernelError, OSError) as error:
            return f"<kernel {self.__name__}: {' '.join(str(error).splitlines()[:2])}>"
        words = [
            f"{a.name}: {a.dtype}"
            if isinstance(a, ir.ScalarParam)
            else f"{a.name}: {a.type.dtype}[{', '.join(map(show, a.type.shape))}]"
            for a in kernel.arguments
        ]
        words += [f"{c.name}={c.value}" for c in kernel.consts]
        return f"<kernel {self.__name__}({', '.join(words)}) for {kernel.target}, {kernel.warps} warps>"

    def _source(self) -> SourceText:
        path = inspect.getsourcefile(self.function)
        if path is None or not Path(path).exists():
            raise KernelError(f"the source of '{self.__name__}' is not in a file; kernels are read from their source")
        return SourceText(Path(path).read_bytes(), path)


def _element_type(kernel: str, param: ir.TypeParam, tensor: str, dtype: object) -> DType:
    """The choice of `param` that a tensor of `dtype` (of NumPy or torch) takes."""
    name = str(dtype).removeprefix("torch.")
    exact = [c for c in param.choices if c.torch == name]
    # What NumPy does not have is given to the interpreter as bits.
    for choice in exact or [c for c in param.choices if name in map(str, accepted(c))]:
        return choice
    known = ", ".join(c.torch for c in param.choices)
    raise ArgumentError(f"{kernel}: {tensor} has elements of {name}; its element type {param.name} is one of {known}")


@lru_cache(maxsize=32)
def _module(data: bytes, path: str) -> Module:
    """The kernels of a file read once for all of them."""
    return parse_module(SourceText(data, path))


def _provided(group: str, what: str, package: str) -> Callable[..., Any]:
    """What another package provides through an entry point, so that the language need not import it."""
    for point in entry_points(group=group):
        return point.load()
    raise KernelError(f"no {what} is installed; the package {package} provides it")


@overload
def kernel(function: Callable[..., Any], /) -> KernelFunction: ...
@overload
def kernel(
    *, target: str = "sm_80", warps: int = 4, registers: int | None = None, reference: str = ""
) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a kernel: `@tw.kernel(target="sm_90a", warps=8)`, or plain `@tw.kernel`.

    `target`: the least GPU it is for ("sm_80" means sm_80 and up; "sm_90a" exactly that). `warps`: warps of 32 threads
    (AMD: 64) that compute. `registers`: the most a thread may have, so that more blocks fit. `reference`: what it
    computes ("C = A @ B"), an expression over its arguments that runs and checks are compared with (TW108).
    """
    if function is not None:
        return KernelFunction(function)
    return KernelFunction
