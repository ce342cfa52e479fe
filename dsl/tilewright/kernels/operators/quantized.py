"""Products of 8-bit elements and in tf32, and quantization, as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.kernels import configurations, shipped
from tilewright.kernels.operators.registration import dense, hopper, kernel, matrix, operator, processors

_BYTES = {torch.float8_e4m3fn: ("gemm_fp8", "quantize_fp8"), torch.int8: ("gemm_int8", "quantize_int8")}


def _check(name: str, a: Tensor, b: Tensor, deep: int, wide: int) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"tilewright.kernels.{name} takes (M, K) and (N, K), not {tuple(a.shape)}, {tuple(b.shape)}")
    if a.shape[1] % deep or b.shape[0] % wide or not a.shape[1] or not hopper(a.device):
        raise ValueError(
            f"tilewright.kernels.{name} takes depths that are multiples of {deep} and widths that are multiples of "
            f"{wide}, on sm_90a, not {a.shape[1]} and {b.shape[0]}"
        )


def _run_scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    if a.dtype not in _BYTES or a.dtype != b.dtype:
        raise TypeError(
            f"tilewright.kernels.scaled_matmul takes float8_e4m3fn or int8 twice, not {a.dtype} and {b.dtype}"
        )
    _check("scaled_matmul", a, b, 16, 8)
    for scale, of in ((scale_a, a), (scale_b, b)):
        if scale.dtype != torch.float32 or scale.numel() != of.shape[0]:
            raise ValueError(
                f"tilewright.kernels.scaled_matmul takes a float32 scale for each of {of.shape[0]} rows, not "
                f"{scale.numel()} of {scale.dtype}"
            )
    (m, _), n = a.shape, b.shape[0]
    out = a.new_empty((m, n), dtype=torch.bfloat16)
    if out.numel():
        choices = configurations.INT8 if a.dtype == torch.int8 else configurations.FP8
        chosen = configurations.of_waves(choices, m, n, processors(a.device))
        product = shipped.kernel(_BYTES[a.dtype][0], chosen)
        product(dense(a), dense(scale_a.view(-1)), dense(b), dense(scale_b.view(-1)), out)
    return out


def _run_tf32(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype != torch.float32 or b.dtype != torch.float32:
        raise TypeError(f"tilewright.kernels.matmul_tf32 takes float32 twice, not {a.dtype} and {b.dtype}")
    turned = b.mT
    _check("matmul_tf32", a, turned, 4, 4)
    (m, _), n = a.shape, b.shape[1]
    out = a.new_empty((m, n))
    if out.numel():
        chosen = configurations.of_waves(configurations.TF32, m, n, processors(a.device))
        shipped.kernel("gemm_tf32", chosen)(dense(a), dense(turned), out)
    return out


def _run_quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if dtype not in _BYTES:
        raise TypeError(f"tilewright.kernels.quantize makes float8_e4m3fn or int8, not {dtype}")
    given = matrix("quantize", x)
    if given.shape[1] > configurations.LONGEST_ROW:
        raise ValueError(
            f"tilewright.kernels.quantize takes rows of at most {configurations.LONGEST_ROW} elements, not "
            f"{given.shape[1]}"
        )
    out = torch.empty(given.shape, dtype=dtype, device=x.device)
    scale = torch.empty(given.shape[0], dtype=torch.float32, device=x.device)
    if given.numel():
        name = _BYTES[dtype][1]
        chosen = configurations.of_rows(configurations.ROWS[name], given.shape[1])
        kernel(name, given, **chosen)(given, out, scale)
    return out.view(x.shape), scale.view(x.shape[:-1])


def _quantized_like(x: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    return torch.empty(x.shape, dtype=dtype, device=x.device), x.new_empty(x.shape[:-1], dtype=torch.float32)


_scaled = operator(
    "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b) -> Tensor",
    _run_scaled,
    lambda a, b, scale_a, scale_b: a.new_empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16),
)
_tf32 = operator(
    "matmul_tf32(Tensor a, Tensor b) -> Tensor", _run_tf32, lambda a, b: a.new_empty((a.shape[0], b.shape[1]))
)
_quantize = operator("quantize(Tensor x, ScalarType dtype) -> (Tensor, Tensor)", _run_quantize, _quantized_like)


def scaled_matmul(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """`(scale_a[:, None] * a) @ (scale_b[:, None] * b).T` in bfloat16, for 8-bit `a` (M, K) and `b` (N, K).

    float8_e4m3fn or int8, as `quantize` gives them. K is a multiple of 16 and N of 8.
    """
    return _scaled(a, b, scale_a, scale_b)


def matmul_tf32(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` of float32 matrices whose elements lose all but 10 bits after the point; sums in f32.

    Depth and width are multiples of 4. A `b` that is not the transpose of a contiguous matrix is copied.
    """
    return _tf32(a, b)


def quantize(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """8-bit elements and a float32 scale for each row of the last dimension, whose product is about `x`.

    The greatest magnitude of a row is at the end of the range of `dtype`, float8_e4m3fn or int8. Rows have at most
    32768 elements.
    """
    return _quantize(x, dtype)
