"""The functions of `tilewright.kernels` on a GPU: odd sizes, extreme values, views, and under torch.compile."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    torch.manual_seed(0)
    return torch


def close(ours: Any, exact: Any, bits: int) -> None:
    """Within a few units of the last place of the type, at the size of the greatest value."""
    scale = float(exact.abs().max().clamp(min=1e-3))
    assert float((ours.double() - exact.double()).abs().max()) <= 4 * scale * 2.0**-bits


TYPES = {"float32": 18, "float16": 10, "bfloat16": 7}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1,), (7, 3), (5, 1023), (129, 1025), (3, 4, 77)], ids=str)
def test_elementwise(torch: Any, dtype: str, shape: tuple[int, ...]) -> None:
    from tilewright import kernels

    f = torch.nn.functional
    x = torch.cat([torch.linspace(-30, 30, 64), torch.randn(140_000)])[: int(torch.tensor(shape).prod())]
    x = x.reshape(shape).to(device="cuda", dtype=getattr(torch, dtype))
    for name, want in {
        "relu": torch.relu, "leaky_relu": f.leaky_relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": f.silu,
        "gelu": f.gelu, "selu": f.selu, "elu": f.elu, "hardsigmoid": f.hardsigmoid, "hardtanh": f.hardtanh,
        "softplus": f.softplus, "softsign": f.softsign,
    }.items():  # fmt: skip
        close(getattr(kernels, name)(x), want(x.double()), TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 5), (7, 257), (65, 1000), (9, 4097), (5, 16383), (3, 32768), (2, 3, 70)], ids=str
)
def test_rows(torch: Any, dtype: str, shape: tuple[int, ...]) -> None:
    from tilewright import kernels

    n, t = shape[-1], getattr(torch, dtype)
    x = (8 * torch.randn(shape, device="cuda")).to(t)
    w, b = (torch.randn(n, device="cuda").to(t) for _ in range(2))
    wide, f = x.double(), torch.nn.functional
    close(kernels.softmax(x), torch.softmax(wide, -1), TYPES[dtype])
    close(kernels.log_softmax(x), torch.log_softmax(wide, -1), TYPES[dtype])
    close(kernels.rms_norm(x, w), f.rms_norm(wide, (n,), w.double(), 1e-6), TYPES[dtype])
    close(kernels.layer_norm(x, w, b), f.layer_norm(wide, (n,), w.double(), b.double()), TYPES[dtype])
    target = torch.randint(0, n, shape[:-1], device="cuda")
    loss = f.cross_entropy(wide.view(-1, n), target.view(-1), reduction="none").view(target.shape)
    close(kernels.cross_entropy(x, target), loss, 18)


def test_long_rows_and_extremes(torch: Any) -> None:
    from tilewright import kernels

    x = torch.randn(3, 40_001, device="cuda")
    x[0, 17], x[1] = 3e38, -3e38
    close(kernels.softmax(x), torch.softmax(x.double(), -1), 18)
    close(kernels.log_softmax(x), torch.log_softmax(x.double(), -1), 18)
    close(kernels.softmax(x[:, :999].contiguous()), torch.softmax(x[:, :999].double(), -1), 18)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1),
        (64, 64, 64),
        (63, 65, 67),
        (129, 136, 200),
        (1, 4096, 4096),
        (1000, 1000, 1000),
        (300, 8, 8),
        (1001, 1003, 1005),
    ],
    ids=str,
)
def test_products(torch: Any, dtype: str, sizes: tuple[int, int, int]) -> None:
    from tilewright import kernels

    m, n, k = sizes
    a, b = (torch.randn(s, device="cuda").to(getattr(torch, dtype)) for s in ((m, k), (k, n)))
    exact = a.double() @ b.double()
    close(kernels.matmul(a, b), exact, TYPES[dtype])
    close(kernels.matmul(a, b.t().contiguous().t()), exact, TYPES[dtype])
    close(kernels.matmul(a.view(1, m, k), b)[0], exact, TYPES[dtype])
    bias = torch.randn(n, device="cuda").to(a.dtype)
    want = torch.nn.functional.gelu(exact + bias.double())
    close(kernels.linear(a, b.t().contiguous(), bias, "gelu"), want, TYPES[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 64, 64, 64), (2, 2, 130, 257, 128), (6, 2, 77, 77, 96), (3, 1, 200, 70, 40), (8, 1, 300, 515, 256)],
    ids=str,
)  # fmt: skip
def test_attention(torch: Any, dtype: str, sizes: tuple[int, int, int, int, int]) -> None:
    from tilewright import kernels

    heads, shared, m, n, d = sizes
    t = getattr(torch, dtype)
    q = torch.randn(2, heads, m, d, device="cuda").to(t)
    k, v = (torch.randn(2, shared, n, d, device="cuda").to(t) for _ in range(2))
    q[0, 0, 0], k[0, 0, n - 1] = 60.0, 60.0  # one score that is far above the others
    wide = [x.double().repeat_interleave(heads // shared, 1) for x in (k, v)]
    for causal in (False, True):
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), *wide, is_causal=causal)
        close(kernels.attention(q, k, v, causal), exact, TYPES[dtype])


def test_attention_in_a_window(torch: Any) -> None:
    from tilewright import kernels

    for length, size, window in ((1, 64, 1), (300, 64, 1), (515, 128, 100), (515, 96, 128), (700, 256, 5000)):
        q, k, v = (torch.randn(2, 3, length, size, device="cuda").half() for _ in range(3))
        behind = torch.arange(length, device="cuda")[:, None] - torch.arange(length, device="cuda")
        seen = (behind >= 0) & (behind < window)
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=seen)
        close(kernels.attention(q, k, v, causal=True, window=window), exact, 10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_in_parts_and_batches(torch: Any, dtype: str) -> None:
    from tilewright import kernels

    t = getattr(torch, dtype)
    for m, n, k in ((1, 64, 4096), (64, 1024, 16384), (200, 136, 5000), (256, 256, 12000)):
        a, b = (torch.randn(s, device="cuda").to(t) for s in ((m, k), (k, n)))
        close(kernels.matmul(a, b), a.double() @ b.double(), TYPES[dtype])
        close(kernels.matmul(a, b.t().contiguous().t()), a.double() @ b.double(), TYPES[dtype])
    a, b = (torch.randn(s, device="cuda").to(t) for s in ((7, 65, 71), (7, 71, 203)))
    close(kernels.bmm(a, b), a.double() @ b.double(), TYPES[dtype])
    close(kernels.bmm(a, b.mT.contiguous().mT), a.double() @ b.double(), TYPES[dtype])


@pytest.mark.parametrize("sizes", [(1, 16, 8), (65, 256, 72), (300, 4096, 1000), (2048, 512, 2048)], ids=str)
def test_quantized_products(torch: Any, sizes: tuple[int, int, int]) -> None:
    from tilewright import kernels

    m, k, n = sizes
    x, y = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    x[0], y[n - 1] = 0.0, 3e38
    for t in (torch.float8_e4m3fn, torch.int8):
        (a, sa), (b, sb) = kernels.quantize(x, t), kernels.quantize(y, t)
        exact = [q.double() * s.double()[:, None] for q, s in ((a, sa), (b, sb))]
        # A step at the end of the range: 32 of 448, or 1 of 127.
        worst = (exact[0] - x.double()).abs() / sa.double()[:, None]
        assert float(worst.max()) <= (16.1 if t == torch.float8_e4m3fn else 0.51)
        rows = slice(0, n - 1)  # the last one goes past bfloat16
        close(kernels.scaled_matmul(a, b, sa, sb)[:, rows], (exact[0] @ exact[1].T)[:, rows], 7)
    x, y = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    close(kernels.matmul_tf32(x, y), x.double() @ y.double(), 9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_experts(torch: Any, dtype: str) -> None:
    from tilewright import kernels

    t = getattr(torch, dtype)
    for ends in ([64, 128, 192, 256], [0, 0, 1000, 1000], [3, 3, 700, 701], [0, 0, 0, 1]):
        offsets = torch.tensor([0, *ends], dtype=torch.int32, device="cuda")
        x = torch.randn(ends[-1], 136, device="cuda").to(t)
        w, u = (torch.randn(4, 136, 200, device="cuda").to(t) for _ in range(2))
        parts = [x[a:b].double() for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        close(
            kernels.grouped_matmul(x, w, offsets),
            torch.cat([p @ e for p, e in zip(parts, w.double(), strict=True)]),
            TYPES[dtype],
        )
        gated = [
            torch.nn.functional.silu(p @ e) * (p @ f) for p, e, f in zip(parts, w.double(), u.double(), strict=True)
        ]
        close(kernels.grouped_gated_matmul(x, w, u, offsets), torch.cat(gated), TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 77), (2, 5000), (4, 33, 130)], ids=str)
def test_reductions(torch: Any, dtype: str, shape: tuple[int, ...]) -> None:
    from tilewright import kernels

    x = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
    for dim in range(-1, len(shape)):
        for name in ("sum", "mean", "amax", "amin"):
            close(getattr(kernels, name)(x, dim), getattr(torch, name)(x.double(), dim), TYPES[dtype])
    close(kernels.cumsum(x), x.double().cumsum(-1), TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
def test_group_norm_and_rotary(torch: Any, dtype: str) -> None:
    from tilewright import kernels

    t = getattr(torch, dtype)
    for shape, groups in (((2, 6, 5, 7), 3), ((1, 8, 50, 50), 2), ((2, 4), 2), ((3, 64, 1000), 1)):
        x = (5 + torch.randn(shape, device="cuda")).to(t)
        w, b = (torch.randn(shape[1], device="cuda").to(t) for _ in range(2))
        exact = torch.nn.functional.group_norm(x.double(), groups, w.double(), b.double())
        close(kernels.group_norm(x, groups, w, b), exact, min(TYPES[dtype], 16))
    for features in (2, 64, 80, 300):
        x = torch.randn(2, 3, 19, features, device="cuda").to(t)
        angle = torch.randn(19, features // 2, device="cuda")
        cos, sin, half = angle.cos(), angle.sin(), features // 2
        p, q = x.double()[..., :half], x.double()[..., half:]
        close(kernels.rotary(x, cos, sin), torch.cat((p * cos - q * sin, p * sin + q * cos), -1), TYPES[dtype])
        p, q = x.double()[..., 0::2], x.double()[..., 1::2]
        exact = torch.stack((p * cos - q * sin, p * sin + q * cos), -1).flatten(-2)
        close(kernels.rotary(x, cos, sin, neighbours=True), exact, TYPES[dtype])


def test_wrong_arguments(torch: Any) -> None:
    from tilewright import kernels

    x = torch.randn(4, 4, device="cuda")
    with pytest.raises(TypeError, match="float16 or of bfloat16"):
        kernels.matmul(x, x)
    with pytest.raises(ValueError, match="cannot multiply"):
        kernels.matmul(x.half(), x[:3].half())
    with pytest.raises(TypeError, match=r"not torch\.float64"):
        kernels.relu(x.double())
    with pytest.raises(TypeError, match="one type"):
        kernels.rms_norm(x, x[0].half())


def test_empty_tensors(torch: Any) -> None:
    from tilewright import kernels

    assert kernels.relu(torch.empty(0, 3, device="cuda")).shape == (0, 3)
    assert kernels.softmax(torch.empty(0, 3, device="cuda")).shape == (0, 3)
    empty = torch.empty(4, 0, device="cuda", dtype=torch.float16)
    assert bool((kernels.matmul(empty, empty.t()) == 0).all())


def test_torch_compile_calls_them(torch: Any) -> None:
    from tilewright import kernels

    def layer(x: Any, w: Any, g: Any) -> Any:
        return kernels.silu(kernels.matmul(kernels.rms_norm(x, g), w)) + 1

    x, w = (torch.randn(64, 64, device="cuda").half() for _ in range(2))
    g = torch.ones(64, device="cuda").half()
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(x, w, g), layer(x, w, g))
