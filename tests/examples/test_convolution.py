"""The convolution example: proved, the numbers of its reference at odd sizes, copied into stages, compiled."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand, expand_policies
from tilewright.interpret import Schedule, random_arguments, run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source
from tilewright_analysis import check_unit
from tilewright_analysis.driver import Budget
from tilewright_reference.numpy_functions import NumpyFunctions

FILE = Path(__file__).parents[2] / "examples" / "convolution.py"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def written(**constants: int) -> ir.Kernel:
    source = FILE.read_text(encoding="utf-8")
    for name, value in constants.items():
        source = source.replace(f"{name}: Const = 1", f"{name}: Const = {value}")
    module = read(source)
    assert not module.all_problems, module.all_problems
    kernel = module.units[0].kernel
    assert kernel is not None
    return kernel


def test_every_obligation_is_proved() -> None:
    module = read(FILE.read_bytes())
    report = check_unit(module.units[0], budget=Budget(seconds=200))
    assert report.verdict == "proved", [f.message for f in report.findings]


@pytest.mark.parametrize(
    ("sizes", "constants"),
    [
        ((2, 5, 7, 40, 9, 3, 3), {}),
        ((1, 1, 1, 8, 1, 1, 2), {}),
        ((3, 9, 8, 72, 66, 2, 3), {"STRIDE": 2}),
        ((1, 9, 11, 16, 5, 3, 2), {"STRIDE": 2, "PAD": 0, "DILATION": 3}),
        ((1, 7, 7, 64, 65, 1, 1), {"PAD": 0}),
    ],
)
def test_it_computes_a_convolution(sizes: tuple[int, ...], constants: dict[str, int]) -> None:
    kernel = expand(written(**constants))
    chosen = {"STRIDE": 1, "PAD": 1, "DILATION": 1} | constants
    named = dict(zip("NHWCKRS", sizes, strict=True))
    for out, extent, taps in (("P", "H", "R"), ("Q", "W", "S")):
        reach = chosen["DILATION"] * (named[taps] - 1) + 1
        named[out] = (named[extent] + 2 * chosen["PAD"] - reach) // chosen["STRIDE"] + 1
    x, w, y = random_arguments(kernel, named, 1)
    run(kernel, [x, w, y], schedule=Schedule(1, adversarial=True))
    assert isinstance(x, np.ndarray) and isinstance(w, np.ndarray)
    options = {"stride": chosen["STRIDE"], "padding": chosen["PAD"], "dilation": chosen["DILATION"]}
    moved = (x.astype(np.float64).swapaxes(1, 3), w.astype(np.float64).swapaxes(1, 3))
    np.testing.assert_allclose(y, NumpyFunctions().call("conv2d", moved, options).swapaxes(1, 3), rtol=2**-10)


def test_gathers_go_into_the_stages() -> None:
    explicit = expand_policies(written())
    copies = [s for s in ir.walk(explicit.body) if isinstance(s, ir.CpGather)]
    assert {s.tensor for s in copies} == {"X", "WEIGHTS"} and len(copies) == 6
    assert not [s for s in ir.walk(explicit.body) if isinstance(s, ir.Gather)]
    again = read(module_source(explicit))
    assert not again.all_problems, again.all_problems


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_copies_are_16_bytes_wide(target: str) -> None:
    compiled = compile_lowered(lower(expand(replace(written(), target=target))))
    lines = [line for line in compiled.ptx.splitlines() if "cp.async.c" in line and "commit" not in line]
    assert lines and all(", 0x10," in line for line in lines)


@needs_triton
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_it_compiles_for_amd(target: str) -> None:
    compiled = compile_lowered(lower(expand(replace(written(), target=target))))
    assert compiled.registers > 0
