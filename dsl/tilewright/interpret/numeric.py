"""Element types in NumPy.

NumPy has no bfloat16 and no 8-bit floats. Tiles hold their values in float32 arrays, rounded to nearest even after
every operation; an argument of such a type is either an array of bit patterns (uint16, uint8) or a float32 array of
values.
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
    "f8e4m3": np.dtype(np.float32),
    "f8e5m2": np.dtype(np.float32),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "i1": np.dtype(np.bool_),
}
"""The NumPy type that holds elements of a type inside the interpreter."""


def accepted(dtype: DType) -> tuple[np.dtype[Any], ...]:
    """NumPy types that an argument with elements of `dtype` may have."""
    own = STORAGE[dtype.name]
    return (own,) if own.itemsize == dtype.bytes else (_unsigned(dtype), own)


def _unsigned(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * dtype.bytes}")


def round_bf16(values: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even; NaN stays NaN, too large values become infinite."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)
    # Adding to the bits of a NaN could carry into the exponent and give an infinity or a zero.
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


def _float8_values(exponent_bits: int, last: int) -> Array:
    """The values of the codes 0 … `last` (the greatest finite one), in float64."""
    mantissa_bits = 7 - exponent_bits
    codes = np.arange(last + 1)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    bias = (1 << exponent_bits - 1) - 1
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    return np.ldexp(fraction, np.maximum(exponent, 1) - bias)


# OFP8: e4m3 has no infinity and one NaN a sign (0x7F), so its greatest value is 448; that of e5m2 is 57344.
_FLOAT8: Mapping[str, Array] = {"f8e4m3": _float8_values(4, 0x7E), "f8e5m2": _float8_values(5, 0x7B)}


def _float8_codes(values: Array, dtype: DType) -> Array:
    """Bit patterns of values: to nearest even, beyond the greatest value to that one, as `cvt.rn.satfinite` does."""
    table = _FLOAT8[dtype.name]
    middles = (table[:-1] + table[1:]) / 2
    single = np.asarray(values, np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaN
        magnitude = np.abs(single).astype(np.float64)
    code = np.searchsorted(middles, magnitude)
    tie = magnitude == middles[np.minimum(code, len(middles) - 1)]
    code = np.minimum(code + (tie & (code % 2 == 1) & (code < len(middles))), len(table) - 1)
    signed = code | (np.signbit(single) << 7)
    return np.where(np.isnan(single), 0x7F, signed).astype(np.uint8)


def _float8_decoded(codes: Array, dtype: DType) -> Array:
    table = _FLOAT8[dtype.name]
    magnitudes = np.full(128, np.nan, np.float32)
    magnitudes[: len(table)] = table
    if dtype.name == "f8e5m2":
        magnitudes[0x7C] = np.inf
    value = magnitudes[codes & 0x7F]
    return np.where(codes & 0x80, -value, value)


def to_bits(values: Array, dtype: DType) -> Array:
    """The bit patterns of tile elements, as unsigned integers of the type's width."""
    if dtype.name == "bf16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if not dtype.computes:
        return _float8_codes(values, dtype)
    return np.ascontiguousarray(values).view(_unsigned(dtype))


def from_bits(bits: Array, dtype: DType) -> Array:
    """Tile elements with these bit patterns (unsigned integers of the type's width)."""
    if dtype.name == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if not dtype.computes:
        return _float8_decoded(bits, dtype)
    return np.ascontiguousarray(bits).view(STORAGE[dtype.name])


def to_dtype(values: Array, dtype: DType) -> Array:
    """`values` converted to elements of `dtype`: floats round to nearest even.

    What is too large becomes infinite, or the greatest value of an 8-bit float.
    """
    if dtype.name == "bf16":
        return round_bf16(values)
    if not dtype.computes:
        return _float8_decoded(_float8_codes(values, dtype), dtype)
    target = STORAGE[dtype.name]
    if values.dtype == target:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(target)


def decode(stored: Array, dtype: DType) -> Array:
    """A copy of part of an argument as tile elements."""
    if stored.dtype != STORAGE[dtype.name]:
        return from_bits(stored, dtype)
    return stored.copy() if STORAGE[dtype.name].itemsize == dtype.bytes else to_dtype(stored, dtype)


def encode(values: Array, like: Array, dtype: DType) -> Array:
    """Elements of type `dtype` in the form in which the argument `like` stores them."""
    return values if like.dtype == values.dtype else to_bits(values, dtype)


def poison(dtype: DType) -> float | int | bool:
    """What undefined memory reads as: NaN, or an integer that no one computes by accident."""
    if dtype.is_float:
        return float("nan")
    if dtype.kind == "bool":
        return True
    return 0x5AA55AA55AA55AA5 & dtype.range[1] if dtype.bits > 8 else 0x5A if dtype.kind == "int" else 0xA5
