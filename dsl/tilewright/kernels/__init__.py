"""Tuned kernels as functions of PyTorch: `from tilewright.kernels import matmul, softmax, rms_norm`.

Inputs are CUDA tensors, of f16, bf16 or f32 where a function says nothing else; results are new tensors, and no
gradients are computed. Each function is an operator of `torch.ops.tilewright` with a shape function, so `torch.compile`
can call it. The kernels are the files beside this one: each is proved at every configuration that is used
(`catalogue`), and what they assume of sizes is checked before they are launched.
"""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.kernels.operators import (
        amax,
        amin,
        attention,
        bmm,
        cross_entropy,
        cumsum,
        elu,
        gelu,
        group_norm,
        grouped_gated_matmul,
        grouped_matmul,
        hardsigmoid,
        hardtanh,
        layer_norm,
        leaky_relu,
        linear,
        log_softmax,
        matmul,
        matmul_tf32,
        mean,
        quantize,
        relu,
        rms_norm,
        rotary,
        scaled_matmul,
        selu,
        sigmoid,
        silu,
        silu_and_multiply,
        softmax,
        softplus,
        softsign,
        sum,
        tanh,
    )


def __getattr__(name: str) -> Any:
    # The kernels can be read and checked without torch; only the functions need it.
    if name not in __all__:
        raise AttributeError(f"module 'tilewright.kernels' has no attribute '{name}'")
    try:
        from tilewright.kernels import operators
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"tilewright.kernels.{name} needs PyTorch, which is not installed: pip install 'tilewright[gpu]' ({error})"
        ) from error
    return getattr(operators, name)


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
