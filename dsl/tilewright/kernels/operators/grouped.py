"""Products of a mixture of experts as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import torch
from torch import Tensor

from tilewright.kernels import configurations
from tilewright.kernels.operators.registration import dense, hopper, kernel, operator

_HALVES = (torch.float16, torch.bfloat16)


def _check(name: str, x: Tensor, weights: tuple[Tensor, ...], offsets: Tensor) -> None:
    if x.dtype not in _HALVES or any(w.dtype != x.dtype for w in weights) or offsets.dtype != torch.int32:
        found = ", ".join(str(t.dtype) for t in (x, *weights, offsets))
        raise TypeError(f"tilewright.kernels.{name} takes float16 or bfloat16, and int32 offsets, not {found}")
    shape = weights[0].shape
    if x.ndim != 2 or len(shape) != 3 or any(w.shape != shape for w in weights) or x.shape[1] != shape[1]:
        found = ", ".join(str(tuple(t.shape)) for t in (x, *weights))
        raise ValueError(f"tilewright.kernels.{name} takes (rows, K) and (experts, K, N), not {found}")
    if offsets.shape != (shape[0] + 1,):
        raise ValueError(
            f"tilewright.kernels.{name} takes {shape[0] + 1} offsets for {shape[0]} experts, not {tuple(offsets.shape)}"
        )
    if shape[1] % 8 or shape[2] % 8 or not shape[1] or not hopper(x.device):
        raise ValueError(
            f"tilewright.kernels.{name} takes depths and widths that are multiples of 8, on sm_90a, not {shape[1]} and "
            f"{shape[2]}"
        )


def _check_offsets(offsets: Tensor, rows: int) -> None:
    """Stop the device, without waiting for it, unless the offsets cut the rows into segments."""
    rising = (offsets[1:] >= offsets[:-1]).all()
    torch._assert_async(
        rising & (offsets[0] == 0) & (offsets[-1] == rows),
        f"the offsets of experts must rise from 0 to the number of rows, {rows}",
    )


def _run_grouped(x: Tensor, weight: Tensor, offsets: Tensor, check: bool) -> Tensor:
    _check("grouped_matmul", x, (weight,), offsets)
    experts, _, n = weight.shape
    out = x.new_empty((x.shape[0], n))
    if out.numel():
        if check:
            _check_offsets(offsets, x.shape[0])
        chosen = configurations.of_experts(x.shape[0], experts)
        kernel("grouped", x, **chosen)(dense(x), dense(weight), dense(offsets), out)
    return out


def _run_gated(x: Tensor, gate: Tensor, up: Tensor, offsets: Tensor, check: bool) -> Tensor:
    _check("grouped_gated_matmul", x, (gate, up), offsets)
    experts, _, n = gate.shape
    out = x.new_empty((x.shape[0], n))
    if out.numel():
        if check:
            _check_offsets(offsets, x.shape[0])
        chosen = configurations.of_gated(x.shape[0], experts)
        kernel("grouped_gated", x, **chosen)(dense(x), dense(gate), dense(up), dense(offsets), out)
    return out


_grouped = operator(
    "grouped_matmul(Tensor x, Tensor weight, Tensor offsets, bool check) -> Tensor",
    _run_grouped,
    lambda x, weight, offsets, check: x.new_empty((x.shape[0], weight.shape[2])),
)
_gated = operator(
    "grouped_gated_matmul(Tensor x, Tensor gate, Tensor up, Tensor offsets, bool check) -> Tensor",
    _run_gated,
    lambda x, gate, up, offsets, check: x.new_empty((x.shape[0], gate.shape[2])),
)


def grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor, check: bool = True) -> Tensor:
    """`x[offsets[e] : offsets[e + 1]] @ weight[e]` for every expert e, whose rows of `x` lie together.

    `weight` is (experts, K, N), and `offsets` holds experts + 1 int32 that rise from 0 to the number of rows; experts
    may have none. With `check` a kernel on the device stops it if they do not; without it they must.
    """
    return _grouped(x, weight, offsets, check)


def grouped_gated_matmul(x: Tensor, gate: Tensor, up: Tensor, offsets: Tensor, check: bool = True) -> Tensor:
    """`silu(x @ gate[e]) * (x @ up[e])` for the rows of every expert e, as in `grouped_matmul`."""
    return _gated(x, gate, up, offsets, check)
