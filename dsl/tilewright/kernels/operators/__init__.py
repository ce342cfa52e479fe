"""Operators of PyTorch over the kernels of this package, registered with `torch.library`."""

# pyright: basic, reportMissingImports=false

from tilewright.kernels.operators.elementwise import (
    elu,
    gelu,
    hardsigmoid,
    hardtanh,
    leaky_relu,
    relu,
    selu,
    sigmoid,
    silu,
    silu_and_multiply,
    softplus,
    softsign,
    tanh,
)
from tilewright.kernels.operators.products import linear, matmul
from tilewright.kernels.operators.rows import cross_entropy, layer_norm, log_softmax, rms_norm, softmax

__all__ = [
    "cross_entropy",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardtanh",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "matmul",
    "relu",
    "rms_norm",
    "selu",
    "sigmoid",
    "silu",
    "silu_and_multiply",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
]
