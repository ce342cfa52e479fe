"""`roles="split"` on sm_100a: three roles, tensor memory, and what the interpreter says of it and of faults in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.frontend import parse_module
from tilewright.interpret import Schedule, Violation, replay, run
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TensorMemoryType, TileType
from tilewright.layout import Blocked
from tilewright.printer import kernel_source, module_source
from tilewright.source import SourceText

GEMM = Path(__file__).parents[3] / "examples" / "gemm.py"
SMALL = {"BN": 32, "BK": 16, "STAGES": 2}


def gemm(**consts: int) -> ir.Kernel:
    unit = parse_module(SourceText(GEMM.read_bytes(), str(GEMM))).unit("gemm")
    assert unit is not None
    kernel = unit.with_consts("sm_100a", **consts).kernel
    assert kernel is not None
    return kernel


def statements(kernel: ir.Kernel, role: str, kind: type[ir.Stmt]) -> list[ir.Stmt]:
    (roles,) = (s for s in kernel.body if isinstance(s, ir.Roles))
    body = next(r.body for r in roles.roles if r.name == role)
    return [s for s in ir.walk(body) if isinstance(s, kind)]


def test_one_role_loads_one_multiplies_and_one_stores() -> None:
    explicit = expand_policies(gemm())
    assert explicit.types["acc_ring"] == TensorMemoryType(explicit.types["acc"].dtype, (128, 256), 2, True)
    assert len(statements(explicit, "load", ir.TmaLoad)) == 2
    assert len(statements(explicit, "multiply", ir.Tcgen05)) == 1
    assert len(statements(explicit, "multiply", ir.Tcgen05Commit)) == 1
    assert len(statements(explicit, "compute", ir.TensorLoad)) == 1
    assert not [s for s in ir.walk(explicit.body) if isinstance(s, ir.Wgmma | ir.Mma)]


def test_two_wide_accumulators_share_the_columns() -> None:
    text = GEMM.read_text(encoding="utf-8")
    two = text.replace(
        "            acc = tw.mma(a, b, acc)\n        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via",
        "            acc = tw.mma(a, b, acc)\n"
        "        more = tw.zeros(f32, (BM, BN))\n"
        '        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):\n'
        "            a2 = tw.load(A.tile((pm * BM, k), (BM, BK)))\n"
        "            b2 = tw.load(B.tile((k, pn * BN), (BK, BN)))\n"
        "            more = tw.mma(a2, b2, more)\n"
        "        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), (acc + more).to(f16), via",
    )
    unit = parse_module(SourceText.of(two)).unit("gemm")
    assert unit is not None
    kernel = unit.with_consts("sm_100a", STAGES=2).kernel
    assert kernel is not None
    memory = [t for t in expand_policies(kernel).types.values() if isinstance(t, TensorMemoryType)]
    assert [t.stages for t in memory] == [1, 1] and sum(t.columns for t in memory) == 512


def test_it_prints_and_reads_back() -> None:
    explicit = expand_policies(gemm())
    module = read(module_source(explicit))
    assert not module.all_problems
    again = module.units[0].kernel
    assert again is not None
    plain = explicit.with_body(ir.rewrite(explicit.body, lambda s: (replace(s, note=""),)))
    assert kernel_source(again) == kernel_source(plain)


def test_a_load_from_tensor_memory_has_the_layout_of_the_hardware() -> None:
    tile = expand(gemm()).types["acc"]
    assert isinstance(tile, TileType)
    assert tile.layout == Blocked((1, 128), (32, 1), (4, 2), (0, 1)) and "tensor memory" in tile.why


def arrays(m: int, n: int, k: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    return [a.astype(np.float16), b.astype(np.float16), np.full((m, n), np.nan, np.float16)]


SCHEDULES = [Schedule(), Schedule(happens_before=True, tags=True)]
SCHEDULES += [Schedule(seed, adversarial=True, tags=True) for seed in range(4)]


@pytest.mark.parametrize("programs", [1, 2])
@pytest.mark.parametrize("shape", [(128, 32, 16), (200, 72, 40), (300, 40, 8)], ids=str)
def test_it_computes_the_product_under_every_schedule(shape: tuple[int, int, int], programs: int) -> None:
    explicit = expand(gemm(**SMALL))
    for schedule in SCHEDULES:
        a, b, c = arrays(*shape)
        report = run(explicit, [a, b, c], schedule=schedule, programs=programs)
        np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-3)
        assert (report.write_counts["C"] == 1).all()


def drop(test: Callable[[ir.Stmt], bool]) -> Callable[[ir.Stmt], ir.Block | None]:
    return lambda s: () if test(s) else None


def waits_for(barrier: str) -> Callable[[ir.Stmt], bool]:
    return lambda s: isinstance(s, ir.BarrierWait) and s.bar.barrier == barrier


def early_free(stmt: ir.Stmt) -> ir.Block | None:
    """Free the stage when the product is issued, not when it is complete."""
    if isinstance(stmt, ir.Tcgen05):
        return (replace(stmt, bar=ir.BarRef("spare", Int(0))), ir.BarrierArrive(stmt.bar))
    return None


def always_add(stmt: ir.Stmt) -> ir.Block | None:
    return (replace(stmt, accumulate=Int(1)),) if isinstance(stmt, ir.Tcgen05) else None


def never_add(stmt: ir.Stmt) -> ir.Block | None:
    return (replace(stmt, accumulate=Int(0)),) if isinstance(stmt, ir.Tcgen05) else None


def other_accumulator(stmt: ir.Stmt) -> ir.Block | None:
    if isinstance(stmt, ir.TensorLoad):
        return (replace(stmt, src=ir.BufRef(stmt.src.buffer, ex.mod(ex.add(stmt.src.stage, Int(1)), Int(2)))),)
    return None


FAULTS = [
    ("read before it is complete", drop(waits_for("done")), {"race", "uninitialized"}),
    ("overwritten while it is read", drop(waits_for("drained")), {"race"}),
    ("multiplied before it has landed", drop(waits_for("full")), {"race", "uninitialized", "phase"}),
    ("added to what was never written", always_add, {"uninitialized"}),
    ("each product replaces the sum", never_add, {"completeness"}),
    ("the other accumulator", other_accumulator, {"race", "uninitialized"}),
    ("no commit", drop(lambda s: isinstance(s, ir.Tcgen05Commit)), {"deadlock"}),
]


@pytest.mark.parametrize(("change", "kinds"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults_are_violations(change: Callable[[ir.Stmt], ir.Block | None], kinds: set[str]) -> None:
    explicit = expand(gemm(**SMALL))
    faulty = explicit.with_body(ir.rewrite(explicit.body, change))
    assert faulty.body != explicit.body
    found = replay(faulty, {"M": 300, "N": 72, "K": 40}, tries=20)
    assert isinstance(found, Violation) and found.kind in kinds, found
    assert replay(explicit, {"M": 300, "N": 72, "K": 40}, tries=6) is None


PIPELINE = """
@tw.kernel(target="sm_100a", warps=4)
def k(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    for pm, pn in tw.tiles(tw.cdiv(M, {rows}), tw.cdiv(N, 64)):
        {before}
        for k in tw.pipeline({lo}, K, 64, stages=2, roles="split"):
            a = tw.load(A.tile((pm * {rows}, k), ({rows}, 64)))
            b = tw.load(B.tile((k, pn * 64), (64, 64)))
            acc = tw.mma(a, b, acc)
            {inside}
        tw.store(C.tile((pm * {rows}, pn * 64), ({rows}, 64)), acc)
"""
ZEROS = "acc = tw.zeros(f32, ({rows}, 64))"


def pipeline(rows: int = 128, before: str = ZEROS, inside: str = "", lo: str = "0") -> ir.Kernel:
    module = read(HEADER + PIPELINE.format(rows=rows, before=before.format(rows=rows), inside=inside, lo=lo))
    kernel = module.units[0].kernel
    assert kernel is not None, module.all_problems
    return kernel


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (pipeline(rows=32), "64 or 128 rows and 32 to 256 columns here, not 32×64"),
        (pipeline(before="acc = tw.full(f32, (128, 64), 1.0)"), "starts from zeros"),
        (pipeline(inside="acc = acc * 2.0"), "one product of them"),
    ],
    ids=["rows", "start", "arithmetic"],
)
def test_what_tensor_memory_cannot_do_is_refused(kernel: ir.Kernel, message: str) -> None:
    with pytest.raises(ExpansionError, match=message):
        expand_policies(kernel)


def test_a_sum_over_several_pipelines_is_refused() -> None:
    """Each pipeline begins a new sum in tensor memory, so one that goes on adding would be wrong."""
    text = PIPELINE.format(rows=128, before=ZEROS.format(rows=128), inside="", lo="0")
    head, loop = text.split("        for k in", 1)
    body, store = loop.split("        tw.store", 1)
    nested = "".join(f"    {line}\n" for line in ("        for k in" + body).splitlines() if line.strip())
    module = read(HEADER + head + "        for again in range(2):\n" + nested + "        tw.store" + store)
    kernel = module.units[0].kernel
    assert kernel is not None, module.all_problems
    with pytest.raises(ExpansionError, match="in the same block"):
        expand_policies(kernel)


def test_without_an_iteration_the_accumulator_is_not_read() -> None:
    kernel = pipeline(lo="64")
    text = kernel_source(expand_policies(kernel))
    assert "if 64 < K:" in text and "acc = tw.load_tensor" in text
    a, b, c = arrays(130, 70, 64)
    c = np.full((130, 70), np.nan, np.float32)
    run(expand(kernel), [a, b, c], schedule=Schedule(3, adversarial=True))
    assert (c == 0).all()
