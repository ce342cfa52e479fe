"""A seal on what takes the times of a kernel in its own process: functions of torch and of the worker.

A generated module could replace them. What it replaces and does not put back is found here; what it puts back before
its launch returns was in force only while nothing was timed. A module that breaks the seal itself is left to the
judge, in another process, whose clock cannot be reached (`grade`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, cast

_EVENT = ("record", "elapsed_time", "synchronize", "query")
_CUDA = ("Event", "synchronize", "_sleep", "graph", "CUDAGraph", "current_stream")
_TENSOR = ("zero_", "untyped_storage")


class Seal:
    """What the names meant when this was made."""

    def __init__(self, torch: Any) -> None:
        self._held = list(_names(torch))

    def broken(self) -> str:
        """The first name that means something else now, such as "torch.cuda.Event"; empty when there is none."""
        for name, owner, attribute, meant in self._held:
            if _get(owner, attribute) is not meant:
                return name
        return ""


def _names(torch: Any) -> Iterator[tuple[str, Any, str, Any]]:
    owners: list[tuple[str, Any, Any]] = [("torch", torch, ("empty", "Tensor")), ("torch.cuda", torch.cuda, _CUDA)]
    owners += [("torch.Tensor", base, _TENSOR) for base in _bases(torch.Tensor)]
    owners += [("torch.cuda.Event", base, _EVENT) for base in _bases(torch.cuda.Event)]
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            own = {k: v for k, v in vars(module).items() if not k.startswith("__")}
            owners.append((name, module, tuple(own)))
            classes = {k: v for k, v in own.items() if isinstance(v, type) and v.__module__ == name}
            owners += [(f"{name}.{k}", v, _functions(v)) for k, v in classes.items()]
    for name, owner, attributes in owners:
        for attribute in attributes:
            yield f"{name}.{attribute}", owner, attribute, _get(owner, attribute)


def _bases(owner: type) -> list[type]:
    return [base for base in owner.__mro__ if base is not object]


def _functions(owner: type) -> tuple[str, ...]:
    return tuple(k for k, v in vars(owner).items() if isinstance(v, types.FunctionType | staticmethod))


def _get(owner: Any, attribute: str) -> Any:
    """What an owner itself holds, without binding; None for what it does not."""
    return cast("dict[str, Any]", vars(owner)).get(attribute)
