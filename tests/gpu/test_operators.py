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
    close(kernels.softmax(x[:, :999].contiguous()), torch.softmax(x[:, :999].double(), -1), 18)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (64, 64, 64), (63, 65, 67), (129, 136, 200), (1, 4096, 4096), (1000, 1000, 1000), (300, 8, 8)],
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
    if k % 8 == 0 and n % 8 == 0:
        bias = torch.randn(n, device="cuda").to(a.dtype)
        want = torch.nn.functional.gelu(exact + bias.double())
        close(kernels.linear(a, b.t().contiguous(), bias, "gelu"), want, TYPES[dtype])


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
