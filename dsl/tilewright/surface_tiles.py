"""Operations on the elements of register tiles: functions, reductions, scans, random numbers and shapes."""

from __future__ import annotations

from typing import Any, overload

from tilewright.dtypes import DType
from tilewright.surface_values import Stage, Tile, in_kernel


def where(condition: Tile, a: Any, b: Any) -> Tile:
    """`a` where the condition (a comparison) holds, else `b`."""
    in_kernel("where")


def sum(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Sum over one axis."""
    in_kernel("sum")


def max(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Maximum over one axis."""
    in_kernel("max")


def min(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Minimum over one axis."""
    in_kernel("min")


def maximum(a: Any, b: Any) -> Tile:
    """The larger of two elements, element by element."""
    in_kernel("maximum")


def minimum(a: Any, b: Any) -> Tile:
    """The smaller of two elements, element by element."""
    in_kernel("minimum")


def exp(x: Tile) -> Tile:
    """E to the power of each element."""
    in_kernel("exp")


def exp2(x: Tile) -> Tile:
    """2 to the power of each element: the form the hardware computes."""
    in_kernel("exp2")


def log(x: Tile) -> Tile:
    """Natural logarithm."""
    in_kernel("log")


def log2(x: Tile) -> Tile:
    """Logarithm to base 2."""
    in_kernel("log2")


def sqrt(x: Tile) -> Tile:
    """Square root."""
    in_kernel("sqrt")


def rsqrt(x: Tile) -> Tile:
    """1 / square root."""
    in_kernel("rsqrt")


def sin(x: Tile) -> Tile:
    """Sine, in radians."""
    in_kernel("sin")


def cos(x: Tile) -> Tile:
    """Cosine, in radians."""
    in_kernel("cos")


def tanh(x: Tile) -> Tile:
    """Hyperbolic tangent."""
    in_kernel("tanh")


def erf(x: Tile) -> Tile:
    """Error function."""
    in_kernel("erf")


def sigmoid(x: Tile) -> Tile:
    """1 / (1 + e^-x)."""
    in_kernel("sigmoid")


def floor(x: Tile) -> Tile:
    """The largest integer not above each element."""
    in_kernel("floor")


def abs(x: Tile) -> Tile:
    """Absolute value."""
    in_kernel("abs")


def broadcast(x: Tile, shape: Any) -> Tile:
    """The tile stretched to `shape`."""
    in_kernel("broadcast")


def expand_dims(x: Tile, axis: int) -> Tile:
    """The tile with a new axis of extent 1 at `axis`."""
    in_kernel("expand_dims")


@overload
def transpose(x: Tile) -> Tile: ...
@overload
def transpose(x: Stage) -> Stage: ...
def transpose(x: Any) -> Any:
    """The tile, or the view of a shared stage, with its two axes exchanged; as `x.T`."""
    in_kernel("transpose")


@overload
def trans(x: Tile) -> Tile: ...
@overload
def trans(x: Stage) -> Stage: ...
def trans(x: Any) -> Any:
    """As `tw.transpose`."""
    in_kernel("trans")


def ceil(x: Tile) -> Tile:
    """The smallest integer not below each element."""
    in_kernel("ceil")


def round(x: Tile) -> Tile:
    """The nearest integer, of two equally near ones the even; elements stay floating-point."""
    in_kernel("round")


def trunc(x: Tile) -> Tile:
    """Each element without its fraction: rounded towards zero."""
    in_kernel("trunc")


def expm1(x: Tile) -> Tile:
    """E to the power of each element, minus 1, accurate near 0."""
    in_kernel("expm1")


def log1p(x: Tile) -> Tile:
    """Natural logarithm of 1 + x, accurate near 0."""
    in_kernel("log1p")


def isnan(x: Tile) -> Tile:
    """Where elements are not a number: an `i1` tile."""
    in_kernel("isnan")


def pow(x: Any, y: Any) -> Tile:
    """`x` to the power `y`, floating point, element by element; also `x ** y`."""
    in_kernel("pow")


def fma(a: Any, b: Any, c: Any) -> Tile:
    """`a * b + c` rounded once, floating point (f16 and bf16: once to f32, then to their own type)."""
    in_kernel("fma")


def clamp(x: Tile, lo: Any, hi: Any) -> Tile:
    """The elements limited to [lo, hi]; NaN stays NaN."""
    in_kernel("clamp")


def bitcast(x: Tile, dtype: DType) -> Tile:
    """The bits of the elements read as another type of as many bits."""
    in_kernel("bitcast")


def cumsum(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running sum along an axis, each element included; `reverse` runs from the end. f16 and bf16 accumulate in f32."""
    in_kernel("cumsum")


def cumprod(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running product along an axis, each element included; `reverse` runs from the end."""
    in_kernel("cumprod")


def cummax(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running maximum along an axis; `reverse` runs from the end."""
    in_kernel("cummax")


def cummin(x: Tile, axis: int | None = None, *, reverse: bool = False) -> Tile:
    """Running minimum along an axis; `reverse` runs from the end."""
    in_kernel("cummin")


def argmax(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Index of the maximum along an axis, as `i32`: the lowest of equal ones, and of the first NaN if there is one."""
    in_kernel("argmax")


def argmin(x: Tile, axis: int | None = None, *, keep_dims: bool = False) -> Tile:
    """Index of the minimum along an axis, as `i32`: the lowest of equal ones, and of the first NaN if there is one."""
    in_kernel("argmin")


def rand(seed: Any, offsets: Tile) -> Tile:
    """Random f32 in [0, 1), one for each integer offset: Philox 4x32-10, the numbers of Triton's `tl.rand`."""
    in_kernel("rand")


def randint(seed: Any, offsets: Tile) -> Tile:
    """Random u32, one for each integer offset: Philox 4x32-10, the numbers of Triton's `tl.randint`."""
    in_kernel("randint")


def reshape(x: Tile, shape: Any) -> Tile:
    """The elements in row-major order in another shape of as many elements."""
    in_kernel("reshape")


def permute(x: Tile, order: Any) -> Tile:
    """The tile with its axes in another order: axis i of the result is axis `order[i]` of x."""
    in_kernel("permute")


def join(a: Tile, b: Tile) -> Tile:
    """Two tiles alike as one, along a new last axis of extent 2."""
    in_kernel("join")


def split(x: Tile) -> tuple[Tile, Tile]:
    """The two tiles along a last axis of extent 2: `x[..., 0]` and `x[..., 1]`."""
    in_kernel("split")


def unpack_int4(x: Tile) -> Tile:
    """Two 4-bit integers a byte, the low one first, as bytes along the last axis: signed of i8, unsigned of u8."""
    in_kernel("unpack_int4")
