"""Arguments of the interpreter: NumPy arrays, and CPU tensors as views of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilewright import arguments
from tilewright.arguments import ArgumentError, TensorFacts
from tilewright.dtypes import DType
from tilewright.interpret.numeric import Array, accepted
from tilewright.ir import nodes as ir

# Types that NumPy does not have, and those that hold their bits.
_BITS = {"torch.bfloat16": "uint16", "torch.float8_e4m3fn": "uint8", "torch.float8_e5m2": "uint8"}


def bind(kernel: ir.Kernel, arrays: Sequence[Array]) -> dict[str, int]:
    """The problem sizes that the shapes of `arrays` (one a parameter, in order) give.

    Raises ArgumentError for arguments that do not fit, as `tilewright.arguments.bind` says.
    """
    return arguments.bind(kernel, [_facts(a) for a in arrays], _accepted)


def as_arrays(given: Sequence[Any]) -> list[Array]:
    """NumPy views of arrays and of CPU tensors that offer `.numpy()`; bf16 and f8 tensors become bit patterns.

    Raises ArgumentError for anything else, because a copy would not see what the kernel writes.
    """
    arrays: list[Array] = []
    for i, argument in enumerate(given):
        if isinstance(argument, np.ndarray):
            arrays.append(cast(Array, argument))
        elif hasattr(argument, "numpy"):
            arrays.append(_from_tensor(argument))
        else:
            raise ArgumentError(f"argument {i} is a {type(argument).__name__}: give a NumPy array or a CPU tensor")
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
