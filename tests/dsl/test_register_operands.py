"""wgmma with operand A in registers: what it means, how it is printed, laid out and lowered."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import Violation, run
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.layout import DotOperand
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")

SCALED = f"""{HEADER}

@tw.kernel(target="sm_90a", warps=4)
def scaled(A: Global[f16, M, 64], B: Global[f16, 64, 64], C: Global[f32, M, 64]):
    b = tw.shared(f16, (64, 64))
    full = tw.barrier()
    with tw.role("compute", warps=4):
        for pm in tw.programs(tw.cdiv(M, 64)):
            tw.wait(full, 0)
            left = tw.load(A.tile((pm * 64, 0), (64, 64)), other=0.0) * 2.0
            one = tw.wgmma(left, b, tw.zeros(f32, (64, 64)))
            two = tw.wgmma(left, b, tw.zeros(f32, (64, 64)))
            tw.wgmma_wait(1)
            first = one * 2.0
            tw.wgmma_wait(0)
            tw.store(C.tile((pm * 64, 0), (64, 64)), first + two)
    with tw.role("load", warps=1, registers=24):
        for pm in tw.programs(tw.cdiv(M, 64)):
            tw.expect(full, 64 * 64 * 2)
            tw.tma_load(B.tile((0, 0), (64, 64)), b, full)
"""


def kernel(text: str = SCALED) -> ir.Kernel:
    module = read(text)
    assert not module.problems, module.problems
    return module.units[0].kernel


def inputs(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    a, b = (random.standard_normal((n, 64)).astype(np.float16) for n in (rows, 64))
    return {"A": a, "B": b, "C": np.zeros((rows, 64), np.float32)}


@pytest.mark.parametrize("rows", [1, 64, 65, 130])
def test_the_interpreter_multiplies_registers_by_shared_memory(rows: int) -> None:
    arrays = inputs(rows)
    run(expand(kernel()), list(arrays.values()))
    np.testing.assert_allclose(
        arrays["C"], 3 * (arrays["A"] * np.float16(2)).astype(np.float32) @ arrays["B"].astype(np.float32), atol=1e-2
    )


def test_the_interpreter_finds_an_operand_that_is_overwritten_in_flight() -> None:
    text = SCALED.replace(
        "            first = one * 2.0\n", "            left = left + 1.0\n            first = one * 2.0\n"
    )
    with pytest.raises(Violation, match="'left' is overwritten while a matrix instruction in flight reads"):
        run(expand(kernel(text)), list(inputs(64).values()))


def test_it_is_printed_as_it_is_read() -> None:
    explicit = expand(kernel())
    again = read(module_source(explicit)).units[0].kernel
    assert [type(s) for s in ir.walk(expand(again).body)] == [type(s) for s in ir.walk(explicit.body)]
    assert "tw.wgmma(left, b, " in module_source(explicit)


def test_the_operand_has_the_layout_of_the_instruction() -> None:
    explicit = expand(kernel())
    for stmt in ir.walk(explicit.body):
        if isinstance(stmt, ir.Wgmma):
            assert isinstance(stmt.a, ir.TileRef)
            tile, acc = explicit.types[stmt.a.name], explicit.types[stmt.dst]
            assert isinstance(tile, TileType) and isinstance(acc, TileType)
            assert isinstance(tile.layout, DotOperand) and tile.layout.parent == acc.layout


def test_a_wait_passes_on_what_is_complete_and_leaves_the_rest_to_the_next() -> None:
    source = lower(expand(kernel())).source
    waits = re.findall(r"(.*) = warpgroup_mma_wait\(num_outstanding=(\d)", source)
    assert [(names.split(), n) for names, n in waits] == [(["one"], "1"), (["two"], "0")]


@needs_triton
def test_it_compiles_to_a_wgmma_that_reads_registers() -> None:
    compiled = compile_lowered(lower(expand(kernel())))
    assert re.search(r"wgmma\.mma_async\S+ \{[^}]+\}, \{[^}]+\},", compiled.ptx)
