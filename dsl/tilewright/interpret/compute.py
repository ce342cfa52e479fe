"""Pure operations on register tiles (`ir.Compute`, the product of matrix instructions) with NumPy.

Elementwise results are computed in the common type of the operands and rounded to the type of the result. Reductions
of f16 and bf16 accumulate in float32. `max`, `min`, `maximum` and `minimum` ignore NaN where the other operand is a
number, as the device instructions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.dtypes import DType
from tilewright.interpret.numeric import STORAGE, Array, to_dtype
from tilewright.ir.nodes import ComputeOp

# Above so many multiply-adds OpenBLAS spreads a product over threads, whose spinning costs more than tiles of this size
# gain: measured 20 times the processor time on a busy machine with two cores.
_ONE_THREAD = 1 << 18


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _div(x: Array, y: Array) -> Array:
    """Quotient; of integers rounded towards zero, as the device does."""
    if np.issubdtype(np.result_type(x, y), np.integer):
        if not np.all(y):
            raise ZeroDivisionError("integer division by zero in a tile")
        quotient = np.abs(x) // np.abs(y)
        return np.where((x < 0) != (y < 0), -quotient, quotient)
    return np.true_divide(x, y)


def _and(x: Array, y: Array) -> Array:
    return np.logical_and(x, y) if x.dtype == np.bool_ else np.bitwise_and(x, y)


def _or(x: Array, y: Array) -> Array:
    return np.logical_or(x, y) if x.dtype == np.bool_ else np.bitwise_or(x, y)


def _not(x: Array) -> Array:
    return np.logical_not(x) if x.dtype == np.bool_ else np.invert(x)


def _same(x: Array) -> Array:
    return x


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.flat), np.float64, x.size).reshape(x.shape)


_ELEMENTWISE: Mapping[str, Callable[..., Array]] = {
    "copy": _same, "cast": _same, "neg": np.negative, "abs": np.abs, "floor": np.floor,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": _erf, "sigmoid": _sigmoid,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "maximum": np.fmax, "minimum": np.fmin,
    "where": np.where,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": _and, "or": _or, "not": _not,
}  # fmt: skip


def compute(
    op: ComputeOp,
    args: Sequence[Array | int | float],
    dtype: DType,
    shape: tuple[int, ...],
    axis: int | None,
    keep: bool,
) -> Array:
    """The result of one operation: an array of `shape` in the storage type of `dtype`.

    Scalars take the type of the tiles they meet. Raises ZeroDivisionError for an integer division by zero.
    """
    with np.errstate(all="ignore"):
        result = _apply(op, args, dtype, shape, axis, keep)
    if result.shape != shape:
        result = np.broadcast_to(result, shape)
    return to_dtype(result, dtype)


def matrix_product(a: Array, b: Array, acc: Array) -> Array:
    """`a @ b + acc` with products and sums in float32 (float64 for a float64 accumulator)."""
    wide = np.float64 if acc.dtype == np.float64 else np.float32
    left, right = a.astype(wide, copy=False), b.astype(wide, copy=False)
    result = np.empty((left.shape[0], right.shape[1]), wide)
    rows = max(1, _ONE_THREAD // right.size)
    with np.errstate(all="ignore"):
        for start in range(0, left.shape[0], rows):
            np.matmul(left[start : start + rows], right, out=result[start : start + rows])
        result += acc
    return result


def _apply(
    op: ComputeOp,
    args: Sequence[Array | int | float],
    dtype: DType,
    shape: tuple[int, ...],
    axis: int | None,
    keep: bool,
) -> Array:
    match op:
        case "full":
            return np.full(shape, to_dtype(np.asarray(args[0]), dtype), STORAGE[dtype.name])
        case "arange":
            return np.arange(shape[0])
        case "sum" | "max" | "min":
            return _reduce(op, np.asarray(args[0]), axis, keep)
        case "expand_dims":
            return np.expand_dims(np.asarray(args[0]), axis or 0)
        case "transpose":
            return np.asarray(args[0]).T
        case "broadcast" | "convert_layout":
            return np.asarray(args[0])
        case _:
            tiles = [a for a in args if isinstance(a, np.ndarray)]
            if not tiles:
                return _ELEMENTWISE[op](*(np.asarray(a, STORAGE[dtype.name]) for a in args))
            # The condition of `where` has no say in the type of the result, and a scalar takes the type of the tiles.
            typed = [a.dtype for a in (tiles[1:] if op == "where" and len(tiles) > 1 else tiles)]
            common = np.result_type(*typed)
            if op == "where" and typed == [np.dtype(np.bool_)]:
                common = STORAGE[dtype.name]
            if common.kind in "iub" and any(isinstance(a, float) for a in args):
                common = STORAGE[dtype.name] if dtype.is_float else np.dtype(np.float32)
            return _ELEMENTWISE[op](*(a if isinstance(a, np.ndarray) else np.asarray(a).astype(common) for a in args))


def _reduce(op: str, tile: Array, axis: int | None, keep: bool) -> Array:
    if op == "sum":
        if tile.dtype == np.float16:
            tile = tile.astype(np.float32)
        elif tile.dtype.kind in "iub" and tile.dtype.itemsize < 4:
            tile = tile.astype(np.int32)
        return np.sum(tile, axis=axis, keepdims=keep, dtype=tile.dtype)
    return (np.fmax if op == "max" else np.fmin).reduce(tile, axis=axis, keepdims=keep)
