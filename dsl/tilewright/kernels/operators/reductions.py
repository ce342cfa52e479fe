"""Reductions, running sums, group norm and rotary embedding as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from tilewright.kernels import configurations, shipped
from tilewright.kernels.operators.registration import check_elements, dense, kernel, like, matrix, operator

_OPERATIONS = {"sum": 0, "mean": 1, "amax": 2, "amin": 3}


def _run_reduce(x: Tensor, operation: str, dim: int) -> Tensor:
    check_elements(operation, x)
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"tilewright.kernels.{operation}: a tensor of {x.ndim} dimensions has no dimension {dim}")
    dim %= x.ndim
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    if not x.shape[dim]:
        raise ValueError(f"tilewright.kernels.{operation}: dimension {dim} has no elements")
    out = x.new_empty(shape)
    before, count, after = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    if not out.numel():
        return out
    chosen = {"OP": _OPERATIONS[operation]}
    if after == 1:
        given = dense(x).view(before, count)
        kernel("reduce_rows", x, **chosen, **configurations.of_reduction(count))(given, out.view(before))
    else:
        kernel("reduce_columns", x, **chosen)(dense(x).view(before, count, after), out.view(before, after))
    return out


_reduce = operator(
    "reduce(Tensor x, str operation, int dim) -> Tensor",
    _run_reduce,
    lambda x, operation, dim: x.new_empty((*x.shape[: dim % x.ndim], *x.shape[dim % x.ndim + 1 :])),
)


def sum(x: Tensor, dim: int = -1) -> Tensor:
    """The sum along a dimension, added up in f32."""
    return _reduce(x, "sum", dim)


def mean(x: Tensor, dim: int = -1) -> Tensor:
    """The mean along a dimension, added up in f32."""
    return _reduce(x, "mean", dim)


def amax(x: Tensor, dim: int = -1) -> Tensor:
    """The greatest element along a dimension."""
    return _reduce(x, "amax", dim)


def amin(x: Tensor, dim: int = -1) -> Tensor:
    """The least element along a dimension."""
    return _reduce(x, "amin", dim)


def _run_cumsum(x: Tensor) -> Tensor:
    given = matrix("cumsum", x)
    out = torch.empty_like(given)
    if out.numel():
        kernel("cumulative_sum", given)(given, out)
    return out.view(x.shape)


_cumsum = operator("cumsum(Tensor x) -> Tensor", _run_cumsum, like)


def cumsum(x: Tensor) -> Tensor:
    """Running sums along the last dimension, added up in f32."""
    return _cumsum(x)


def _run_group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    check_elements("group_norm", x, weight, bias)
    if x.ndim < 2 or x.shape[1] % groups or weight.shape != x.shape[1:2] or bias.shape != x.shape[1:2]:
        raise ValueError(
            f"tilewright.kernels.group_norm takes (batch, channels, …) with a multiple of {groups} channels, and a "
            f"weight and bias for each, not {tuple(x.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    batch, channels = x.shape[0], x.shape[1] // groups
    length = prod(x.shape[2:])
    given, out = dense(x), torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        count = batch * groups
        parts = configurations.chunks(channels * length)
        pieces = [x.new_empty((count, parts), dtype=torch.float32) for _ in range(2)]
        kernel("statistics", x)(given.view(count * parts, -1), *(p.view(-1) for p in pieces))
        means, scales = (x.new_empty(count, dtype=torch.float32) for _ in range(2))
        shipped.kernel("joined", {})(*pieces, means, scales, eps)
        kernel("group_norm", x, **configurations.of_group_norm(length))(
            given.view(batch, groups, channels, length), means.view(batch, groups), scales.view(batch, groups),
            dense(weight).view(groups, channels), dense(bias).view(groups, channels),
            out.view(batch, groups, channels, length),
        )  # fmt: skip
    return out


_group_norm = operator(
    "group_norm(Tensor x, int groups, Tensor weight, Tensor bias, float eps) -> Tensor", _run_group_norm, like
)


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(batch, channels, …) with mean 0 and variance 1 over the channels of each group, times `weight` plus `bias`."""
    return _group_norm(x, groups, weight, bias, eps)


def _run_rotary(x: Tensor, cos: Tensor, sin: Tensor, neighbours: bool) -> Tensor:
    check_elements("rotary", x)
    check_elements("rotary", cos, sin)
    if x.ndim < 2 or x.shape[-1] % 2 or cos.shape != (x.shape[-2], x.shape[-1] // 2) or cos.shape != sin.shape:
        raise ValueError(
            f"tilewright.kernels.rotary takes (…, positions, 2 F) and twice (positions, F), not {tuple(x.shape)}, "
            f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    if cos.dtype != torch.float32:
        raise TypeError(f"tilewright.kernels.rotary takes float32 cosines and sines, not {cos.dtype}")
    (positions, features), given = x.shape[-2:], dense(x)
    out = torch.empty_like(given)
    if out.numel():
        pairs = features // 2
        name = "rotary_neighbours" if neighbours else "rotary"
        split = (pairs, 2) if neighbours else (2, pairs)
        chosen = kernel(name, x, **configurations.of_rotary(pairs))
        shape = (-1, positions, *split)
        chosen(given.view(shape), dense(cos), dense(sin), out.view(shape))
    return out


_rotary = operator("rotary(Tensor x, Tensor cos, Tensor sin, bool neighbours) -> Tensor", _run_rotary, like)


def rotary(x: Tensor, cos: Tensor, sin: Tensor, neighbours: bool = False) -> Tensor:
    """Rotary embedding of (…, positions, 2 F): feature i and i + F turned by the angles (positions, F), in f32.

    With `neighbours` features 2 i and 2 i + 1 are a pair.
    """
    return _rotary(x, cos, sin, neighbours)
