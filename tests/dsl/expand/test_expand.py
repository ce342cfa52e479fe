"""Expansion: what policies become, that it prints and reads back, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.frontend import KernelUnit, parse_module
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.printer import kernel_source, module_source
from tilewright.source import SourceText

EXAMPLES = Path(__file__).parents[3] / "examples"


def example_units() -> list[KernelUnit]:
    units: list[KernelUnit] = []
    for path in sorted(EXAMPLES.glob("*.py")):
        units += parse_module(SourceText(path.read_bytes(), str(path))).units
    return units


def kernel(text: str) -> ir.Kernel:
    module = read(HEADER + text)
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


@pytest.mark.parametrize("unit", example_units(), ids=lambda u: u.name)
def test_expansions_are_explicit_and_read_back(unit):
    explicit = expand_policies(unit.kernel)
    assert ir.is_explicit(explicit)
    printed = module_source(explicit)
    module = read(printed)
    assert not module.all_problems, (module.all_problems, printed)
    again = module.units[0].kernel
    assert again is not None
    assert kernel_source(again) == kernel_source(without_notes(explicit))
    assert again.params == explicit.params
    assert [a.expr for a in again.assumptions] == [a.expr for a in explicit.assumptions]


def without_notes(k: ir.Kernel) -> ir.Kernel:
    from dataclasses import replace

    return k.with_body(ir.rewrite(k.body, lambda s: (replace(s, note=""),)))


@pytest.mark.parametrize("unit", example_units(), ids=lambda u: u.name)
def test_policies_print_and_read_back(unit):
    module = read(module_source(unit.kernel))
    assert not module.all_problems
    assert kernel_source(module.units[0].kernel) == kernel_source(unit.kernel)


@pytest.mark.parametrize("unit", example_units(), ids=lambda u: u.name)
def test_every_tile_gets_a_layout_with_a_reason(unit):
    from tilewright.ir.types import TileType

    explicit = expand(unit.kernel)
    for name, type_ in explicit.types.items():
        if isinstance(type_, TileType):
            assert type_.layout is not None and type_.why, name


def test_expanding_twice_changes_nothing():
    for unit in example_units():
        once = expand_policies(unit.kernel)
        assert expand_policies(once).body == once.body


def test_the_compute_role_releases_the_last_stage_only_if_there_was_one():
    unit = next(u for u in example_units() if u.name == "gemm")
    text = kernel_source(expand_policies(unit.kernel))
    assert "if 0 < K:\n                tw.arrive(empty[(it + 2) % 3])" in text.replace("  # its stage is free", "")


def test_a_pipeline_that_also_uses_its_tiles_directly_keeps_nothing_in_flight():
    text = """
@tw.kernel(target="sm_90a", warps=4)
def k(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        extra = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, K, 64, stages=2, roles="split"):
            a = tw.load(A.tile((pm * 64, k), (64, 64)), via="tma")
            b = tw.load(B.tile((k, pn * 64), (64, 64)), via="tma")
            acc = tw.mma(a, b, acc)
            extra = extra + a.to(f32)
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc + extra)
"""
    printed = kernel_source(expand_policies(kernel(text)))
    assert "tw.wgmma_wait(1)" not in printed
    assert printed.index("tw.wgmma_wait(0)") < printed.index("tw.arrive(")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (
            '    x = tw.load(A.tile((0, 0), (64, 64)), via="tma")\n    tw.store(A.tile((0, 0), (64, 64)), x)',
            "TW009",
            "tw.pipeline",
        ),
        (
            "    for k in tw.pipeline(0, K, 64):\n        j = k * 2\n        for i in range(K):\n            j = j + 1\n"
            "        x = tw.load(A.tile((0, j), (64, 64)))\n        tw.store(A.tile((0, k), (64, 64)), x)",
            "TW005",
            "depends on 'j'",
        ),
        (
            "    for k in tw.pipeline(0, K, 64):\n        tw.store(A.tile((0, k), (64, 64)), tw.zeros(f16, (64, 64)))",
            "TW005",
            "can run ahead",
        ),
        (
            '    for k in tw.pipeline(0, K, 64, roles="split"):\n        a = tw.load(A.tile((0, k), (64, 64)))\n'
            "        c = tw.mma(a, a.to(f32).to(f16), tw.zeros(f32, (64, 64)))\n        tw.store(A.tile((0, k), (64, 64)), c.to(f16))",
            "TW005",
            "operand b",
        ),
        (
            "    for k in tw.pipeline(0, K, 64):\n        x = tw.load(A.tile((0, k), (64, 64)), other=1.0)\n"
            "        tw.store(A.tile((0, k), (64, 64)), x)",
            "TW009",
            "other=1",
        ),
    ],
)
def test_impossible_policies_are_refused_with_the_reason(body, code, words):
    with pytest.raises(ExpansionError) as error:
        expand_policies(kernel(f"\n@tw.kernel\ndef k(A: Global[f16, M, K]):\n{body}\n"))
    assert error.value.problem.code == code and words in str(error.value)


def test_a_load_placed_by_a_carried_counter_is_refused():
    text = """
@tw.kernel
def k(A: Global[f16, M, K], B: Global[f16, M, K]):
    j = 0
    for k in tw.pipeline(0, K, 64):
        j = j + 64
        x = tw.load(A.tile((0, j), (64, 64)))
        tw.store(B.tile((0, k), (64, 64)), x)
"""
    with pytest.raises(ExpansionError, match="depends on 'j'"):
        expand_policies(kernel(text))


PIPELINE = """
@tw.kernel(target="sm_80", warps=4)
def k(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        a = tw.zeros(f16, (64, 16))
        for k in tw.pipeline(0, K, 32, stages=2):
{body}
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc)
"""
HALF = """a = tw.load(A.tile((pm * 64, k + {at}), (64, 16)))
b = tw.load(B.tile((k + {at}, pn * 64), (16, 64)))
acc = tw.mma(a, b, acc)"""


def pipeline(body: str) -> str:
    return HEADER + PIPELINE.format(body="\n".join("            " + line for line in body.splitlines()))


@pytest.mark.parametrize("roles", ["single", "split"])
def test_a_name_loaded_twice_in_an_iteration_keeps_both_tiles(roles):
    text = pipeline(HALF.format(at=0) + "\n" + HALF.format(at=16))
    if roles == "split":
        text = text.replace("stages=2", 'stages=2, roles="split"').replace("sm_80", "sm_90a")
    unit = read(text).units[0]
    assert unit.kernel is not None
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float16)
    c = np.zeros((64, 64), np.float32)
    run(expand(unit.kernel), [a, b, c])
    assert np.abs(c - a.astype(np.float32) @ b.astype(np.float32)).max() < 1e-3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("b = tw.load(B.tile((k, pn * 64), (16, 64)))\nacc = tw.mma(a, b, acc)\n"
         "a = tw.load(A.tile((pm * 64, k), (64, 16)))", "'a' is used in this pipeline before it is loaded"),
        (HALF.format(at=0) + "\nif k < 64:\n    a = a + a\n" + HALF.format(at=16), "changed in a branch or loop"),
    ],
    ids=["carried over", "in a branch"],
)  # fmt: skip
def test_a_load_that_the_order_of_an_iteration_matters_to_is_refused(body, words):
    unit = read(pipeline(body)).units[0]
    assert unit.kernel is not None
    with pytest.raises(ExpansionError, match=words):
        expand(unit.kernel)
