"""`roles="single"` for targets without cp.async: what it expands into, that it reads back, and that it computes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.frontend import parse_module
from tilewright.interpret import Schedule, run
from tilewright.ir import nodes as ir
from tilewright.printer import kernel_source, module_source
from tilewright.source import SourceText

EXAMPLES = Path(__file__).parents[3] / "examples"
AMD = ("gfx942", "gfx950")

BACKWARDS = """
@tw.kernel(target="gfx942", warps=4)
def backwards(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    for pm, pn in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 16)):
        acc = tw.zeros(f32, (16, 16))
        for k in tw.pipeline(0, K // 16 * 16, 16, stages=4):
            a = tw.load(A.tile((pm * 16, K // 16 * 16 - 16 - k), (16, 16)))
            b = tw.load(B.tile((K // 16 * 16 - 16 - k, pn * 16), (16, 16)))
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 16, pn * 16), (16, 16)), acc)
"""


def example(name: str, target: str, **consts: int) -> ir.Kernel:
    path = EXAMPLES / "gemm.py"
    unit = parse_module(SourceText(path.read_bytes(), str(path))).unit(name)
    assert unit is not None
    found = unit.with_consts(target, **consts).kernel
    assert found is not None
    return found


def kernel(text: str) -> ir.Kernel:
    module = read(HEADER + text)
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


@pytest.mark.parametrize("target", AMD)
def test_a_tile_is_stored_synced_and_read_while_the_next_is_loaded(target: str) -> None:
    explicit = expand_policies(example("gemm_sm80", target))
    (loop,) = (s for s in ir.walk(explicit.body) if isinstance(s, ir.For))
    assert [type(s) for s in loop.body] == [
        ir.SharedStore, ir.SharedStore, ir.Sync, ir.Load, ir.Load, ir.SharedLoad, ir.SharedLoad, ir.Mma,
    ]  # fmt: skip
    assert not [s for s in ir.walk(explicit.body) if isinstance(s, ir.CpAsync | ir.CpWait | ir.CpCommit)]
    assert {s.instr for s in ir.walk(explicit.body) if isinstance(s, ir.Mma)} == {"mfma"}


def test_it_prints_and_reads_back() -> None:
    explicit = expand_policies(example("gemm_sm80", "gfx942"))
    module = read(module_source(explicit))
    assert not module.all_problems
    again = module.units[0].kernel
    assert again is not None and again.target == "gfx942"
    plain = explicit.with_body(ir.rewrite(explicit.body, lambda s: (replace(s, note=""),)))
    assert kernel_source(again) == kernel_source(plain)
    kinds = [type(s) for s in ir.walk(explicit.body)]
    assert [type(s) for s in ir.walk(expand_policies(again).body)] == kinds


@pytest.mark.parametrize("shape", [(16, 16, 16), (33, 24, 8), (17, 40, 72), (1, 8, 104)], ids=str)
def test_it_computes_the_product(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    random = np.random.default_rng(3)
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    explicit = expand(example("gemm_sm80", "gfx942", BM=16, BN=16, BK=16))
    report = run(explicit, [a, b, c], schedule=Schedule(5, adversarial=True, tags=True))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-3)
    assert (report.write_counts["C"] == 1).all()


@pytest.mark.parametrize("k", [5, 16, 33, 64])
def test_loads_that_move_backwards_are_guarded(k: int) -> None:
    """Unguarded, the load behind the last iteration would begin at a negative row; with K = 5 there is no iteration."""
    written = kernel(BACKWARDS)
    assert "if k + 16 < K // 16 * 16:" in kernel_source(expand_policies(written))
    random = np.random.default_rng(4)
    a = random.standard_normal((20, k)).astype(np.float16)
    b = random.standard_normal((k, 30)).astype(np.float16)
    c = np.full((20, 30), np.nan, np.float32)
    run(expand(written), [a, b, c], schedule=Schedule(2, adversarial=True))
    whole = k // 16 * 16
    want = a[:, :whole].astype(np.float32) @ b[:whole].astype(np.float32)
    np.testing.assert_allclose(c, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("target", AMD)
def test_what_needs_barriers_or_tma_is_refused(target: str) -> None:
    with pytest.raises(ExpansionError, match=f"bulk copies.*{target}.*single") as error:
        expand_policies(example("gemm", target))
    assert error.value.problem.code == "TW009"
    store = """
@tw.kernel
def k(A: Global[f16, M, K]):
    tw.assume(K % 8 == 0)
    for i, j in tw.tiles(tw.cdiv(M, 64), tw.cdiv(K, 64)):
        tw.store(A.tile((i * 64, j * 64), (64, 64)), tw.zeros(f16, (64, 64)), via="tma")
"""
    unit = read(HEADER + store).units[0].with_consts(target)
    assert unit.kernel is not None
    with pytest.raises(ExpansionError, match="no TMA"):
        expand_policies(unit.kernel)
