"""Examples of row, elementwise and shape operations: proved, the numbers of NumPy at even and odd sizes, compiled."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import Schedule, run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright_analysis import check_unit

FOLDER = Path(__file__).parents[2] / "examples"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")

Inputs = list[Any]


@dataclass(frozen=True)
class Example:
    """A kernel of an example file, arrays for its inputs at given sizes, and what NumPy makes of them."""

    file: str
    kernel: str
    inputs: Callable[[np.random.Generator, tuple[int, ...]], Inputs]
    want: Callable[..., tuple[Any, ...]]
    sizes: tuple[tuple[int, ...], ...] = ((4, 1024), (3, 257), (2, 8))


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def layer_norm(x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    return ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b,)


def cross_entropy(x: Any, t: Any) -> tuple[Any, ...]:
    wide = x.astype(np.float64)
    return (np.log(np.exp(wide).sum(1)) - wide[np.arange(len(t)), t],)


def rotary(x: Any, cos: Any, sin: Any) -> tuple[Any, ...]:
    turned = (x[..., 0] + 1j * x[..., 1]) * (cos + 1j * sin)
    return (np.stack([turned.real, turned.imag], -1),)


def quantize(x: Any) -> tuple[Any, ...]:
    scale = np.maximum(abs(x).max(1), np.float32(1e-30)) / np.float32(127)
    return np.rint(x / scale[:, None]).astype(np.int8), scale


def gelu(x: Any) -> tuple[Any, ...]:
    return (np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(float)]),)


def gelu_tanh(x: Any) -> tuple[Any, ...]:
    return (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),)


def routing(x: Any) -> tuple[Any, ...]:
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -np.sort(-p, 1)[:, :4], np.argsort(-p, 1, kind="stable")[:, :4].astype(np.int32)


VECTORS = ((2048,), (1025,), (7,))
EXAMPLES = [
    Example("rms_norm", "rms_norm", lambda r, s: [normal(r, *s), normal(r, s[1])],
            lambda x, w: (x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w,)),
    Example("layer_norm", "layer_norm", lambda r, s: [normal(r, *s) + 3, normal(r, s[1]), normal(r, s[1])], layer_norm),
    Example("cross_entropy", "cross_entropy",
            lambda r, s: [normal(r, *s), r.integers(0, s[1], s[0]).astype(np.int32)], cross_entropy),
    Example("rotary", "rotary", lambda r, s: [normal(r, *s, 2), normal(r, *s), normal(r, *s)], rotary,
            ((32, 128), (17, 65), (1, 1))),
    Example("quantization", "quantize", lambda r, s: [normal(r, *s) * 10], quantize),
    Example("quantization", "dequantize", lambda r, s: [r.integers(-127, 128, s).astype(np.int8), abs(normal(r, s[0]))],
            lambda q, s: (q * s[:, None],)),
    Example("quantization", "unpack", lambda r, s: [r.integers(0, 256, s).astype(np.uint8)],
            lambda p: (np.stack([p & 15, p >> 4], -1).astype(np.float32) - 8,)),
    Example("cumulative_sum", "cumulative_sum", lambda r, s: [normal(r, *s)], lambda x: (np.cumsum(x, 1),)),
    Example("cumulative_sum", "cumulative_sum_from_the_end", lambda r, s: [normal(r, *s)],
            lambda x: (np.cumsum(x[:, ::-1], 1)[:, ::-1],)),
    Example("routing", "routing", lambda r, s: [normal(r, *s)], routing, ((32, 64), (17, 33), (1, 4))),
    Example("activations", "gelu", lambda r, s: [normal(r, *s)], gelu, VECTORS),
    Example("activations", "gelu_tanh", lambda r, s: [normal(r, *s)], gelu_tanh, VECTORS),
    Example("activations", "swiglu", lambda r, s: [normal(r, *s), normal(r, *s)],
            lambda g, u: (g / (1 + np.exp(-g)) * u,), VECTORS),
]  # fmt: skip
by_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.kernel)
UNITS = {f: {u.name: u for u in read((FOLDER / f"{f}.py").read_bytes()).units} for f in {e.file for e in EXAMPLES}}


def test_every_kernel_of_these_files_has_its_numbers_checked() -> None:
    assert {(f, name) for f, units in UNITS.items() for name in units} == {(e.file, e.kernel) for e in EXAMPLES}


@by_example
def test_every_obligation_is_proved(example: Example) -> None:
    report = check_unit(UNITS[example.file][example.kernel])
    assert report.verdict == "proved", [f.message for f in report.findings]


@by_example
def test_numbers_are_those_of_numpy(example: Example) -> None:
    unit = UNITS[example.file][example.kernel]
    assert unit.kernel is not None
    kernel = expand(unit.kernel)
    for sizes in example.sizes:
        given = [np.ascontiguousarray(a, a.dtype if a.dtype.kind != "f" else np.float32)
                 for a in example.inputs(np.random.default_rng(sum(sizes)), sizes)]  # fmt: skip
        wanted = dict(
            zip([p.name for p in kernel.params if p.name not in _inputs(kernel)], example.want(*given), strict=True)
        )
        made = {n: np.zeros(w.shape, w.dtype if w.dtype.kind != "f" else np.float32) for n, w in wanted.items()}
        left = iter(given)
        run(
            kernel,
            [made[p.name] if p.name in made else next(left) for p in kernel.params],
            schedule=Schedule(tags=True),
        )
        for name, want in wanted.items():
            np.testing.assert_allclose(made[name], want, rtol=2e-4, atol=2e-5, err_msg=f"{name} at {sizes}")


def _inputs(kernel: Any) -> set[str]:
    return {s.view.tensor for s in ir.walk(kernel.body) if isinstance(s, ir.Load)}


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@by_example
def test_generated_code_compiles_without_spilling(example: Example, target: str) -> None:
    unit = UNITS[example.file][example.kernel].with_consts(target=target)
    assert unit.kernel is not None
    assert compile_lowered(lower(expand(unit.kernel))).spill_stores == 0
