"""Element types in NumPy.

NumPy has no bfloat16. Tiles hold bf16 values in float32 arrays, rounded to nearest even after every operation; an
argument of type bf16 is either a uint16 array of bit patterns or a float32 array of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.dtypes import DType

Array = npt.NDArray[Any]

STORAGE: Mapping[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "i1": np.dtype(np.bool_),
}
"""The NumPy type that holds elements of a type inside the interpreter."""


def accepted(dtype: DType) -> tuple[np.dtype[Any], ...]:
    """NumPy types that an argument with elements of `dtype` may have."""
    if dtype.name == "bf16":
        return (np.dtype(np.uint16), np.dtype(np.float32))
    return (STORAGE[dtype.name],)


def round_bf16(values: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even; NaN stays NaN, too large values become infinite."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)
    # Adding to the bits of a NaN could carry into the exponent and give an infinity or a zero.
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


def to_dtype(values: Array, dtype: DType) -> Array:
    """`values` converted to elements of `dtype`: floats round to nearest even and saturate to infinity."""
    if dtype.name == "bf16":
        return round_bf16(values)
    target = STORAGE[dtype.name]
    if values.dtype == target:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(target)


def decode(stored: Array, dtype: DType) -> Array:
    """A copy of part of an argument as tile elements."""
    if dtype.name == "bf16":
        if stored.dtype == np.uint16:
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return round_bf16(stored)
    return stored.copy()


def encode(values: Array, like: Array) -> Array:
    """Tile elements in the form in which the argument `like` stores them."""
    if like.dtype == np.uint16 and values.dtype == np.float32:
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
    return values


def poison(dtype: DType) -> float | int | bool:
    """What undefined memory reads as: NaN, or an integer that no one computes by accident."""
    if dtype.is_float:
        return float("nan")
    return {"i8": 0x5A, "u8": 0xA5, "i16": 0x5AA5, "i32": 0x5AA55AA5, "i64": 0x5AA55AA55AA55AA5}.get(dtype.name, True)
