"""A kernel computes what its text computes as Python, over tiles that are NumPy arrays.

The bodies that `test_fuzz` writes are valid Python; here they run as such, with a small stand-in for `tw`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from dsl.frontend.test_fuzz import FAST, LONG, arguments, kernels, only_kernel, outcome
from tilewright.expand import expand

F32 = np.float32


class Tile:
    """A register tile; arithmetic gives new ones, as in the language."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to(self, dtype: Any) -> Tile:
        return Tile(self.values.astype(dtype))

    def __getitem__(self, index: Any) -> Tile:
        return Tile(self.values[index])

    def _with(self, other: Any, function: Any) -> Tile:
        return Tile(function(self.values, raw(other, self.values.dtype)))

    def __add__(self, other: Any) -> Tile:
        return self._with(other, np.add)

    def __sub__(self, other: Any) -> Tile:
        return self._with(other, np.subtract)

    def __mul__(self, other: Any) -> Tile:
        return self._with(other, np.multiply)

    def __truediv__(self, other: Any) -> Tile:
        return self._with(other, np.divide)

    def __lt__(self, other: Any) -> Tile:
        return self._with(other, np.less)

    def __le__(self, other: Any) -> Tile:
        return self._with(other, np.less_equal)

    def __gt__(self, other: Any) -> Tile:
        return self._with(other, np.greater)

    def __ge__(self, other: Any) -> Tile:
        return self._with(other, np.greater_equal)

    def __eq__(self, other: object) -> Any:
        return self._with(other, np.equal)

    def __ne__(self, other: object) -> Any:
        return self._with(other, np.not_equal)

    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Tile:
        return Tile(-self.values)

    def __pos__(self) -> Tile:
        return self


def raw(value: Any, dtype: Any = F32) -> Any:
    return value.values if isinstance(value, Tile) else np.asarray(value).astype(dtype)


class View:
    def __init__(self, array: np.ndarray, origin: tuple[int, int], shape: tuple[int, int]) -> None:
        self.array, self.origin, self.shape = array, origin, shape

    def inside(self) -> tuple[slice, ...]:
        pairs = zip(self.origin, self.shape, self.array.shape, strict=True)
        return tuple(slice(o, min(o + s, n)) for o, s, n in pairs)


class Global:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def tile(self, origin: tuple[int, int], shape: tuple[int, int]) -> View:
        return View(self.array, origin, shape)


def load(view: View, other: float = 0.0, via: str = "") -> Tile:
    tile = np.full(view.shape, other, view.array.dtype)
    part = view.array[view.inside()]
    tile[tuple(slice(0, n) for n in part.shape)] = part
    return Tile(tile)


def store(view: View, tile: Tile) -> None:
    place = view.array[view.inside()]
    place[...] = tile.values[tuple(slice(0, n) for n in place.shape)]


def reduction(function: Any) -> Any:
    def reduce(x: Tile, axis: int, keep_dims: bool = False) -> Tile:
        return Tile(function(x.values, axis=axis, keepdims=keep_dims))

    return reduce


def each(function: Any) -> Any:
    return lambda *args: Tile(function(*(raw(a) for a in args)))


def tiles(rows: int, columns: int, **_: Any) -> Iterator[tuple[int, int]]:
    return itertools.product(range(rows), range(columns))


TW = SimpleNamespace(
    kernel=lambda **_: lambda f: f, func=lambda f: f, assume=lambda _: None, tiles=tiles, grouped=lambda _: None,
    row_major=lambda: None, pipeline=lambda lo, hi, step, **_: range(lo, hi, step), static_range=range,
    load=load, store=store, cdiv=lambda a, b: -(-a // b), inf=np.inf,
    zeros=lambda dtype, shape: Tile(np.zeros(shape, dtype)), full=lambda dtype, shape, v: Tile(np.full(shape, v, dtype)),
    arange=lambda n: Tile(np.arange(n, dtype=np.int32)), broadcast=lambda x, s: Tile(np.broadcast_to(x.values, s)),
    expand_dims=lambda x, axis: Tile(np.expand_dims(x.values, axis)), transpose=lambda x: Tile(x.values.T),
    mma=lambda a, b, c: Tile(a.values.astype(F32) @ b.values.astype(F32) + c.values),
    where=lambda c, a, b: Tile(np.where(c.values, raw(a), raw(b))), sum=reduction(np.sum), max=reduction(np.maximum.reduce),
    min=reduction(np.minimum.reduce), exp=each(np.exp), sin=each(np.sin), cos=each(np.cos), tanh=each(np.tanh), abs=each(np.abs),
    floor=each(np.floor), maximum=each(np.maximum), minimum=each(np.minimum), ceil=each(np.ceil),
    round=each(np.rint), trunc=each(np.trunc), expm1=each(np.expm1), log1p=each(np.log1p),
    sigmoid=each(lambda x: (1 / (1 + np.exp(-x))).astype(F32)),
)  # fmt: skip


def as_python(text: str, data: list[np.ndarray], m: int, n: int, k: int) -> np.ndarray:
    """The output of the kernel run as Python."""
    body = text.split('tw.sizes("M", "N", "K")\n', 1)[1]
    names: dict[str, Any] = {"tw": TW, "Global": Global, "f16": np.float16, "f32": F32, "M": m, "N": n, "K": k}
    exec(compile(body, "kernel", "exec"), names)
    arrays = [a.copy() for a in data]
    with np.errstate(all="ignore"):
        names["k"](*map(Global, arrays))
    return arrays[-1]


def agree(text: str, m: int, n: int, k: int) -> None:
    text = text.replace("-1.0 < ", "")  # Python asks for the truth of a whole tile here
    note(text)
    data = arguments(m * 31 + n, m, n, k)
    kind, output = outcome(expand(only_kernel(text)), data)
    if not kind:
        np.testing.assert_allclose(output, as_python(text, data, m, n, k), rtol=1e-5, atol=1e-5)


SIZES = (st.integers(1, 70), st.sampled_from([8, 16, 72]), st.sampled_from([8, 32, 136]))


@given(kernels(), *SIZES)
@settings(FAST, report_multiple_bugs=False)
def test_random_kernels_compute_what_python_computes(text: str, m: int, n: int, k: int) -> None:
    agree(text, m, n, k)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(kernels(), *SIZES)
@LONG
def test_many_random_kernels_compute_what_python_computes(text: str, m: int, n: int, k: int) -> None:
    agree(text, m, n, k)
