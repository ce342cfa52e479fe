"""The generated modules that the operators launch: made from the kernels by `make kernels`, kept in `lowered.json`.

So a machine that calls them needs torch and triton, but no front end. The file holds each line once, and modules as
numbers of lines: they differ little.
"""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from threading import Lock
from typing import Any, cast

from tilewright.arguments import ArgumentError
from tilewright.generated import check_device, load_source, tensor_kinds

FILE = "lowered.json"
MOST_KINDS = 4096
"""Kinds of arguments that are remembered for a kernel, so that ever new shapes do not fill the memory."""

Values = Mapping[str, int | str]
"""Compile-time values of a kernel, with warps and element types among them."""


def key(name: str, values: Values) -> str:
    """How a kernel with such compile-time values is called in the file."""
    return " ".join([name, *(f"{n}={values[n]}" for n in sorted(values))])


class Shipped:
    """A kernel that is launched on CUDA tensors, on their device and its current stream, as `Launcher` does."""

    def __init__(self, name: str, target: str, entry: str, source: str) -> None:
        self.name, self.target, self.entry, self.source = name, target, entry, source
        self._known: dict[Any, Any] = {}
        self._ready: set[object] = set()
        self._lock = Lock()

    def __call__(self, *given: Any) -> None:
        """Launch. The first call with tensors of a kind compiles and checks; a CUDA graph may capture later ones.

        Raises ArgumentError for arguments that do not fit and LaunchError for a GPU that the kernel is not for.
        """
        tensors = [a for a in given if hasattr(a, "data_ptr")]
        # Integers may decide the grid; other scalars do not decide how a kernel is launched.
        kind = (*tensor_kinds(tensors), *[a for a in given if isinstance(a, int)])
        launch = self._known.get(kind)
        if launch is not None:
            launch(*given)
            return
        with self._lock:
            launch = self._known.get(kind) or self._prepare(given, tensors[0].device)
            launch(*given)
            self._ready.add(tensors[0].device)
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[kind] = launch

    @cached_property
    def module(self) -> Any:
        """The generated module. Needs triton."""
        return load_source(self.entry, self.source)

    def _prepare(self, given: tuple[Any, ...], device: Any) -> Any:
        import torch

        if device not in self._ready:
            check_device(self.name, self.target, cast(Any, torch), device)
        try:
            return self.module.bind(*given)
        except ValueError as error:
            raise ArgumentError(f"{self.name}: {error}") from None


@lru_cache(maxsize=4096)
def _shipped(name: str, items: frozenset[tuple[str, int | str]]) -> Shipped:
    lines, modules = _file()
    found = modules[key(name, dict(items))]
    numbers: list[int] = found["lines"]
    return Shipped(name, found["target"], found["entry"], "".join(lines[i] for i in numbers))


def kernel(name: str, values: Values) -> Shipped:
    """The kernel of that name with these compile-time values; the same object for equal ones.

    Raises KeyError for one that is not among `catalogue.entries()`, of which the file was made.
    """
    return _shipped(name, frozenset(values.items()))


@lru_cache(maxsize=1)
def _file() -> tuple[list[str], dict[str, Any]]:
    data: dict[str, Any] = json.loads(files("tilewright.kernels").joinpath(FILE).read_text())
    return data["lines"], data["modules"]
