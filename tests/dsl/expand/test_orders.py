"""Orders of the grid: dies."""

import importlib.util

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand, expand_policies
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import kernel_source, module_source

DOUBLE = """
@tw.kernel(target="{target}", warps=4)
def double(X: Global[f32, M, N], Y: Global[f32, M, N]):
    for pm, pn in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 16), order={order}, persistent={persistent}):
        x = tw.load(X.tile((pm * 16, pn * 16), (16, 16)), other=0.0)
        tw.store(Y.tile((pm * 16, pn * 16), (16, 16)), x * 2.0)
"""
ORDERS = (
    "tw.column_major()",
    "tw.xcd(8, tw.column_major())",
    "tw.xcd(8)",
    "tw.xcd(8, tw.grouped(2))",
    "tw.xcd(3, tw.row_major())",
)
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def kernel(order: str = "tw.xcd(8)", target: str = "gfx942", persistent: bool = False) -> ir.Kernel:
    text = HEADER + DOUBLE.format(order=order, target=target, persistent=persistent)
    unit = read(text).unit("double")
    assert unit is not None and unit.kernel is not None, unit
    return unit.kernel


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (17, 40), (100, 33), (130, 130)], ids=str)
def test_every_tile_is_taken_once(order: str, persistent: bool, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y = np.full_like(x, np.nan)
    run(expand(kernel(order, persistent=persistent)), [x, y])
    np.testing.assert_array_equal(y, x * 2)


@pytest.mark.parametrize("order", ORDERS)
def test_policy_and_expansion_read_back(order: str) -> None:
    written = kernel(order)
    assert order.removesuffix(", tw.row_major())") in kernel_source(written)
    for one in (written, expand_policies(written)):
        again = read(module_source(one)).unit("double")
        assert again is not None and again.kernel is not None
        assert expand_policies(again.kernel).body == expand_policies(one).body


def test_other_gpus_take_the_tiles_in_the_inner_order() -> None:
    assert expand_policies(kernel("tw.xcd(8, tw.grouped(2))", "sm_80")).body == (
        expand_policies(kernel("tw.grouped(2)", "sm_80")).body
    )


@needs_triton
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_it_compiles(target: str) -> None:
    compiled = compile_lowered(lower(expand(kernel("tw.xcd(8, tw.grouped(2))", target))))
    assert compiled.target == target and "global_store" in compiled.amdgcn


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("tw.xcd(0)", "1 to 64 dies, not 0"),
        ("tw.xcd(8, tw.xcd(2))", "within a die the order is"),
        ("tw.xcd(8, 3)", "within a die the order is"),
    ],
)
def test_wrong_orders_are_refused(order: str, message: str) -> None:
    unit = read(HEADER + DOUBLE.format(order=order, target="gfx942", persistent=False)).unit("double")
    assert unit is not None
    assert any(p.code == "TW009" and message in p.message for p in unit.problems), unit.problems
