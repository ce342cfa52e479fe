"""Arguments of a kernel: sizes bound from shapes, everything else checked against the declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilewright.interpret.errors import ArgumentError
from tilewright.interpret.numeric import Array, accepted
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError, Expr, Size, evaluate, show, walk


def bind(kernel: ir.Kernel, arguments: Sequence[Array]) -> dict[str, int]:
    """The problem sizes that the shapes of `arguments` (one array a parameter, in order) give.

    Raises ArgumentError for a wrong number of arguments, rank, element type, extent or stride, for a size that no shape
    gives, and for an assumption that does not hold.
    """
    if len(arguments) != len(kernel.params):
        names = ", ".join(p.name for p in kernel.params)
        raise ArgumentError(f"{kernel.name} takes {len(kernel.params)} arrays ({names}), got {len(arguments)}")
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for param, array in zip(kernel.params, arguments, strict=True):
        _check_type(param, array)
        for axis, extent in enumerate(param.type.shape):
            if isinstance(extent, Size) and extent.name not in sizes:
                sizes[extent.name] = int(array.shape[axis])
                origin[extent.name] = f"axis {axis} of {param.name}"
    missing = sorted({e.name for p in kernel.params for e in _sizes(p.type.shape)} - sizes.keys())
    missing += [name for name in kernel.sizes if name not in sizes and name not in missing]
    if missing:
        raise ArgumentError(
            f"size {missing[0]} cannot be read from the arguments: no tensor has it as an extent by itself"
        )
    for name, value in sizes.items():
        if value < 1:
            raise ArgumentError(f"size {name} is {value} ({origin[name]}): sizes are at least 1")
    for param, array in zip(kernel.params, arguments, strict=True):
        _check_extents(param, array, sizes, origin)
    check_assumptions(kernel, sizes)
    return sizes


def check_assumptions(kernel: ir.Kernel, sizes: Mapping[str, int]) -> None:
    """Raise ArgumentError, with the values, for an assumption of the kernel that `sizes` break."""
    for assumption in kernel.assumptions:
        try:
            holds = evaluate(assumption.expr, sizes)
        except EvaluationError as error:
            raise ArgumentError(f"assumption {show(assumption.expr)} has no value: {error}") from None
        if not holds:
            used = {e.name: sizes[e.name] for e in walk(assumption.expr) if isinstance(e, Size)}
            values = ", ".join(f"{name} = {value}" for name, value in used.items())
            raise ArgumentError(f"{kernel.name} assumes {show(assumption.expr)}, which does not hold for {values}")


def as_arrays(arguments: Sequence[Any]) -> list[Array]:
    """NumPy views of arrays and of CPU tensors that offer `.numpy()`; bf16 tensors become uint16 bit patterns.

    Raises ArgumentError for anything else, because a copy would not see what the kernel writes.
    """
    arrays: list[Array] = []
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            arrays.append(cast(Array, argument))
        elif hasattr(argument, "numpy"):
            arrays.append(_from_tensor(argument))
        else:
            raise ArgumentError(f"argument {i} is a {type(argument).__name__}: give a NumPy array or a CPU tensor")
    return arrays


def _from_tensor(tensor: Any) -> Array:
    tensor = tensor.detach() if hasattr(tensor, "detach") else tensor
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        import torch  # pyright: ignore[reportMissingImports]

        tensor = tensor.view(torch.uint16)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return tensor.numpy()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _sizes(shape: Sequence[Expr]) -> list[Size]:
    return [e for extent in shape for e in walk(extent) if isinstance(e, Size)]


def _check_type(param: ir.Param, array: Array) -> None:
    expected = accepted(param.type.dtype)
    if array.dtype not in expected:
        names = " or ".join(str(d) for d in expected)
        raise ArgumentError(f"{param.name} has elements {array.dtype}, expected {names} ({param.type.dtype})")
    if array.ndim != len(param.type.shape):
        shape = ", ".join(show(e) for e in param.type.shape)
        raise ArgumentError(f"{param.name} has shape {array.shape}, expected {len(param.type.shape)} axes [{shape}]")


def _check_extents(param: ir.Param, array: Array, sizes: Mapping[str, int], origin: Mapping[str, str]) -> None:
    for axis, (extent, stride) in enumerate(zip(param.type.shape, param.type.strides, strict=True)):
        want = evaluate(extent, sizes)
        if array.shape[axis] != want:
            source = f", from {origin[extent.name]}" if isinstance(extent, Size) else ""
            raise ArgumentError(
                f"{param.name} has extent {array.shape[axis]} along axis {axis}, expected {want} "
                f"({show(extent)}{source})"
            )
        step, rest = divmod(array.strides[axis], array.itemsize)
        want = evaluate(stride, sizes)
        # A stride is never used along an axis of extent 1, and NumPy leaves any value there.
        if array.shape[axis] > 1 and (rest or step != want):
            got = str(step) if not rest else f"{array.strides[axis]} bytes"
            raise ArgumentError(
                f"{param.name} has stride {got} along axis {axis}, expected {want} elements ({show(stride)}); "
                "pass a contiguous array or declare the strides"
            )
