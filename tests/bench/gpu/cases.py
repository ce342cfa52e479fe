"""What `bench_gpu.py` times: products, rows and activations of `tilewright.kernels` beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tilewright import kernels

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


@dataclass
class Case:
    """One row of the table: `make` gives fresh inputs; `moved` bytes or `flops` of one run."""

    group: str
    name: str
    shape: str
    make: Callable[[], tuple[Any, ...]]
    ours: Callable[..., Any]
    base: Callable[..., Any]
    exact: Callable[..., Any]
    moved: int = 0
    flops: int = 0
    tolerance: float = 2e-2


def products() -> Iterator[Case]:
    """Products of half precision: square, tall, wide, skinny, odd, deep."""
    sizes = [
        (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096),
        (4096, 4096, 512), (32768, 512, 1024), (16, 8192, 8192), (64, 8192, 8192), (128, 4096, 14336),
        (4054, 4008, 4072), (3000, 3000, 3000), (1000, 5000, 2000), (1024, 1024, 8192), (2048, 8192, 8192),
        (8192, 1024, 8192), (777, 1024, 4096), (2560, 10240, 2560),
    ]  # fmt: skip
    for m, n, k in sizes:
        for dtype in (HALF, BRAIN) if (m, n, k) in sizes[2:4] else (HALF,):
            yield Case(
                "product", f"matmul {short(dtype)}", f"{m}×{n}×{k}", lambda m=m, n=n, k=k, t=dtype: (normal(m, k, t), normal(k, n, t)),
                kernels.matmul, torch.matmul, exact_product, flops=2 * m * n * k,
            )  # fmt: skip
    for m, n, k in ((4096, 4096, 4096), (2048, 11008, 4096), (512, 4096, 4096)):
        yield Case(
            "product", "linear f16", f"{m}×{n}×{k}", lambda m=m, n=n, k=k: (normal(m, k, HALF), normal(n, k, HALF), normal(1, n, HALF)[0]),
            lambda x, w, b: kernels.linear(x, w, b), F.linear, lambda x, w, b: exact_product(x, w.t()) + b, flops=2 * m * n * k,
        )  # fmt: skip
        yield Case(
            "product", "linear + gelu f16", f"{m}×{n}×{k}", lambda m=m, n=n, k=k: (normal(m, k, HALF), normal(n, k, HALF), normal(1, n, HALF)[0]),
            lambda x, w, b: kernels.linear(x, w, b, "gelu"), lambda x, w, b: F.gelu(F.linear(x, w, b)),
            lambda x, w, b: F.gelu(exact_product(x, w.t()) + b), flops=2 * m * n * k,
        )  # fmt: skip


def rows() -> Iterator[Case]:
    """Operations on rows."""
    for m, n, dtype in (
        (32768, 1024, SINGLE),
        (32768, 1024, BRAIN),
        (8192, 4096, BRAIN),
        (4096, 16384, BRAIN),
        (2048, 131072, BRAIN),
    ):

        def make(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return (normal(m, n, t),)

        shape, size = f"{m}×{n}", m * n * dtype.itemsize
        yield Case("rows", f"softmax {short(dtype)}", shape, make, kernels.softmax, lambda x: torch.softmax(x, -1),
                   lambda x: torch.softmax(x.double(), -1), moved=2 * size)  # fmt: skip
        if n > 32768:
            continue
        yield Case("rows", f"log_softmax {short(dtype)}", shape, make, kernels.log_softmax,
                   lambda x: torch.log_softmax(x, -1), lambda x: torch.log_softmax(x.double(), -1), moved=2 * size)  # fmt: skip

        def weighted(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return normal(m, n, t), normal(1, n, t)[0], normal(1, n, t)[0]

        yield Case("rows", f"rms_norm {short(dtype)}", shape, weighted, lambda x, w, b: kernels.rms_norm(x, w),
                   lambda x, w, b: F.rms_norm(x, x.shape[1:], w, 1e-6),
                   lambda x, w, b: F.rms_norm(x.double(), x.shape[1:], w.double(), 1e-6), moved=2 * size)  # fmt: skip
        yield Case("rows", f"layer_norm {short(dtype)}", shape, weighted, kernels.layer_norm,
                   lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
                   lambda x, w, b: F.layer_norm(x.double(), x.shape[1:], w.double(), b.double()), moved=2 * size)  # fmt: skip

        def labelled(m: int = m, n: int = n, t: torch.dtype = dtype) -> tuple[Any, ...]:
            return normal(m, n, t), torch.randint(0, n, (m,), device="cuda")

        yield Case("rows", f"cross_entropy {short(dtype)}", shape, labelled, kernels.cross_entropy,
                   lambda x, t: F.cross_entropy(x, t, reduction="none"),
                   lambda x, t: F.cross_entropy(x.double(), t, reduction="none"), moved=size)  # fmt: skip


def activations() -> Iterator[Case]:
    """The activations of KernelBench's first level, on 67 million elements, and a gated one."""
    pairs: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
        ("relu", kernels.relu, torch.relu),
        ("leaky_relu", kernels.leaky_relu, F.leaky_relu),
        ("sigmoid", kernels.sigmoid, torch.sigmoid),
        ("tanh", kernels.tanh, torch.tanh),
        ("swish", kernels.silu, lambda x: x * torch.sigmoid(x)),
        ("gelu", kernels.gelu, F.gelu),
        ("new_gelu", lambda x: kernels.gelu(x, "tanh"), _new_gelu),
        ("selu", kernels.selu, F.selu),
        ("hardsigmoid", kernels.hardsigmoid, F.hardsigmoid),
        ("softplus", kernels.softplus, F.softplus),
        ("softsign", kernels.softsign, lambda x: x / (1 + x.abs())),
        ("elu", kernels.elu, F.elu),
        ("hardtanh", kernels.hardtanh, F.hardtanh),
    ]
    m, n = 4096, 16384
    for dtype in (SINGLE, BRAIN):
        for name, ours, base in pairs:
            yield Case(
                "activations", f"{name} {short(dtype)}", f"{m}×{n}", lambda t=dtype: (normal(m, n, t),), ours, base,
                lambda x, base=base: base(x.double()), moved=2 * m * n * dtype.itemsize,
            )  # fmt: skip
        yield Case(
            "activations", f"silu × up {short(dtype)}", f"{m}×{n}", lambda t=dtype: (normal(m, n, t), normal(m, n, t)),
            kernels.silu_and_multiply, lambda g, u: F.silu(g) * u, lambda g, u: F.silu(g.double()) * u.double(),
            moved=3 * m * n * dtype.itemsize,
        )  # fmt: skip


def _new_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def exact_product(a: Any, b: Any) -> Any:
    """The product in f32, in full precision."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return torch.matmul(a.float(), b.float())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def normal(*shape: Any) -> torch.Tensor:
    """A tensor of normal numbers; its type stands last."""
    return torch.randn(shape[:-1], device="cuda").to(shape[-1])


def short(dtype: torch.dtype) -> str:
    """Our name of a type."""
    return {HALF: "f16", BRAIN: "bf16", SINGLE: "f32"}[dtype]
