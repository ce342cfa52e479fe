"""The kernel's side of a machine without a GPU: Tilewright's interpreter, on files that the judge maps too."""

from __future__ import annotations

import contextlib
import importlib
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .interpreter import Interpreter, storage_of
from .protocol import Message
from .terms import JobError, Kernel, Launch
from .timing import Side


class InterpreterHost:
    """Executes the kernel source of a job."""

    name = Interpreter.name

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._shared: dict[int, str] = {}  # by the identity of the array

    def load(self, program: Message) -> Kernel:
        """The kernel of the job's `dsl`, elaborated and expanded."""
        dsl: Message = program.get("dsl") or {}
        if not dsl.get("source"):
            raise JobError("unsupported", "this machine has no GPU, and the job brings no kernel source to interpret")
        # By name, because the worker is also shipped without the language.
        frontend: Any = importlib.import_module("tilewright.frontend")
        source: Any = importlib.import_module("tilewright.source")
        expand: Any = importlib.import_module("tilewright.expand")
        interpret: Any = importlib.import_module("tilewright.interpret")
        module = frontend.parse_module(source.SourceText.of(dsl["source"], "job"))
        unit = next((u for u in module.units if u.name == dsl.get("kernel")), None)
        if unit is None:
            raise JobError("bad job", f"the source of the job has no kernel {dsl.get('kernel')}")
        if unit.kernel is None:
            text = "; ".join(p.message for p in unit.problems if p.severity == "error")
            raise JobError("compile", f"{unit.name} has errors: {text}")
        kernel = expand.expand(unit.kernel)

        def bind(tensors: Sequence[Any]) -> Callable[[], None]:
            def launch() -> None:
                try:
                    interpret.run(kernel, tensors)
                except Exception as error:
                    raise JobError("launch", f"{type(error).__name__}: {error}") from error

            return launch

        return bind

    def buffer(self, elements: int, dtype: str) -> Any:
        """A file in the scratch folder of the job, in memory."""
        kind: Any = np.dtype(storage_of(dtype))
        with tempfile.NamedTemporaryFile(prefix="tensor-", delete=False) as file:
            file.truncate(elements * kind.itemsize)
            made = np.frombuffer(mmap.mmap(file.fileno(), elements * kind.itemsize), kind)
        self._paths.append(file.name)
        self._shared[id(made)] = file.name
        return made

    def share(self, buffer: Any) -> Any:
        """The path of its file."""
        return self._shared[id(buffer)]

    def view(self, buffer: Any, shape: Sequence[int], strides: Sequence[int] | None, offset: int) -> Any:
        """A tensor inside a buffer."""
        if strides is not None:
            steps = tuple(s * buffer.itemsize for s in strides)
            return np.lib.stride_tricks.as_strided(buffer[offset:], tuple(shape), steps)
        return buffer[offset : offset + math.prod(shape)].reshape(shape)

    def synchronize(self) -> None:
        """Nothing runs ahead."""

    def sampler(self, launches: Sequence[Launch]) -> Side | None:
        """None: the time of an interpreter says nothing about the kernel."""
        return None

    def stall(self, launch: Launch) -> None:
        """Launch: there is no stream."""
        launch()

    def stalled(self) -> bool:
        """Never."""
        return False

    def release(self) -> None:
        """Remove the files; the judge has opened them."""
        for path in self._paths:
            with contextlib.suppress(OSError):  # a system that keeps open files removes them with the folder
                os.unlink(path)
        self._paths.clear()
        self._shared.clear()

    def tampered(self) -> str:
        """Kernels are interpreted, so they replace nothing."""
        return ""
