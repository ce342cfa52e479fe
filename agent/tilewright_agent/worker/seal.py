"""A seal on what judges a kernel: the functions of torch and of the worker that compare and time.

A generated module runs in the process that judges it, so it could replace them. What it replaces and does not put back
is found here; what it puts back before its launch returns was in force only while the judge did nothing.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, cast

import tilewright_reference
from tilewright_reference import FUNCTIONS

_TORCH = (
    "empty", "equal", "isfinite", "isnan", "where", "zeros_like", "full_like", "randint", "frombuffer", "Tensor",
    "Generator",
)  # fmt: skip
# Methods and operators of tensors that comparing, poisoning and references use.
_TENSOR = (
    "__add__", "__and__", "__bool__", "__eq__", "__float__", "__getitem__", "__ge__", "__gt__", "__int__", "__invert__",
    "__le__", "__lt__", "__matmul__", "__mul__", "__ne__", "__neg__", "__or__", "__pow__", "__radd__", "__rmul__",
    "__rsub__", "__rtruediv__", "__sub__", "__truediv__", "abs", "abs_", "argmax", "clone", "copy_", "element_size",
    "fill_", "max", "min", "normal_", "numel", "reshape", "square", "sum", "to", "uniform_", "view", "zero_",
)  # fmt: skip
_EVENT = ("record", "elapsed_time", "synchronize", "query")
_CUDA = ("Event", "synchronize", "_sleep", "graph", "CUDAGraph", "current_stream")


class Seal:
    """What the names meant when this was made."""

    def __init__(self, torch: Any) -> None:
        self._held = list(_names(torch))

    def broken(self) -> str:
        """The first name that means something else now, such as "torch.equal"; empty when there is none."""
        for name, owner, attribute, meant in self._held:
            if _get(owner, attribute) is not meant:
                return name
        return ""


def _names(torch: Any) -> Iterator[tuple[str, Any, str, Any]]:
    owners: list[tuple[str, Any, Any]] = [
        ("torch", torch, (*_TORCH, *sorted(FUNCTIONS))),
        ("torch.cuda", torch.cuda, _CUDA),
        ("torch.nn.functional", torch.nn.functional, ("gelu", "silu", "conv2d", "scaled_dot_product_attention")),
    ]
    owners += [("torch.Tensor", base, _TENSOR) for base in _bases(torch.Tensor)]
    owners += [("torch.cuda.Event", base, _EVENT) for base in _bases(torch.cuda.Event)]
    packages = (__name__.rpartition(".")[0], tilewright_reference.__name__)
    for name, module in list(sys.modules.items()):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
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
