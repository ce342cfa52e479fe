"""Pure operations on register tiles (`ir.Compute`, the product of matrix instructions) with NumPy.

Elementwise results are computed in the common type of the operands and rounded to the type of the result. Reductions
and scans of f16 and bf16 accumulate in float32. `max`, `min`, `maximum` and `minimum` pass NaN on, and for `argmax`
and `argmin` the first NaN is the extreme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from tilewright.dtypes import DType
from tilewright.interpret.numeric import STORAGE, Array, from_bits, to_bits, to_dtype
from tilewright.interpret.philox import random_bits, uniform
from tilewright.ir.nodes import ORDERS, SCANS, ComputeOp
from tilewright_reference.numpy_functions import argsort
from tilewright_reference.numpy_functions import matrix_product as one_thread_product


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


def _nonzero(divisor: Array) -> Array:
    if not np.all(divisor):
        raise ZeroDivisionError("integer division by zero in a tile")
    return divisor


def _floordiv(x: Array, y: Array) -> Array:
    return np.floor_divide(x, _nonzero(y))


def _mod(x: Array, y: Array) -> Array:
    return np.mod(x, _nonzero(y))


def _shift(function: Callable[..., Array], x: Array, count: Array) -> Array:
    bits = 8 * x.dtype.itemsize
    if np.any((count < 0) | (count >= bits)):
        wrong = count[(count < 0) | (count >= bits)].flat[0]
        raise ArithmeticError(f"a shift by {wrong} of an integer of {bits} bits has no value")
    return function(x, count)


def _shl(x: Array, count: Array) -> Array:
    return _shift(np.left_shift, x, count)


def _shr(x: Array, count: Array) -> Array:
    return _shift(np.right_shift, x, count)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z`, rounded once: f16 and bf16 to float32, as the device computes them."""
    if x.dtype == np.float64 or y.dtype == np.float64:
        return np.asarray(_exact_fma(x, y, z))
    # The product is exact in float64. Rounding the sum to odd there makes the rounding to float32 the only one.
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & np.isfinite(error) & even, odd, total).astype(np.float32)


def _exact_fma_of(x: float, y: float, z: float) -> float:
    try:
        return float(Fraction(x) * Fraction(y) + Fraction(z))
    except (ValueError, OverflowError):
        return x * y + z


_exact_fma = np.vectorize(_exact_fma_of, otypes=[np.float64])


_ELEMENTWISE: Mapping[str, Callable[..., Array]] = {
    "copy": _same, "cast": _same, "neg": np.negative, "abs": np.abs, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "isnan": np.isnan, "expm1": np.expm1, "log1p": np.log1p,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": _erf, "sigmoid": _sigmoid,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "maximum": np.maximum, "minimum": np.minimum,
    "pow": np.power, "fma": _fma, "floordiv": _floordiv, "mod": _mod, "shl": _shl, "shr": _shr, "xor": np.bitwise_xor,
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
    *,
    reverse: bool = False,
    order: tuple[int, ...] = (),
    source: DType | None = None,
) -> Array:
    """The result of one operation: an array of `shape` in the storage type of `dtype`.

    Scalars take the type of the tiles they meet. `source` is the element type of the first tile, which `bitcast` needs.
    Raises ArithmeticError for an integer division by zero and for a shift by more than the bits of an element.
    """
    with np.errstate(all="ignore"):
        if op in ("rand", "randint"):
            bits = random_bits(args[0], np.asarray(args[1]))
            result = bits if op == "randint" else uniform(bits)
        elif op == "bitcast":
            result = from_bits(to_bits(np.asarray(args[0]), source or dtype), dtype)
        elif op in SCANS:
            result = _scan(op, np.asarray(args[0]), axis or 0, reverse)
        elif op in ORDERS:
            result = _ordered(op, np.asarray(args[0]), axis or 0, reverse)
        elif op == "permute":
            result = np.transpose(np.asarray(args[0]), order)
        else:
            result = _apply(op, args, dtype, shape, axis, keep)
    if result.shape != shape:
        result = np.broadcast_to(result, shape)
    return to_dtype(result, dtype)


def matrix_product(a: Array, b: Array, acc: Array, *, tf32: bool = False) -> Array:
    """`a @ b + acc`: products and sums in float32 (float64 for such an accumulator), then rounded to the accumulator.

    With `tf32` the operands keep 10 bits after the point, as the instructions read no more of them. Integers are summed
    up exactly, and wrap around 32 bits.
    """
    whole = np.issubdtype(acc.dtype, np.integer)
    wide = np.float64 if whole or acc.dtype == np.float64 else np.float32
    if tf32:
        a, b = _tf32(a), _tf32(b)
    left, right = a.astype(wide, copy=False), b.astype(wide, copy=False)
    with np.errstate(all="ignore"):
        result = one_thread_product(left, right)
        result += acc
        # Sums of products of 8 bits are exact in float64; beyond 32 bits they wrap around.
        return result.astype(np.int64).astype(acc.dtype) if whole else result.astype(acc.dtype, copy=False)


def _tf32(values: Array) -> Array:
    """float32 values without their 13 lowest bits (PTX ISA, "Alternate floating-point data formats")."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


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
        case "argmax" | "argmin":
            tile = np.asarray(args[0])
            return (np.argmax if op == "argmax" else np.argmin)(tile, axis=axis, keepdims=keep)
        case "reshape":
            return np.asarray(args[0]).reshape(shape)
        case "join":
            return np.stack(np.broadcast_arrays(*args), -1)
        case "half":
            return np.asarray(args[0])[..., axis]
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
    return (np.maximum if op == "max" else np.minimum).reduce(tile, axis=axis, keepdims=keep)


_ACCUMULATED: Mapping[str, np.ufunc] = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
}  # fmt: skip


def _ordered(op: str, tile: Array, axis: int, falling: bool) -> Array:
    index = argsort(tile, axis, falling)
    return index if op == "argsort" else np.take_along_axis(tile, index, axis)


def _scan(op: str, tile: Array, axis: int, reverse: bool) -> Array:
    if tile.dtype == np.float16:
        tile = tile.astype(np.float32)
    if reverse:
        return np.flip(_scan(op, np.flip(tile, axis), axis, False), axis)
    return _ACCUMULATED[op].accumulate(tile, axis=axis, dtype=tile.dtype)
