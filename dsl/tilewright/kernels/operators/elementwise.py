"""Activation functions as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.kernels.operators.registration import check_elements, dense, kernel, like, operator


def _elementwise(name: str, inputs: str, scalars: str = "") -> Any:
    count = inputs.count("Tensor")

    def run(*arguments: Any) -> Tensor:
        tensors = [dense(t) for t in arguments[:count]]
        check_elements(name, *tensors)
        if any(t.shape != tensors[0].shape for t in tensors):
            raise ValueError(
                f"tilewright.kernels.{name} takes tensors of one shape, not {[tuple(t.shape) for t in tensors]}"
            )
        out = torch.empty_like(tensors[0])
        if out.numel():
            kernel(name, out)(*(t.view(-1) for t in tensors), out.view(-1), *arguments[count:])
        return out

    return operator(f"{name}({inputs}{scalars}) -> Tensor", run, like)


_ops = {
    name: _elementwise(name, "Tensor x", scalars)
    for name, scalars in {
        "relu": "", "leaky_relu": ", float slope", "sigmoid": "", "tanh": "", "silu": "", "gelu": "", "gelu_tanh": "",
        "selu": "", "elu": ", float alpha", "hardsigmoid": "", "hardtanh": ", float low, float high", "softplus": "",
        "softsign": "",
    }.items()
}  # fmt: skip
_silu_and_multiply = _elementwise("silu_and_multiply", "Tensor gate, Tensor up")


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
