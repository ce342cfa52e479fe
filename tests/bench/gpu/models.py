"""What `bench_gpu.py` times: attention, experts, 8-bit and tf32 products, reductions, rotary, quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from cases import BRAIN, SINGLE, Case, exact_product, normal, short
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilewright import kernels

FP8 = torch.float8_e4m3fn


def attention() -> Iterator[Case]:
    """Full and causal, all head sizes, odd lengths, shared keys; the baseline is cuDNN."""
    for batch, heads, shared, length, size in (
        (4, 32, 32, 4096, 64), (4, 20, 20, 4096, 96), (4, 16, 16, 4096, 128), (2, 16, 16, 8192, 128), (4, 8, 8, 4096, 256),
        (4, 16, 16, 4093, 128), (4, 32, 8, 4096, 128),
    ):  # fmt: skip
        for causal in (False, True):

            def make(
                b: int = batch, h: int = heads, s: int = shared, n: int = length, d: int = size
            ) -> tuple[Any, ...]:
                return normal(b, h, n, d, BRAIN), normal(b, s, n, d, BRAIN), normal(b, s, n, d, BRAIN)

            yield Case(
                "attention", f"attention {size}{' causal' if causal else ''}", f"{batch}×{heads}/{shared}×{length}", make,
                lambda q, k, v, c=causal: kernels.attention(q, k, v, c), lambda q, k, v, c=causal: _cudnn(q, k, v, c),
                lambda q, k, v, c=causal: _exact_attention(q, k, v, c),
                flops=4 * batch * heads * length * length * size // (2 if causal else 1),
            )  # fmt: skip


def _cudnn(q: Any, k: Any, v: Any, causal: bool) -> Any:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def _exact_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    times = q.shape[1] // k.shape[1]
    out = torch.empty(q.shape, device="cuda")
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = exact_product(q[b, h], k[b, h // times].T) * q.shape[-1] ** -0.5
            if causal:
                scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -torch.inf)
            out[b, h] = exact_product(torch.softmax(scores, -1), v[b, h // times])
    return out


def experts() -> Iterator[Case]:
    """Grouped products of bf16 under even and skewed routing and with empty experts; the baseline is `grouped_mm`."""
    for rows, count, k, n, routing in (
        (8192, 8, 4096, 3584, "even"), (8192, 8, 4096, 3584, "skewed"), (16384, 64, 2048, 1408, "even"),
        (16384, 64, 2048, 1408, "skewed"), (4096, 128, 2048, 768, "half empty"), (1024, 64, 2048, 1408, "skewed"),
    ):  # fmt: skip

        def make(r: int = rows, e: int = count, k: int = k, n: int = n, how: str = routing) -> tuple[Any, ...]:
            return normal(r, k, BRAIN), normal(e, k, n, BRAIN), _offsets(r, e, how)

        yield Case(
            "experts", "grouped_matmul", f"{rows}×{k}×{n} of {count} {routing}", make,
            lambda x, w, o: kernels.grouped_matmul(x, w, o, check=False),
            lambda x, w, o: torch._grouped_mm(x, w, offs=o[1:]), _exact_experts, flops=2 * rows * k * n,
        )  # fmt: skip
        if routing == "skewed":

            def gated(r: int = rows, e: int = count, k: int = k, n: int = n, how: str = routing) -> tuple[Any, ...]:
                return normal(r, k, BRAIN), normal(e, k, n, BRAIN), normal(e, k, n, BRAIN), _offsets(r, e, how)

            yield Case(
                "experts", "grouped_gated_matmul", f"{rows}×{k}×{n} of {count} {routing}", gated,
                lambda x, g, u, o: kernels.grouped_gated_matmul(x, g, u, o, check=False),
                lambda x, g, u, o: F.silu(torch._grouped_mm(x, g, offs=o[1:])) * torch._grouped_mm(x, u, offs=o[1:]),
                lambda x, g, u, o: F.silu(_exact_experts(x, g, o)) * _exact_experts(x, u, o), flops=4 * rows * k * n,
            )  # fmt: skip


def _offsets(rows: int, count: int, routing: str) -> Any:
    generator = torch.Generator().manual_seed(1)
    share = torch.ones(count)
    if routing == "skewed":
        share = 1 / torch.arange(1, count + 1).float()
    elif routing == "half empty":
        share[::2] = 0
    share = share[torch.randperm(count, generator=generator)]
    ends = (rows * torch.cumsum(share / share.sum(), 0)).round().int()
    ends[-1] = rows
    return F.pad(ends, (1, 0)).cuda()


def _exact_experts(x: Any, w: Any, offsets: Any) -> Any:
    ends = offsets.tolist()
    return torch.cat([exact_product(x[a:b], e) for a, b, e in zip(ends, ends[1:], w, strict=False)])


def quantized() -> Iterator[Case]:
    """Products of 8-bit elements with a scale for each row, and of f32 in tf32."""
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (1024, 4096, 4096), (64, 8192, 8192)):
        for dtype in (FP8, torch.int8):

            def make(m: int = m, n: int = n, k: int = k, t: torch.dtype = dtype) -> tuple[Any, ...]:
                a, b = kernels.quantize(normal(m, k, BRAIN), t), kernels.quantize(normal(n, k, BRAIN), t)
                return a[0], b[0], a[1], b[1]

            yield Case(
                "quantized", "scaled_matmul " + ("fp8" if dtype == FP8 else "int8"), f"{m}×{n}×{k}", make,
                kernels.scaled_matmul, _scaled_mm if dtype == FP8 else _int_mm,
                lambda a, b, sa, sb: exact_product(a, b.T) * sa[:, None] * sb, flops=2 * m * n * k,
            )  # fmt: skip
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 2048)):
        yield Case(
            "quantized", "matmul_tf32", f"{m}×{n}×{k}", lambda m=m, n=n, k=k: (normal(m, k, SINGLE), normal(n, k, SINGLE).T),
            kernels.matmul_tf32, _tf32, exact_product, flops=2 * m * n * k,
        )  # fmt: skip
    for batch, m, n, k in ((64, 512, 512, 512), (16, 2048, 2048, 128)):
        yield Case(
            "quantized", "bmm bf16", f"{batch}×{m}×{n}×{k}",
            lambda b=batch, m=m, n=n, k=k: (normal(b, m, k, BRAIN), normal(b, k, n, BRAIN)),
            kernels.bmm, torch.bmm, exact_product, flops=2 * batch * m * n * k,
        )  # fmt: skip


def _scaled_mm(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    return torch._scaled_mm(a, b.T, sa[:, None], sb[None, :], out_dtype=BRAIN)


def _int_mm(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    return (torch._int_mm(a, b.T) * sa[:, None] * sb[None, :]).to(BRAIN)


def _tf32(a: Any, b: Any) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.matmul(a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def memory() -> Iterator[Case]:
    """Reductions, running sums, group norm, rotary embedding, quantization."""
    m, n = 4096, 16384
    for dtype in (SINGLE, BRAIN):
        size = m * n * dtype.itemsize
        pairs: list[tuple[str, Callable[..., Any], Callable[..., Any], int]] = [
            ("sum", kernels.sum, lambda x: x.sum(-1), size),
            ("amax", kernels.amax, lambda x: x.amax(-1), size),
            ("mean of columns", lambda x: kernels.mean(x, 0), lambda x: x.mean(0), size),
            ("cumsum", kernels.cumsum, lambda x: x.cumsum(-1), 2 * size),
        ]
        for name, ours, base, moved in pairs:
            yield Case("memory", f"{name} {short(dtype)}", f"{m}×{n}", lambda t=dtype: (normal(m, n, t),), ours, base,
                       lambda x, base=base: base(x.double()), moved=moved)  # fmt: skip
    shape = (16, 64, 256, 256)

    def images() -> tuple[Any, ...]:
        return normal(*shape, BRAIN), normal(64, BRAIN), normal(64, BRAIN)

    yield Case("memory", "group_norm bf16", "16×64×256×256", images, lambda x, w, b: kernels.group_norm(x, 8, w, b),
               lambda x, w, b: F.group_norm(x, 8, w, b), lambda x, w, b: F.group_norm(x.double(), 8, w.double(), b.double()),
               moved=4 * 16 * 64 * 65536)  # fmt: skip

    def heads() -> tuple[Any, ...]:
        angle = torch.rand(4096, 64, device="cuda") * 6
        return normal(4, 32, 4096, 128, BRAIN), angle.cos(), angle.sin()

    yield Case("memory", "rotary bf16", "4×32×4096×128", heads, kernels.rotary, _rotary,
               lambda x, c, s: _rotary(x.double(), c.double(), s.double()), moved=4 * 4 * 32 * 4096 * 128)  # fmt: skip
    yield Case("memory", "quantize bf16 to fp8", "8192×4096", lambda: (normal(8192, 4096, BRAIN),),
               lambda x: kernels.quantize(x)[0], _quantized, _quantized, moved=3 * 8192 * 4096, tolerance=0.08)  # fmt: skip


def _rotary(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)


def _quantized(x: Any) -> Any:
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-30) * (1 / 448)
    return (x.float() / scale).to(FP8)


__all__ = ["attention", "experts", "memory", "quantized"]
