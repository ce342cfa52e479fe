"""What the operators share: their definition for torch, and the checks of their tensors."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_fake

from tilewright.kernels import shipped

_library = Library("tilewright", "DEF")
_ELEMENTS = (torch.float32, torch.float16, torch.bfloat16)
TYPES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "f8e4m3", torch.int8: "i8",
}  # fmt: skip
"""Our names of element types."""


def operator(schema: str, run: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Define `torch.ops.tilewright.<name>`: on CUDA it runs `run`, under tracing its result is like `shape`'s."""
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, run, "CUDA")
    register_fake(f"tilewright::{name}", shape, lib=_library)
    return getattr(torch.ops.tilewright, name)


def kernel(name: str, like: Tensor, **values: int) -> shipped.Shipped:
    """The kernel with these compile-time values for elements as those of `like`."""
    return shipped.kernel(name, {**values, "T": TYPES[like.dtype]})


def check_elements(name: str, *tensors: Tensor) -> None:
    """Raise TypeError unless the tensors have one type, f32, f16 or bf16."""
    for tensor in tensors:
        if tensor.dtype not in _ELEMENTS:
            raise TypeError(f"tilewright.kernels.{name} takes float32, float16 or bfloat16, not {tensor.dtype}")
        if tensor.dtype != tensors[0].dtype:
            raise TypeError(
                f"tilewright.kernels.{name} takes tensors of one type, not {tensors[0].dtype} and {tensor.dtype}"
            )


def matrix(name: str, x: Tensor) -> Tensor:
    """The tensor as a contiguous matrix whose rows are its last dimension."""
    check_elements(name, x)
    if x.ndim < 1:
        raise ValueError(f"tilewright.kernels.{name} works along the last dimension, which a scalar does not have")
    return dense(x).view(prod(x.shape[:-1]), x.shape[-1])


def dense(x: Tensor) -> Tensor:
    """The tensor without gaps and at a multiple of 16 bytes, which the kernels need: a copy if it is not so."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def like(x: Tensor, *_: Any) -> Tensor:
    """The shape function of what has the shape and type of its first argument."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@lru_cache(maxsize=64)
def processors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=64)
def hopper(device: torch.device) -> bool:
    """Whether kernels for sm_90a run on a device."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) == (9, 0)
