"""Operators of PyTorch over the kernels of this package, registered with `torch.library`."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_fake

from tilewright.function import KernelFunction
from tilewright.kernels import activations, configurations, gemm, rows

_library = Library("tilewright", "DEF")
_ELEMENTS = (torch.float32, torch.float16, torch.bfloat16)


def _operator(schema: str, run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Define `torch.ops.tilewright.<name>`: on CUDA it runs `run`, under tracing its result is like `shape`'s."""
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, run, "CUDA")
    register_fake(f"tilewright::{name}", shape, lib=_library)
    return getattr(torch.ops.tilewright, name)


def _elements(name: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype not in _ELEMENTS:
            raise TypeError(f"tilewright.kernels.{name} takes float32, float16 or bfloat16, not {tensor.dtype}")
        if tensor.dtype != tensors[0].dtype:
            raise TypeError(
                f"tilewright.kernels.{name} takes tensors of one type, not {tensors[0].dtype} and {tensor.dtype}"
            )


# ------------------------------------------------------------------------------------------------ elementwise


def _elementwise(name: str, kernel: KernelFunction, inputs: str, scalars: str = "") -> Any:
    count = inputs.count("Tensor")

    def run(*arguments: Any) -> Tensor:
        tensors = [t.contiguous() for t in arguments[:count]]
        _elements(name, *tensors)
        if any(t.shape != tensors[0].shape for t in tensors):
            raise ValueError(
                f"tilewright.kernels.{name} takes tensors of one shape, not {[tuple(t.shape) for t in tensors]}"
            )
        out = torch.empty_like(tensors[0])
        if out.numel():
            kernel(*(t.view(-1) for t in tensors), out.view(-1), *arguments[count:])
        return out

    def shape(*arguments: Any) -> Tensor:
        return torch.empty_like(arguments[0], memory_format=torch.contiguous_format)

    return _operator(f"{name}({inputs}{scalars}) -> Tensor", run, shape)


_ops = {
    name: _elementwise(name, getattr(activations, name), "Tensor x", scalars)
    for name, scalars in {
        "relu": "", "leaky_relu": ", float slope", "sigmoid": "", "tanh": "", "silu": "", "gelu": "", "gelu_tanh": "",
        "selu": "", "elu": ", float alpha", "hardsigmoid": "", "hardtanh": ", float low, float high", "softplus": "",
        "softsign": "",
    }.items()
}  # fmt: skip
_silu_and_multiply = _elementwise("silu_and_multiply", activations.silu_and_multiply, "Tensor gate, Tensor up")


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`."""
    return _ops["relu"](x)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """`x` above zero, `slope * x` below."""
    return _ops["leaky_relu"](x, slope)


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return _ops["sigmoid"](x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _ops["tanh"](x)


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""
    return _ops["silu"](x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """`x` times the normal distribution function at `x`; "tanh" approximates it by a hyperbolic tangent."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate is "none" or "tanh", not {approximate!r}')
    return _ops["gelu" if approximate == "none" else "gelu_tanh"](x)


def selu(x: Tensor) -> Tensor:
    """The scaled exponential linear unit."""
    return _ops["selu"](x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x` above zero, `alpha * (exp(x) - 1)` below."""
    return _ops["elu"](x, alpha)


def hardsigmoid(x: Tensor) -> Tensor:
    """`x / 6 + 1 / 2`, cut off at 0 and 1."""
    return _ops["hardsigmoid"](x)


def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """`x` cut off at `low` and `high`."""
    return _ops["hardtanh"](x, low, high)


def softplus(x: Tensor) -> Tensor:
    """`log(1 + exp(x))`."""
    return _ops["softplus"](x)


def softsign(x: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    return _ops["softsign"](x)


def silu_and_multiply(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`, the gated activation of two halves of a feed-forward layer."""
    return _silu_and_multiply(gate, up)


# ------------------------------------------------------------------------------------------------ rows


def _matrix(name: str, x: Tensor) -> Tensor:
    _elements(name, x)
    if x.ndim < 1:
        raise ValueError(f"tilewright.kernels.{name} works along the last dimension, which a scalar does not have")
    return x.contiguous().view(prod(x.shape[:-1]), x.shape[-1])


def _rows(name: str, kernel: KernelFunction, longer: KernelFunction | None) -> Any:
    def run(x: Tensor) -> Tensor:
        matrix = _matrix(name, x)
        out = torch.empty_like(matrix)
        if out.numel():
            _chosen(name, kernel, matrix, longer)(matrix, out)
        return out.view(x.shape)

    return _operator(f"{name}(Tensor x) -> Tensor", run, _like)


def _like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_LIKE = {"log_softmax": "softmax"}


def _chosen(name: str, kernel: KernelFunction, x: Tensor, longer: KernelFunction | None = None) -> KernelFunction:
    if x.shape[1] <= configurations.LONGEST_ROW:
        return kernel.using(None, **configurations.of_rows(_LIKE.get(name, name), x.shape[1], x.shape[0]))
    if longer is None:
        raise ValueError(
            f"tilewright.kernels.{name} takes rows of at most {configurations.LONGEST_ROW} elements, not {x.shape[1]}"
        )
    return longer


_softmax = _rows("softmax", rows.softmax, rows.online_softmax)
_log_softmax = _rows("log_softmax", rows.log_softmax, None)


def softmax(x: Tensor) -> Tensor:
    """Softmax along the last dimension."""
    return _softmax(x)


def log_softmax(x: Tensor) -> Tensor:
    """The logarithm of softmax along the last dimension, of at most 32768 elements."""
    return _log_softmax(x)


def _run_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    matrix = _matrix("rms_norm", x)
    _elements("rms_norm", matrix, weight)
    out = torch.empty_like(matrix)
    if out.numel():
        _chosen("rms_norm", rows.rms_norm, matrix)(matrix, weight.contiguous(), out, eps)
    return out.view(x.shape)


def _run_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    matrix = _matrix("layer_norm", x)
    _elements("layer_norm", matrix, weight, bias)
    out = torch.empty_like(matrix)
    if out.numel():
        kernel = _chosen("layer_norm", rows.layer_norm, matrix)
        kernel(matrix, weight.contiguous(), bias.contiguous(), out, eps)
    return out.view(x.shape)


_rms_norm = _operator("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", _run_rms_norm, _like)
_layer_norm = _operator("layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> Tensor", _run_layer_norm, _like)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows of the last dimension, at most 32768 long, divided by their root mean square, times `weight`."""
    return _rms_norm(x, weight, eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Rows of the last dimension, at most 32768 long, with mean 0 and variance 1, times `weight` plus `bias`."""
    return _layer_norm(x, weight, bias, eps)


def _run_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    matrix = _matrix("cross_entropy", logits)
    if target.dtype != torch.int64 or target.numel() != matrix.shape[0]:
        raise ValueError(
            f"tilewright.kernels.cross_entropy takes one int64 class for each of {matrix.shape[0]} rows, not "
            f"{target.numel()} of {target.dtype}"
        )
    loss = torch.empty(matrix.shape[0], dtype=torch.float32, device=logits.device)
    if matrix.numel():
        chosen = configurations.of_rows("softmax", matrix.shape[1], 1)
        if matrix.shape[1] > configurations.LONGEST_ROW:
            raise ValueError(f"tilewright.kernels.cross_entropy takes at most {configurations.LONGEST_ROW} classes")
        kernel = rows.cross_entropy.using(None, BN=chosen["BN"], warps=chosen["warps"])
        kernel(matrix, target.contiguous().view(-1), loss)
    return loss.view(target.shape)


_cross_entropy = _operator(
    "cross_entropy(Tensor logits, Tensor target) -> Tensor",
    _run_cross_entropy,
    lambda logits, target: torch.empty(target.shape, dtype=torch.float32, device=logits.device),
)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The loss of each row of logits, in f32; rows with a negative target have loss 0. Targets are int64."""
    return _cross_entropy(logits, target)


# ------------------------------------------------------------------------------------------------ products

_ACTIVATIONS = {"none": gemm.NONE, "relu": gemm.RELU, "gelu": gemm.GELU, "silu": gemm.SILU}
_HALVES = (torch.float16, torch.bfloat16)


def _check_product(name: str, a: Tensor, b: Tensor, depth: int) -> None:
    if a.dtype not in _HALVES or a.dtype != b.dtype:
        raise TypeError(
            f"tilewright.kernels.{name} takes two tensors of float16 or of bfloat16, not {a.dtype} and {b.dtype}"
        )
    if b.ndim != 2 or a.shape[-1] != depth:
        raise ValueError(f"tilewright.kernels.{name} cannot multiply {tuple(a.shape)} and {tuple(b.shape)}")


def _product(a: Tensor, b: Tensor, transposed: bool) -> Tensor:
    """`a @ b`, or `a @ b.T` where `transposed`; both contiguous."""
    (m, k), n = a.shape, b.shape[0 if transposed else 1]
    out = a.new_empty((m, n))
    if not out.numel():
        return out
    if not k:
        return out.zero_()
    if k % 8 or n % 8 or torch.cuda.get_device_capability(a.device)[0] != 9:
        gemm.gemm_any(a, b.t().contiguous() if transposed else b, out)
        return out
    kernel = gemm.gemm_nt if transposed else gemm.gemm_nn
    kernel.using(None, **configurations.of_product(m, n, k))(a, b, out)
    return out


def _run_matmul(a: Tensor, b: Tensor) -> Tensor:
    _check_product("matmul", a, b, b.shape[0])
    rows_of_a = a.reshape(prod(a.shape[:-1]), a.shape[-1]).contiguous()
    turned = b.stride() == (1, b.shape[0]) and b.shape[0] > 1
    out = _product(rows_of_a, b.t() if turned else b.contiguous(), turned)
    return out.view(*a.shape[:-1], b.shape[1])


_matmul = _operator(
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
    a = x.reshape(prod(x.shape[:-1]), x.shape[-1]).contiguous()
    (m, k), n = a.shape, weight.shape[0]
    if k % 8 or n % 8 or not m or not k or torch.cuda.get_device_capability(x.device)[0] != 9:
        raise ValueError(
            f"tilewright.kernels.linear takes depths and widths that are multiples of 8, on sm_90a, not {k} and {n}"
        )
    out = a.new_empty((m, n))
    chosen = configurations.of_product(m, n, k)
    gemm.linear.using(None, ACT=_ACTIVATIONS[activation], **chosen)(a, weight.contiguous(), bias.contiguous(), out)
    return out.view(*x.shape[:-1], n)


_linear = _operator(
    "linear(Tensor x, Tensor weight, Tensor bias, str activation) -> Tensor",
    _run_linear,
    lambda x, weight, bias, activation: x.new_empty((*x.shape[:-1], weight.shape[0])),
)


def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    """`activation(x @ weight.T + bias)`; "none", "relu", "gelu" or "silu". Depth and width are multiples of 8."""
    return _linear(x, weight, bias, activation)
