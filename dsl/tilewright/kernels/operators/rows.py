"""Softmax, norms and cross entropy as operators."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.kernels import configurations, shipped
from tilewright.kernels.operators.registration import check_elements, dense, kernel, like, matrix, operator


def _rows(name: str, longer: str = "") -> Any:
    def run(x: Tensor) -> Tensor:
        given = matrix(name, x)
        out = torch.empty_like(given)
        if out.numel():
            _chosen(name, given, longer)(given, out)
        return out.view(x.shape)

    return operator(f"{name}(Tensor x) -> Tensor", run, like)


def _chosen(name: str, x: Tensor, longer: str = "") -> shipped.Shipped:
    columns = x.shape[1]
    if longer and columns > configurations.LONGEST_SOFTMAX:
        return kernel(longer, x, **configurations.of_pieces(columns))
    if columns <= configurations.LONGEST_ROW:
        return kernel(name, x, **configurations.of_rows(configurations.ROWS[name], columns))
    raise ValueError(
        f"tilewright.kernels.{name} takes rows of at most {configurations.LONGEST_ROW} elements, not {columns}"
    )


_softmax = _rows("softmax", longer="online_softmax")
_log_softmax = _rows("log_softmax", longer="online_log_softmax")


def softmax(x: Tensor) -> Tensor:
    """Softmax along the last dimension."""
    return _softmax(x)


def log_softmax(x: Tensor) -> Tensor:
    """The logarithm of softmax along the last dimension."""
    return _log_softmax(x)


def _run_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    given = matrix("rms_norm", x)
    check_elements("rms_norm", given, weight)
    out = torch.empty_like(given)
    if out.numel():
        _chosen("rms_norm", given)(given, dense(weight), out, eps)
    return out.view(x.shape)


def _run_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    given = matrix("layer_norm", x)
    check_elements("layer_norm", given, weight, bias)
    out = torch.empty_like(given)
    if out.numel():
        _chosen("layer_norm", given)(given, dense(weight), dense(bias), out, eps)
    return out.view(x.shape)


_rms_norm = operator("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", _run_rms_norm, like)
_layer_norm = operator("layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> Tensor", _run_layer_norm, like)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows of the last dimension, at most 32768 long, divided by their root mean square, times `weight`."""
    return _rms_norm(x, weight, eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Rows of the last dimension, at most 32768 long, with mean 0 and variance 1, times `weight` plus `bias`."""
    return _layer_norm(x, weight, bias, eps)


def _run_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    given = matrix("cross_entropy", logits)
    count, classes = given.shape
    if target.dtype != torch.int64 or target.numel() != count:
        raise ValueError(
            f"tilewright.kernels.cross_entropy takes one int64 class for each of {count} rows, not "
            f"{target.numel()} of {target.dtype}"
        )
    if classes > configurations.LONGEST_ROW:
        raise ValueError(f"tilewright.kernels.cross_entropy takes at most {configurations.LONGEST_ROW} classes")
    loss = torch.empty(count, dtype=torch.float32, device=logits.device)
    if given.numel():
        chosen = kernel("cross_entropy", given, **configurations.of_cross_entropy(classes))
        chosen(given, dense(target).view(-1), loss)
    return loss.view(target.shape)


_cross_entropy = operator(
    "cross_entropy(Tensor logits, Tensor target) -> Tensor",
    _run_cross_entropy,
    lambda logits, target: torch.empty(target.shape, dtype=torch.float32, device=logits.device),
)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The loss of each row of logits, in f32; rows with a negative target have loss 0. Targets are int64."""
    return _cross_entropy(logits, target)
