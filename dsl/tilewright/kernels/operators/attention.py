"""Attention as an operator."""

# torch is no dependency of the language, so its types are unknown where this is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tilewright.kernels import configurations
from tilewright.kernels.operators.registration import dense, hopper, kernel, operator

_LOG2_E = 1.4426950408889634


def _run_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, window: int) -> Tensor:
    name = "tilewright.kernels.attention"
    if any(t.dtype not in (torch.float16, torch.bfloat16) or t.dtype != q.dtype for t in (q, k, v)):
        raise TypeError(f"{name} takes tensors of float16 or of bfloat16, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"{name} takes (batch, heads, queries, head size) and twice (batch, heads, keys, head size), not "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    (batch, heads, queries, size), shared, keys = q.shape, k.shape[1], k.shape[2]
    if size > configurations.HEADS[-1] or heads % shared:
        raise ValueError(
            f"{name} takes heads of at most {configurations.HEADS[-1]} elements, and a number of heads that is a "
            f"multiple of that of keys, not {size} elements and {heads} heads for {shared}"
        )
    if not scale > 0:
        raise ValueError(f"{name} takes a scale above 0, not {scale}")
    if window < 0 or (window and (not causal or queries > keys)):
        raise ValueError(
            f"{name} takes a window of at least 1 for causal masks of no more queries than keys, not {window} for "
            f"{queries} queries and {keys} keys, {'causal' if causal else 'not causal'}"
        )
    if not hopper(q.device):
        raise ValueError(f"{name} is for sm_90a, not {torch.cuda.get_device_name(q.device)}")
    if not keys or not q.numel():
        return torch.full_like(q, float("nan"), memory_format=torch.contiguous_format)
    head = next(d for d in configurations.HEADS if d >= size)
    if head > size:
        # Elements that are zero change no product, and what comes of them is left out below.
        q, k, v = (F.pad(t, (0, head - size)) for t in (q, k, v))
    group = max(g for g in configurations.SHARED_BY if heads // shared % g == 0)
    if heads // shared > group:
        k, v = (t.repeat_interleave(heads // shared // group, 1) for t in (k, v))
    q, k, v = (dense(t).view(-1, t.shape[2], head) for t in (q, k, v))
    out = torch.empty_like(q)
    mask = "window" if window else "causal" if causal else "full"
    chosen = kernel("attention", q, **configurations.of_attention(head, mask, group))
    chosen(q, k, v, out, scale * _LOG2_E, max(window, 1))
    return out.view(batch, heads, queries, head)[..., :size]


def _like(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, window: int) -> Tensor:
    head = next((d for d in configurations.HEADS if d >= q.shape[3]), q.shape[3])
    return q.new_empty((*q.shape[:3], head))[..., : q.shape[3]]


_attention = operator(
    "attention(Tensor q, Tensor k, Tensor v, bool causal, float scale, int window) -> Tensor", _run_attention, _like
)


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None, window: int | None = None
) -> Tensor:
    """`softmax(q @ k.mT * scale) @ v` for heads of at most 256 elements; the scale is `head size ** -0.5` if not given.

    `q` is (batch, heads, queries, head size), `k` and `v` are (batch, heads, keys, head size) with as many heads or a
    divisor of them. If causal, query i sees the keys up to number i, and with a `window` only so many of the last.
    """
    if window is not None and window < 1:
        raise ValueError(f"tilewright.kernels.attention takes a window of at least 1, not {window}")
    return _attention(q, k, v, causal, q.shape[-1] ** -0.5 if scale is None else scale, window or 0)
