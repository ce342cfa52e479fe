"""The functions of references in NumPy, with PyTorch's meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# What NumPy calls by the same name, or by another, and with the same arguments.
_SAME: dict[str, str] = {
    **{n: n for n in ("cos", "exp", "exp2", "floor", "log", "log2", "sin", "sqrt", "square", "tanh", "abs")},
    **{n: n for n in ("maximum", "minimum", "where", "add", "ceil", "trunc", "expm1", "log1p", "cumsum", "cumprod")},
    "arange": "arange",
    "round": "rint",
    "sub": "subtract", "mul": "multiply", "div": "true_divide", "neg": "negative", "transpose": "swapaxes",
    "unsqueeze": "expand_dims",
}  # fmt: skip
_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "argmax": "argmax", "argmin": "argmin"}
# Above so many multiply-adds OpenBLAS spreads a product over threads, whose spinning costs more than products of this
# size gain: measured 20 times the processor time on a busy machine with two cores.
_ONE_THREAD, _LEAST_ROWS = 1 << 18, 4
_erf = np.vectorize(math.erf, otypes=[np.float64])


class NumpyFunctions:
    """The backend of references on a machine without torch."""

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The function `name` of `tilewright_reference.FUNCTIONS`."""
        if name in ("cumsum", "cumprod"):
            return _scan(getattr(np, name), *args, **kwargs)
        if name in _SAME:
            return getattr(np, _SAME[name])(*args)
        if name in _REDUCTIONS:
            return _reduce(getattr(np, _REDUCTIONS[name]), *args, **kwargs)
        return _OWN[name](*args, **kwargs)

    def cast(self, tensor: Any, name: str) -> Any:
        """bfloat16 stays float32 here; rounding it would need a type that NumPy lacks."""
        return tensor.astype("float32" if name == "bfloat16" else name)

    def float_bits(self, tensor: Any) -> int:
        """Bits of the floating-point type."""
        return 8 * int(tensor.itemsize) if tensor.dtype.kind == "f" else 0

    def index_range(self, tensor: Any) -> tuple[int, int]:
        """The smallest and largest element."""
        if tensor.dtype.kind not in "iu":
            raise TypeError(f"an index has integers, this one {tensor.dtype}")
        return (int(tensor.min()), int(tensor.max())) if tensor.size else (0, -1)

    def take(self, tensor: Any, index: tuple[Any, ...]) -> Any:
        """`tensor[index]`."""
        return tensor[index]


def matrix_product(a: Any, b: Any) -> Any:
    """`a @ b`, in blocks of rows that one thread computes; all at once where those would be a few rows each."""
    if min(a.ndim, b.ndim) < 2 or a.shape[-2] * b.shape[-2] * b.shape[-1] <= _ONE_THREAD:
        return np.matmul(a, b)
    rows = _ONE_THREAD // (b.shape[-2] * b.shape[-1])
    if rows < _LEAST_ROWS:
        return np.matmul(a, b)
    parts = [np.matmul(a[..., i : i + rows, :], b) for i in range(0, a.shape[-2], rows)]
    return np.concatenate(parts, axis=-2)


def _reduce(function: Callable[..., Any], x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return function(x, axis=dim, keepdims=keepdim)


def _scan(function: Callable[..., Any], x: Any, dim: int) -> Any:
    return function(x, axis=dim, dtype=x.dtype)


def _gather(x: Any, dim: int, index: Any) -> Any:
    if index.size and not 0 <= index.min() <= index.max() < x.shape[dim]:
        # NumPy would count from the end.
        raise IndexError(f"gather has indices {index.min()} to {index.max()}, the dimension has {x.shape[dim]}")
    return np.take_along_axis(x, index, dim)


def _bincount(x: Any, minlength: int = 0) -> Any:
    return np.bincount(x, minlength=minlength)


def _searchsorted(edges: Any, x: Any, right: bool = False) -> Any:
    return np.searchsorted(edges, x, "right" if right else "left")  # pyright: ignore[reportUnknownVariableType]


def _repeat_interleave(x: Any, repeats: int, dim: int | None = None) -> Any:
    return np.repeat(x, repeats, axis=dim)


def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return np.stack(tensors, axis=dim)


def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    top = np.max(x, axis=dim, keepdims=True)
    total = np.sum(np.exp(x - top), axis=dim, keepdims=keepdim)
    return np.log(total) + (top if keepdim else np.squeeze(top, dim))


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return np.clip(x, min, max)


def _erf_like(x: Any) -> Any:
    return _erf(x).astype(x.dtype)


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))  # the same function, and it cannot overflow


def _silu(x: Any) -> Any:
    return x * _sigmoid(x)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf_like(x / math.sqrt(2)))


def _log_softmax(x: Any, dim: int = -1) -> Any:
    shifted = x - np.max(x, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def _softmax(x: Any, dim: int = -1) -> Any:
    return np.exp(_log_softmax(x, dim))


def _attention(q: Any, k: Any, v: Any, is_causal: int = False) -> Any:
    scores: Any = matrix_product(q, np.swapaxes(k, -2, -1)) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = scores + np.triu(np.full(scores.shape, -np.inf), 1)
    return matrix_product(_softmax(scores, -1), v)


def _conv2d(x: Any, weight: Any, stride: int = 1, padding: int = 0, dilation: int = 1) -> Any:
    n, _, height, width = x.shape
    k, _, r, s = weight.shape
    padded: Any = np.zeros((n, x.shape[1], height + 2 * padding, width + 2 * padding), x.dtype)
    padded[:, :, padding : padding + height, padding : padding + width] = x
    p = (height + 2 * padding - dilation * (r - 1) - 1) // stride + 1
    q = (width + 2 * padding - dilation * (s - 1) - 1) // stride + 1
    if p < 1 or q < 1:
        raise ValueError(f"filters of {r}×{s} do not fit into {height}×{width} with padding {padding}")
    result: Any = np.zeros((n, k, p, q), np.result_type(x, weight))
    for i in range(r):
        for j in range(s):
            rows = slice(i * dilation, i * dilation + (p - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (q - 1) * stride + 1, stride)
            result += np.einsum("ncpq,kc->nkpq", padded[:, :, rows, columns], weight[:, :, i, j])
    return result


def _reshape(x: Any, *shape: Any) -> Any:
    return x.reshape(shape[0] if len(shape) == 1 else shape)


class _Pair(NamedTuple):
    values: Any
    indices: Any


def argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """Where the elements along `dim` come from. NaN is the greatest, and equal elements stay in their order."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


def _sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> _Pair:
    index = argsort(x, dim, descending)
    return _Pair(np.take_along_axis(x, index, dim), index)


def _topk(x: Any, k: int, dim: int = -1) -> _Pair:
    index = np.take(argsort(x, dim, True), np.arange(k), dim)
    return _Pair(np.take_along_axis(x, index, dim), index)


_OWN: dict[str, Callable[..., Any]] = {
    "clamp": _clamp, "erf": _erf_like, "rsqrt": _rsqrt, "relu": _relu, "sigmoid": _sigmoid, "silu": _silu,
    "gelu": _gelu, "softmax": _softmax, "log_softmax": _log_softmax, "reshape": _reshape,
    "repeat_interleave": _repeat_interleave, "gather": _gather, "stack": _stack, "logsumexp": _logsumexp,
    "scaled_dot_product_attention": _attention, "conv2d": _conv2d, "bincount": _bincount,
    "searchsorted": _searchsorted, "argsort": argsort, "sort": _sort, "topk": _topk, "matmul": matrix_product,
}  # fmt: skip
