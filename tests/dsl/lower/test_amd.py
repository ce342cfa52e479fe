"""Kernels for AMD: layouts of 64 lanes, mfma, and what LLVM makes of the generated code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.kernels import fma, softmax
from dsl.lower.kernels import column_sums, math_functions, maxima_of_three_axes, transposed_plus_sums, types_and_casts
from reading import HEADER, read
from tilewright.dtypes import bf16, f16, f32, f64
from tilewright.expand import ExpansionError, expand
from tilewright.frontend import parse_module
from tilewright.infer import InferenceError
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.layout import DotOperand, Mfma
from tilewright.lower import Compiled, LoweringError, compile_lowered, lower
from tilewright.source import SourceText
from tilewright.targets import TARGETS

BY_NAME = {t.name: t for t in (f16, bf16, f32, f64)}
GEMM = Path(__file__).parents[3] / "examples" / "gemm.py"
AMD = ("gfx942", "gfx950")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the module's own, so that the tests compile what they say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def gemm(target: str, dtype: str = "f16", **consts: int) -> ir.Kernel:
    unit = parse_module(SourceText(GEMM.read_bytes(), str(GEMM))).unit("gemm_sm80")
    assert unit is not None
    kernel = unit.with_consts(target, **consts).kernel
    assert kernel is not None, unit.problems
    types = {
        n: replace(t, dtype=BY_NAME[dtype]) if isinstance(t, TileType) and t.dtype == f16 else t
        for n, t in kernel.types.items()
    }
    params = tuple(replace(p, type=replace(p.type, dtype=BY_NAME[dtype])) for p in kernel.params)
    return expand(replace(kernel, types=types, params=params))


def compiled(kernel: ir.Kernel) -> Compiled:
    return compile_lowered(lower(kernel))


def count(c: Compiled, opcode: str) -> int:
    return len(re.findall(rf"^\s+{opcode}\b", c.amdgcn, re.MULTILINE))


@needs_triton
@pytest.mark.parametrize("target", AMD)
def test_the_gemm_uses_the_matrix_cores_and_wide_accesses(target: str) -> None:
    c = compiled(gemm(target))
    instruction = {"gfx942": "v_mfma_f32_32x32x8_f16", "gfx950": "v_mfma_f32_32x32x16_f16"}[target]
    # Each warp has 2×2 blocks of 32×32, and 32 elements along K.
    assert count(c, instruction) == {"gfx942": 16, "gfx950": 8}[target]
    assert (c.target, c.stack, c.spill_stores, c.num_warps) == (target, 0, 0, 4)
    # Two stages of 128×32 and of 32×128; the conversion before the store takes the place of stages that are done.
    assert c.shared == 32768
    # A and B of a tile are 16 KiB: 4 loads of 16 bytes a lane, before the loop and in it.
    assert count(c, "global_load_dwordx4") == 8 and not count(c, "global_load_ushort")
    assert c.registers <= 256 and c.accumulators <= c.registers
    assert (c.ptx, c.sass) == ("", "")


@needs_triton
@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize(("dtype", "suffix"), [("bf16", "bf16"), ("f32", "f32")])
def test_other_types_have_instructions_of_their_own(target: str, dtype: str, suffix: str) -> None:
    c = compiled(gemm(target, dtype, BM=64, BN=64, BK=16))
    assert len(re.findall(rf"v_mfma_f32_32x32x\d+_?{suffix}", c.amdgcn)) > 0
    assert c.spill_stores == 0


@needs_triton
@pytest.mark.parametrize("shape", [(16, 16, 32), (32, 16, 32), (16, 64, 64), (256, 64, 32)], ids=str)
def test_small_and_narrow_tiles_compile(shape: tuple[int, int, int]) -> None:
    bm, bn, bk = shape
    assert count(compiled(gemm("gfx942", BM=bm, BN=bn, BK=bk)), r"v_mfma_f32_\d+x\d+x\d+_f16") > 0


@needs_triton
@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize(
    "build",
    [fma, softmax, column_sums, math_functions, types_and_casts, maxima_of_three_axes, transposed_plus_sums],
    ids=lambda b: b.__name__,
)
def test_operations_of_every_kind_compile(build: Callable[[], ir.Kernel], target: str) -> None:
    c = compiled(expand(replace(build(), target=target)))
    assert c.spill_stores == 0 and c.shared <= TARGETS[target].shared_per_block


@pytest.mark.parametrize("target", AMD)
def test_every_tile_has_64_lanes(target: str) -> None:
    kernel = gemm(target)
    tiles = [t for t in kernel.types.values() if isinstance(t, TileType)]
    assert tiles and all(t.layout is not None and t.layout.warp_size == 64 for t in tiles)
    kinds = {type(t.layout) for t in tiles}
    assert {Mfma, DotOperand} <= kinds


def test_an_operand_holds_as_much_of_k_as_one_access_brings() -> None:
    def widths(target: str, dtype: str, bk: int) -> set[int]:
        kernel = gemm(target, dtype, BM=64, BN=64, BK=bk)
        layouts = [t.layout for t in kernel.types.values() if isinstance(t, TileType)]
        return {layout.k_width for layout in layouts if isinstance(layout, DotOperand)}

    assert widths("gfx942", "f16", 32) == {8}
    assert widths("gfx942", "f16", 8) == {4}
    assert widths("gfx942", "f32", 32) == {4}
    assert widths("gfx950", "bf16", 32) == {8}


def test_what_the_matrix_cores_cannot_do_is_refused() -> None:
    with pytest.raises(LoweringError, match="K equal and a multiple of 16"):
        lower(gemm("gfx950", BM=64, BN=64, BK=8))
    with pytest.raises(LoweringError, match="M must be a multiple of 16"):
        lower(gemm("gfx942", BM=8, BN=64))
    with pytest.raises(InferenceError, match="not f64"):
        gemm("gfx942", "f64", BM=64, BN=64)


def test_shared_memory_over_the_limit_is_refused_for_the_smaller_target_only() -> None:
    big = {"BM": 256, "BN": 256, "BK": 64}  # 2 stages of 64 KiB
    lower(gemm("gfx950", **big))
    with pytest.raises(LoweringError, match="131072 bytes of shared memory; gfx942 has 65536"):
        lower(gemm("gfx942", **big))


def test_instructions_of_the_other_vendor_are_refused() -> None:
    with pytest.raises(LoweringError, match=r"warps of 64 lanes.*sm_80 have 32"):
        lower(replace(gemm("gfx942"), target="sm_80"))


BUFFERED = """
@tw.kernel(target="gfx942", warps=4)
def product(A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f32, M, N]):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, 64), tw.cdiv(N, 64)):
        acc = tw.zeros(f32, (64, 64))
        for k in tw.pipeline(0, K, 32, stages=2):
            a = tw.load(A.tile((pm * 64, k), (64, 32)), other=0.0, via="buffer")
            b = tw.load(B.tile((k, pn * 64), (32, 64)), other=0.0, via="buffer")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * 64, pn * 64), (64, 64)), acc, via="buffer")
