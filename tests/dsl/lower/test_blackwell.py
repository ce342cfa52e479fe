"""Kernels for sm_100a: tcgen05 and tensor memory, compiled ahead of time."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.frontend import parse_module
from tilewright.infer import InferenceError
from tilewright.ir import nodes as ir
from tilewright.ir.types import TensorMemoryType
from tilewright.lower import LoweringError, compile_lowered, lower
from tilewright.source import SourceText

GEMM = Path(__file__).parents[3] / "examples" / "gemm.py"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the module's own, so that the tests compile what they say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def gemm(warps: int = 8, **consts: int) -> ir.Kernel:
    text = GEMM.read_text(encoding="utf-8").replace("warps=8", f"warps={warps}")
    unit = parse_module(SourceText.of(text)).unit("gemm")
    assert unit is not None
    kernel = unit.with_consts("sm_100a", **consts).kernel
    assert kernel is not None
    return expand(kernel)


@needs_triton
def test_the_gemm_runs_on_the_tensor_cores_of_blackwell() -> None:
    c = compile_lowered(lower(gemm()))
    # 64 elements along K are 4 instructions of 16; one commit frees the stage, one hands over the accumulator.
    assert len(re.findall(r"tcgen05\.mma\.cta_group::1\.kind::f16", c.ptx)) == 4
    assert len(re.findall(r"tcgen05\.commit", c.ptx)) == 2
    assert "tcgen05.ld.sync.aligned.32x32b.x64" in c.ptx and "tcgen05.wait::ld" in c.ptx
    assert (c.spill_stores, c.stack, c.num_warps) == (0, 0, 12)
    assert c.shared <= 227 * 1024


@needs_triton
def test_the_accumulator_is_free_only_after_all_warps_have_read_it() -> None:
    """The wait for the loads and a barrier over the role stand between tcgen05.ld and the arrival."""
    ptx = compile_lowered(lower(gemm())).ptx
    load, waited = ptx.index("tcgen05.ld"), ptx.index("tcgen05.wait::ld")
    arrive = ptx.index("mbarrier.arrive.shared::cta", load)
    assert load < waited < ptx.index("bar.sync", waited) < arrive


@needs_triton
@pytest.mark.parametrize(("warps", "columns"), [(4, 64), (4, 128), (16, 256)])
def test_other_shapes_compile(warps: int, columns: int) -> None:
    assert compile_lowered(lower(gemm(warps, BN=columns))).spill_stores == 0


def test_what_the_hardware_cannot_do_is_refused() -> None:
    with pytest.raises(InferenceError, match="whole warpgroups of 4 warps"):
        gemm(warps=2, BN=64)
    with pytest.raises(LoweringError, match=r"sm_90a has no tensor memory and tcgen05; .*sm_100a"):
        lower(replace(gemm(), target="sm_90a"))
    kernel = gemm()
    memory = kernel.types["acc_ring"]
    assert isinstance(memory, TensorMemoryType)
    with pytest.raises(LoweringError, match="1024 columns of tensor memory; a block has 512"):
        lower(kernel.with_body(kernel.body, {**kernel.types, "acc_ring": replace(memory, stages=4)}))
    with pytest.raises(LoweringError, match="M must be 64 or 128"):
        lower(kernel.with_body(kernel.body, {**kernel.types, "acc_ring": replace(memory, shape=(64, 256))}))


@needs_triton
@pytest.mark.parametrize(("warps", "columns"), [(4, 32), (4, 256), (8, 64), (8, 256)])
def test_accumulators_of_64_rows_compile(warps: int, columns: int) -> None:
    c = compile_lowered(lower(gemm(warps, BM=64, BN=columns, STAGES=2)))
    assert "tcgen05.ld.sync.aligned.16x32bx2" in c.ptx and c.spill_stores == 0
    assert len(re.findall(r"tcgen05\.mma\.cta_group::1\.kind::f16", c.ptx)) == 4


SINGLE = """
@tw.kernel(target="sm_100a", warps=8)
def tiles(A: Global[f16, M, 64], B: Global[f16, 64, 128], C: Global[f32, M, 128]):
    a = tw.shared(f16, (128, 64), layout=tw.swizzled(128))
    b = tw.shared(f16, (64, 128), layout=tw.swizzled(128))
    acc = tw.tensor_memory(f32, (128, 128))
    full = tw.barrier(1, arrivals=1)
    done = tw.barrier(1, arrivals=1)
    with tw.role("work", warps=8):
        it = 0
        for t in tw.programs(tw.cdiv(M, 128), persistent=True):
            tw.expect(full[0], 32768)
            tw.tma_load(A.tile((t * 128, 0), (128, 64)), a, full[0])
            tw.tma_load(B.tile((0, 0), (64, 128)), b, full[0])
            tw.wait(full[0], it % 2)
            tw.tcgen05_mma(a, b, acc, done[0], accumulate=0)
            tw.wait(done[0], it % 2)
            out = tw.load_tensor(acc)
            tw.sync()
            it = it + 1
            tw.store(C.tile((t * 128, 0), (128, 128)), out)
"""


@needs_triton
def test_a_kernel_of_one_role_is_no_warp_specialization() -> None:
    unit = read(HEADER + SINGLE).unit("tiles")
    assert unit is not None and unit.kernel is not None, unit
    lowered = lower(expand(unit.kernel))
    assert "warp_specialize" not in lowered.source
    assert (lowered.launch.num_warps, lowered.launch.total_warps, lowered.launch.maxnreg) == (8, 8, None)
    c = compile_lowered(lowered)
    assert c.num_warps == 8 and "tcgen05.mma" in c.ptx
    # Before the next tile is loaded, all warps have left this one.
    loaded, stored = c.ptx.index("tcgen05.wait::ld"), c.ptx.index("st.global")
    assert loaded < c.ptx.index("bar.sync", loaded) < stored


@needs_triton
@pytest.mark.parametrize(("columns", "programs"), [(32, 8), (128, 2), (256, 1)])
def test_as_many_programs_run_at_once_as_tensor_memory_has_room_for(columns: int, programs: int) -> None:
    lowered = lower(gemm(4, BM=64, BN=columns, BK=32, STAGES=2))
    allocated = re.findall(r"tcgen05\.alloc.*?, (\d+);", compile_lowered(lowered).ptx)
    assert allocated == [str(2 * columns)]
    assert lowered.launch.programs_per_sm == programs
