"""Orders of the grid, and of what an iteration of a pipeline does."""

import importlib.util

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand, expand_policies
from tilewright.frontend import KernelUnit
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import kernel_source, module_source
from tilewright_analysis import check_unit

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


PIPELINE = """
@tw.kernel(target="{target}", warps=4)
def product(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 32), tw.cdiv(N, 32), persistent=True):
        acc = tw.zeros(f32, (32, 32))
        for k in tw.pipeline(0, K, 32, stages={stages}, {options}):
            a = tw.load(A.tile((pm * 32, k), (32, 32)), other=0.0)
            b = tw.load(B.tile((k, pn * 32), (32, 32)), other=0.0)
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 32, pn * 32), (32, 32)), acc)
"""


def product(options: str, target: str = "sm_80", stages: int = 3) -> KernelUnit:
    unit = read(HEADER + PIPELINE.format(options=options, target=target, stages=stages)).unit("product")
    assert unit is not None
    return unit


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("stages", [2, 3])
def test_loads_may_come_after_what_an_iteration_computes(target: str, stages: int) -> None:
    unit = product('order="compute"', target, stages)
    assert unit.kernel is not None, unit.problems
    assert check_unit(unit).verdict == "proved"
    explicit = expand(unit.kernel)
    (loop,) = (s for s in ir.walk(explicit.body) if isinstance(s, ir.For))
    kinds = [type(s) for s in loop.body]
    fetch = ir.CpCommit if target == "sm_80" else ir.Load
    assert kinds.index(ir.Mma) < kinds.index(fetch)
    assert 'order="compute"' in kernel_source(unit.kernel)
    rng = np.random.default_rng(1)
    for m, n, k in ((33, 40, 72), (1, 8, 8), (64, 64, 32)):
        a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
        c = np.full((m, n), np.nan, np.float32)
        run(explicit, [a, b, c])
        np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-3)


def test_split_roles_have_no_order() -> None:
    assert any('for roles="single"' in p.message for p in product('roles="split", order="compute"').problems)
    assert any("whichever comes first" in p.message for p in product('order="store"').problems)
