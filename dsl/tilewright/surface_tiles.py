"""Operations on the elements of register tiles: functions, reductions, scans, random numbers and shapes."""

from __future__ import annotations

from typing import Any, overload

from tilewright.dtypes import DType
from tilewright.surface_values import Stage, Tile, in_kernel


def where(condition: Tile, a: Any, b: Any) -> Tile:
    """`a` where the condition (a comparison) holds, else `b`. `tw.where(x > 0.0, x, 0.0)`; the three broadcast."""
    in_kernel("where")


def sum(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Sum over one axis. `tw.sum(x, axis=1)`: (64, 128) to (64,), with `keep_dims=True` to (64, 1)."""
    in_kernel("sum")


def max(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Maximum over one axis. `tw.max(x, axis=1)`: (64, 128) to (64,), with `keep_dims=True` to (64, 1)."""
    in_kernel("max")


def min(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Minimum over one axis. `tw.min(x, axis=1)`: (64, 128) to (64,), with `keep_dims=True` to (64, 1)."""
    in_kernel("min")


def maximum(a: Any, b: Any) -> Tile:
    """The larger of two elements, element by element. `tw.maximum(x, 0.0)`; the sides broadcast."""
    in_kernel("maximum")


def minimum(a: Any, b: Any) -> Tile:
    """The smaller of two elements, element by element. `tw.minimum(x, 6.0)`; the sides broadcast."""
    in_kernel("minimum")


def exp(x: Tile) -> Tile:
    """E to the power of each element. `tw.exp(x)` has shape and element type of `x`, floating point."""
    in_kernel("exp")


def exp2(x: Tile) -> Tile:
    """2 to the power of each element: the form the hardware computes.

    `tw.exp2(x)` has shape and element type of `x`, floating point.
    """
    in_kernel("exp2")


def log(x: Tile) -> Tile:
    """Natural logarithm. `tw.log(x)` has shape and element type of `x`, floating point."""
    in_kernel("log")


def log2(x: Tile) -> Tile:
    """Logarithm to base 2. `tw.log2(x)` has shape and element type of `x`, floating point."""
    in_kernel("log2")


def sqrt(x: Tile) -> Tile:
    """Square root. `tw.sqrt(x)` has shape and element type of `x`, floating point."""
    in_kernel("sqrt")


def rsqrt(x: Tile) -> Tile:
    """1 / square root. `tw.rsqrt(x)` has shape and element type of `x`, floating point."""
    in_kernel("rsqrt")


def sin(x: Tile) -> Tile:
    """Sine, in radians. `tw.sin(x)` has shape and element type of `x`, floating point."""
    in_kernel("sin")


def cos(x: Tile) -> Tile:
    """Cosine, in radians. `tw.cos(x)` has shape and element type of `x`, floating point."""
    in_kernel("cos")


def tanh(x: Tile) -> Tile:
    """Hyperbolic tangent. `tw.tanh(x)` has shape and element type of `x`, floating point."""
    in_kernel("tanh")


def erf(x: Tile) -> Tile:
    """Error function. `tw.erf(x)` has shape and element type of `x`, floating point."""
    in_kernel("erf")


def sigmoid(x: Tile) -> Tile:
    """1 / (1 + e^-x). `tw.sigmoid(x)` has shape and element type of `x`, floating point."""
    in_kernel("sigmoid")


def floor(x: Tile) -> Tile:
    """The largest integer not above each element. `tw.floor(x)` has shape and element type of `x`, floating point."""
    in_kernel("floor")


def abs(x: Tile) -> Tile:
    """Absolute value. `tw.abs(x)` has shape and element type of `x`."""
    in_kernel("abs")


def broadcast(x: Tile, shape: Any) -> Tile:
    """The tile stretched to `shape`. `tw.broadcast(row, (64, 128))` of a tile (1, 128) or (128,)."""
    in_kernel("broadcast")


def expand_dims(x: Tile, axis: int) -> Tile:
    """The tile with a new axis of extent 1 at `axis`. `tw.expand_dims(x, 1)`: (64,) to (64, 1)."""
    in_kernel("expand_dims")


@overload
def transpose(x: Tile) -> Tile: ...
@overload
def transpose(x: Stage) -> Stage: ...
def transpose(x: Any) -> Any:
    """The tile, or the view of a shared stage, with its two axes exchanged; as `x.T`.

    `tw.transpose(x)`: (64, 128) to (128, 64).
    """
    in_kernel("transpose")


@overload
def trans(x: Tile) -> Tile: ...
@overload
def trans(x: Stage) -> Stage: ...
def trans(x: Any) -> Any:
    """As `tw.transpose`."""
    in_kernel("trans")


def ceil(x: Tile) -> Tile:
    """The smallest integer not below each element. `tw.ceil(x)` has shape and element type of `x`, floating point."""
    in_kernel("ceil")


def round(x: Tile) -> Tile:
    """The nearest integer, of two equally near ones the even; elements stay floating-point.

    `tw.round(x)` has shape and element type of `x`, floating point.
    """
    in_kernel("round")


def trunc(x: Tile) -> Tile:
    """Each element without its fraction: rounded towards zero.

    `tw.trunc(x)` has shape and element type of `x`, floating point.
    """
    in_kernel("trunc")


def expm1(x: Tile) -> Tile:
    """E to the power of each element, minus 1, accurate near 0.

    `tw.expm1(x)` has shape and element type of `x`, floating point.
    """
    in_kernel("expm1")


def log1p(x: Tile) -> Tile:
    """Natural logarithm of 1 + x, accurate near 0. `tw.log1p(x)` has shape and element type of `x`, floating point."""
    in_kernel("log1p")


def isnan(x: Tile) -> Tile:
    """Where elements are not a number: an `i1` tile. `tw.isnan(x)`."""
    in_kernel("isnan")


def pow(x: Any, y: Any) -> Tile:
    """`x` to the power `y`, floating point, element by element; also `x ** y`. `tw.pow(x, 0.5)`."""
    in_kernel("pow")


def fma(a: Any, b: Any, c: Any) -> Tile:
    """`a * b + c` rounded once, floating point (f16 and bf16: once to f32, then to their own type).

    `tw.fma(a, b, c)`; the three broadcast.
    """
    in_kernel("fma")


def clamp(x: Tile, lo: Any, hi: Any) -> Tile:
    """The elements limited to [lo, hi]; NaN stays NaN. `tw.clamp(x, -1.0, 1.0)`."""
    in_kernel("clamp")


def bitcast(x: Tile, dtype: DType) -> Tile:
    """The bits of the elements read as another type of as many bits. `tw.bitcast(x, i32)` of f32 elements."""
    in_kernel("bitcast")


def cumsum(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running sum along an axis, each element included; `reverse` runs from the end. f16 and bf16 accumulate in f32.

    `tw.cumsum(x, axis=1)` has the shape of `x`.
    """
    in_kernel("cumsum")


def cumprod(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running product along an axis, each element included; `reverse` runs from the end.

    `tw.cumprod(x, axis=1)` has the shape of `x`.
    """
    in_kernel("cumprod")


def cummax(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running maximum along an axis; `reverse` runs from the end. `tw.cummax(x, axis=1)` has the shape of `x`."""
    in_kernel("cummax")


def cummin(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running minimum along an axis; `reverse` runs from the end. `tw.cummin(x, axis=1)` has the shape of `x`."""
    in_kernel("cummin")


def argmax(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Index of the maximum along an axis, as `i32`: the lowest of equal ones, and of the first NaN if there is one.

    `tw.argmax(x, axis=1)`: (64, 128) to (64,).
    """
    in_kernel("argmax")


def argmin(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Index of the minimum along an axis, as `i32`: the lowest of equal ones, and of the first NaN if there is one.

    `tw.argmin(x, axis=1)`: (64, 128) to (64,).
    """
    in_kernel("argmin")


def rand(seed: Any, offsets: Tile) -> Tile:
    """Random f32 in [0, 1), one for each integer offset: Philox 4x32-10, the numbers of Triton's `tl.rand`.

    `tw.rand(7, i * 128 + tw.arange(128))`.
    """
    in_kernel("rand")


def randint(seed: Any, offsets: Tile) -> Tile:
    """Random u32, one for each integer offset: Philox 4x32-10, the numbers of Triton's `tl.randint`.

    `tw.randint(7, i * 128 + tw.arange(128))`.
    """
    in_kernel("randint")


def reshape(x: Tile, shape: Any) -> Tile:
    """The elements in row-major order in another shape of as many elements.

    `tw.reshape(x, (64, 2, 64))` of a tile (64, 128).
    """
    in_kernel("reshape")


def permute(x: Tile, order: Any) -> Tile:
    """The tile with its axes in another order: axis i of the result is axis `order[i]` of x.

    `tw.permute(x, (1, 0, 2))`: (4, 8, 16) to (8, 4, 16).
    """
    in_kernel("permute")


def join(a: Tile, b: Tile) -> Tile:
    """Two tiles alike as one, along a new last axis of extent 2. `tw.join(a, b)`: two tiles (64, 32) to (64, 32, 2)."""
    in_kernel("join")


def split(x: Tile) -> tuple[Tile, Tile]:
    """The two tiles along a last axis of extent 2: `x[..., 0]` and `x[..., 1]`.

    `a, b = tw.split(x)`: (64, 32, 2) to two tiles (64, 32).
    """
    in_kernel("split")


def interleave(a: Tile, b: Tile) -> Tile:
    """Elements of two tiles alike, in turn along the last axis. `tw.interleave(a, b)`: two (64, 32) to (64, 64)."""
    in_kernel("interleave")


def flip(x: Tile, axis: int | None = None) -> Tile:
    """The elements along `axis`, a power of two, in the opposite order. `tw.flip(x, axis=1)`: shape kept."""
    in_kernel("flip")


def sort(x: Tile, axis: int | None = None, descending: bool = False) -> Tile:
    """The elements along `axis`, a power of two, in order. `tw.sort(x, axis=1, descending=True)`: shape and type kept.

    NaN is greater than any number. Lanes past an edge hold what comes last: `tw.inf`, or `-tw.inf` if descending.
    """
    in_kernel("sort")


def argsort(x: Tile, axis: int | None = None, descending: bool = False) -> Tile:
    """Where the elements of `tw.sort` come from along `axis`, in i32. `tw.argsort(x, axis=1)`: shape kept.

    Equal elements stay in their order.
    """
    in_kernel("argsort")


def topk(x: Tile, k: int, axis: int | None = None) -> tuple[Tile, Tile]:
    """The k greatest elements along `axis`, greatest first, and where each is along it, in i32; k is a power of two.

    `values, indices = tw.topk(x, 8, axis=1)`: (64, 128) to two tiles (64, 8). Lanes past an edge hold `-tw.inf`.
    """
    in_kernel("topk")


def softmax(x: Tile, axis: int | None = None) -> Tile:
    """E to the power of x over the sum of these along `axis`; the maximum is subtracted first. `tw.softmax(x, axis=1)`.

    Shape and element type are kept. The whole axis lies in the tile; lanes past an edge hold `-tw.inf`.
    """
    in_kernel("softmax")


def unpack_int4(x: Tile) -> Tile:
    """Two 4-bit integers a byte, the low one first, as bytes along the last axis: signed of i8, unsigned of u8.

    `tw.unpack_int4(q)`: (64, 32) to (64, 64).
    """
    in_kernel("unpack_int4")
