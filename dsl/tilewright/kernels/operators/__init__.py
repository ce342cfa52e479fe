"""Operators of PyTorch over the kernels of this package, registered with `torch.library`."""

# pyright: basic, reportMissingImports=false

from tilewright.kernels.operators.attention import attention
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
from tilewright.kernels.operators.grouped import grouped_gated_matmul, grouped_matmul
from tilewright.kernels.operators.products import bmm, linear, matmul
from tilewright.kernels.operators.quantized import matmul_tf32, quantize, scaled_matmul
from tilewright.kernels.operators.reductions import amax, amin, cumsum, group_norm, mean, rotary, sum
from tilewright.kernels.operators.rows import cross_entropy, layer_norm, log_softmax, rms_norm, softmax

__all__ = [
    "amax",
    "amin",
    "attention",
    "bmm",
    "cross_entropy",
    "cumsum",
    "elu",
    "gelu",
    "group_norm",
    "grouped_gated_matmul",
    "grouped_matmul",
    "hardsigmoid",
    "hardtanh",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "matmul",
    "matmul_tf32",
    "mean",
    "quantize",
    "relu",
    "rms_norm",
    "rotary",
    "scaled_matmul",
    "selu",
    "sigmoid",
    "silu",
    "silu_and_multiply",
    "softmax",
    "softplus",
    "softsign",
    "sum",
    "tanh",
]
