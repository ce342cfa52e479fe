"""Arguments of the interpreter: NumPy arrays, and CPU tensors as views of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilewright import arguments
from tilewright.arguments import ArgumentError, TensorFacts
from tilewright.dtypes import DType
from tilewright.interpret.numeric import Array, accepted
from tilewright.ir import nodes as ir

# Types that NumPy does not have, and those that hold their bits.
_BITS = {"torch.bfloat16": "uint16", "torch.float8_e4m3fn": "uint8", "torch.float8_e5m2": "uint8"}


Argument = Array | int | float
"""What a launch gives: an array for a tensor, a number for a scalar."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments by name: the sizes and integer scalars, the arrays, and the floating-point scalars."""

    sizes: dict[str, int]
    arrays: dict[str, Array]
    numbers: dict[str, float]


def bind(kernel: ir.Kernel, given: Sequence[Argument]) -> Bound:
    """The arguments, one for each of `kernel.arguments`, with the sizes that the shapes of arrays give.

    Raises ArgumentError for arguments that do not fit, as `tilewright.arguments.bind` says.
    """
    facts = [_facts(a) if isinstance(a, np.ndarray) else a for a in given]
    sizes = arguments.bind(kernel, facts, _accepted)
    named = {want.name: one for want, one in zip(kernel.arguments, given, strict=True)}
    arrays = {n: a for n, a in named.items() if isinstance(a, np.ndarray)}
    floats = [s.name for s in kernel.scalars if s.dtype.is_float]
    return Bound(sizes, arrays, {n: float(named[n]) for n in floats})


def as_arguments(given: Sequence[Any]) -> list[Argument]:
    """NumPy views of arrays and of CPU tensors that offer `.numpy()`; bf16 and f8 tensors become bit patterns.

    Numbers stay as they are, and NumPy's become Python's.

    Raises ArgumentError for anything else, because a copy would not see what the kernel writes.
    """
    arrays: list[Argument] = []
    for i, argument in enumerate(given):
        if isinstance(argument, np.ndarray):
            arrays.append(cast(Array, argument))
        elif isinstance(argument, int | float):
            arrays.append(argument)
        elif isinstance(argument, np.integer | np.floating):
            arrays.append(argument.item())
        elif hasattr(argument, "numpy"):
            arrays.append(_from_tensor(argument))
        else:
            raise ArgumentError(
                f"argument {i} is a {type(argument).__name__}: give a NumPy array, a CPU tensor or a number"
            )
    return arrays


def _facts(array: Array) -> TensorFacts:
    size = array.itemsize
    strides = tuple(s // size if s % size == 0 else s / size for s in array.strides)
    return TensorFacts(str(array.dtype), array.shape, strides)


def _accepted(dtype: DType) -> tuple[str, ...]:
    return tuple(map(str, accepted(dtype)))


def _from_tensor(tensor: Any) -> Array:
    tensor = tensor.detach() if hasattr(tensor, "detach") else tensor
    bits = _BITS.get(str(getattr(tensor, "dtype", "")))
    if bits is not None:
        import torch  # pyright: ignore[reportMissingImports]

        tensor = tensor.view(getattr(torch, bits))  # pyright: ignore[reportUnknownArgumentType]
    return tensor.numpy()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
