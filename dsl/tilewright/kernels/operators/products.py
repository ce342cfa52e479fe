"""Matrix products as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from tilewright.kernels import configurations
from tilewright.kernels.operators.registration import dense, hopper, kernel, operator, processors

_ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "silu": 3}
_HALVES = (torch.float16, torch.bfloat16)
_WORTH_COPYING = 2**27
"""Multiplications from which on copies with rows of multiples of 16 bytes gain more than they take."""


def _check_product(name: str, a: Tensor, b: Tensor, depth: int) -> None:
    if a.dtype not in _HALVES or a.dtype != b.dtype:
        raise TypeError(
            f"tilewright.kernels.{name} takes two tensors of float16 or of bfloat16, not {a.dtype} and {b.dtype}"
        )
    if b.ndim != 2 or a.shape[-1] != depth:
        raise ValueError(f"tilewright.kernels.{name} cannot multiply {tuple(a.shape)} and {tuple(b.shape)}")


def _product(a: Tensor, b: Tensor, transposed: bool) -> Tensor:
    """`a @ b`, or `a @ b.T` where `transposed`; both dense."""
    (m, k), n = a.shape, b.shape[0 if transposed else 1]
    out = a.new_empty((m, n))
    if not out.numel():
        return out
    if not k:
        return out.zero_()
    if not hopper(a.device) or ((k % 8 or n % 8) and m * n * k < _WORTH_COPYING):
        kernel("gemm_any", a)(a, dense(b.t()) if transposed else b, out)
        return out
    if k % 8 or n % 8:
        # Zeros add nothing, and what comes of them is left out.
        return dense(_product(_padded(a, -1), _padded(b, -1, -2), transposed)[:, :n])
    count = processors(a.device)
    parts = configurations.of_parts(m, n, k, count)
    if parts is not None:
        sums = a.new_empty((-(-k // parts["PART"]), m, n), dtype=torch.float32)
        kernel("parts_nt" if transposed else "parts_nn", a, **parts)(a, b, sums)
        kernel("sum_of_parts", a)(sums, out)
        return out
    kernel("gemm_nt" if transposed else "gemm_nn", a, **configurations.of_product(m, n, k, count))(a, b, out)
    return out


def _padded(x: Tensor, *dimensions: int) -> Tensor:
    """The tensor with zeros up to multiples of 8 along these dimensions, the last or the last two."""
    return F.pad(x, [n for d in dimensions for n in (0, -x.shape[d] % 8)])


def _turned(b: Tensor) -> bool:
    """Whether the last two dimensions are the transpose of a dense matrix, which is then taken as it is."""
    return b.stride(-2) == 1 and b.stride(-1) == b.shape[-2] and b.shape[-2] > 1


def _run_matmul(a: Tensor, b: Tensor) -> Tensor:
    _check_product("matmul", a, b, b.shape[0])
    rows_of_a = dense(a.reshape(prod(a.shape[:-1]), a.shape[-1]))
    turned = _turned(b)
    out = _product(rows_of_a, dense(b.t() if turned else b), turned)
    return out.view(*a.shape[:-1], b.shape[1])


_matmul = operator(
    "matmul(Tensor a, Tensor b) -> Tensor", _run_matmul, lambda a, b: a.new_empty((*a.shape[:-1], b.shape[1]))
)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for a matrix `b`, which may be the transpose of a contiguous one; sums in f32."""
    return _matmul(a, b)


def _run_linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    _check_product("linear", x, weight, weight.shape[1])
    if bias.shape != (weight.shape[0],) or bias.dtype != x.dtype:
        raise ValueError(f"tilewright.kernels.linear takes a bias of {weight.shape[0]} elements of {x.dtype}")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(_ACTIVATIONS)}, not {activation!r}")
    a = dense(x.reshape(prod(x.shape[:-1]), x.shape[-1]))
    (m, k), n = a.shape, weight.shape[0]
    if not m or not k or not hopper(x.device):
        raise ValueError(f"tilewright.kernels.linear takes rows that are not empty, on sm_90a, not {m} of {k} elements")
    if k % 8 or n % 8:
        a, weight, bias = _padded(a, -1), _padded(weight, -1, -2), _padded(bias, -1)
    out = a.new_empty((m, weight.shape[0]))
    chosen = configurations.of_product(m, weight.shape[0], a.shape[1], processors(x.device))
    kernel("linear", x, ACT=_ACTIVATIONS[activation], **chosen)(a, dense(weight), dense(bias), out)
    return dense(out[:, :n]).view(*x.shape[:-1], n)


_linear = operator(
    "linear(Tensor x, Tensor weight, Tensor bias, str activation) -> Tensor",
    _run_linear,
    lambda x, weight, bias, activation: x.new_empty((*x.shape[:-1], weight.shape[0])),
)


def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    """`activation(x @ weight.T + bias)`; "none", "relu", "gelu" or "silu"."""
    return _linear(x, weight, bias, activation)


def _run_bmm(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype not in _HALVES or a.dtype != b.dtype:
        raise TypeError(f"tilewright.kernels.bmm takes float16 or bfloat16 twice, not {a.dtype} and {b.dtype}")
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(f"tilewright.kernels.bmm cannot multiply {tuple(a.shape)} and {tuple(b.shape)}")
    (batch, m, k), n = a.shape, b.shape[2]
    if not k or not hopper(a.device):
        raise ValueError(f"tilewright.kernels.bmm takes depths of at least 1, on sm_90a, not {k}")
    if k % 8 or n % 8:
        return dense(_run_bmm(_padded(a, -1), _padded(b, -1, -2))[:, :, :n])
    out = a.new_empty((batch, m, n))
    if out.numel():
        turned = _turned(b)
        # The matrices together have as many tiles as one of all their rows.
        chosen = configurations.of_product(batch * -(-m // 64) * 64, n, k, processors(a.device))
        right = dense(b.mT if turned else b)
        kernel("batched_nt" if turned else "batched_nn", a, **chosen)(dense(a), right, out)
    return out


_bmm = operator("bmm(Tensor a, Tensor b) -> Tensor", _run_bmm, lambda a, b: a.new_empty((*a.shape[:2], b.shape[2])))


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """`a[i] @ b[i]` for every i; sums in f32."""
    return _bmm(a, b)