"""


def buffered(target: str = "gfx942") -> ir.Kernel:
    unit = read(HEADER + BUFFERED).unit("product")
    assert unit is not None
    found = unit.with_consts(target).kernel
    assert found is not None
    return expand(found)


@needs_triton
@pytest.mark.parametrize("target", AMD)
def test_buffer_accesses_are_wide_and_take_no_pointers(target: str) -> None:
    c = compiled(buffered(target))
    assert count(c, "buffer_load_dwordx4") == 4 and count(c, "buffer_store_dword(?:x4)?") > 0
    assert not count(c, "global_load_dwordx4") and not count(c, "global_store_dwordx4")


def test_a_launch_refuses_tiles_out_of_reach_of_buffer_offsets() -> None:
    text = lower(buffered()).source
    assert "(63 * K + 31 * 1 + 1) * 2 < 2**31" in text and "(63 * N + 63 * 1 + 1) * 4 < 2**31" in text


def test_buffer_accesses_compute_what_others_do() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((70, 40)).astype(np.float16), rng.standard_normal((40, 72)).astype(np.float16)
    c = np.full((70, 72), np.nan, np.float32)
    run(buffered(), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-3)


def test_buffer_accesses_are_refused_elsewhere() -> None:
    with pytest.raises(ExpansionError, match="sm_80 has no buffer loads and stores; targets with them: gfx942, gfx950"):
        buffered("sm_80")
