"""Random kernels of `gpu.sources` on the CPU: read, interpreted, printed and read back; a few are compiled."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from gpu.sources import Source
from reading import read
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def explicit(source: Source) -> ir.Kernel:
    (unit,) = read(source.text).units
    assert unit.kernel is not None, "\n".join([*(p.message for p in unit.problems), source.text])
    return expand(unit.kernel)


@pytest.mark.parametrize("seed", range(60))
def test_they_run_and_read_back(seed: int) -> None:
    source = Source(seed)
    kernel, arguments = explicit(source), source.arguments()
    run(kernel, arguments)
    assert np.isfinite(arguments[7]).all() and (not source.rough or np.isfinite(arguments[8]).all())
    (unit,) = read(module_source(kernel)).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    again = source.arguments()
    run(expand(unit.kernel), again)
    for one, other in zip(arguments[7:], again[7:], strict=True):
        np.testing.assert_array_equal(one, other)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_they_compile(seed: int) -> None:
    source = Source(seed, ("sm_80", "sm_90a", "gfx942")[seed % 3])
    assert compile_lowered(lower(explicit(source))).num_warps == source.random_warps
