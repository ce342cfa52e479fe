"""Accesses to a tensor whose leading dimensions an index fixes: pointers, masks, bulk-copy boxes; compiled for both."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from reading import read
from tilewright.expand import expand
from tilewright.lower import Lowered, compile_lowered, lower

EXAMPLES = Path(__file__).parents[3] / "examples"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
COPY = """import tilewright as tw
from tilewright import Global, f32

B, H, N = tw.sizes("B", "H", "N")

@tw.kernel(target="sm_80", warps=4)
def scale(X: Global[f32, B, H, N], Y: Global[f32, B, H, N]):
    for b, h, i in tw.tiles(B, H, tw.cdiv(N, 256)):
        x = tw.load(X[{index}].tile((i * 256,), (256,)), other=0.0)
        tw.store(Y[b, h].tile((i * 256,), (256,)), x * 2.0)
"""


def lowered(text: str, name: str) -> Lowered:
    unit = next(u for u in read(text).units if u.name == name)
    assert unit.kernel is not None
    return lower(expand(unit.kernel), unit.text)


def example(name: str) -> Lowered:
    return lowered((EXAMPLES / "batched_gemm.py").read_text(encoding="utf-8"), name)


def test_fixed_dimensions_move_the_pointer_and_are_masked_like_the_others() -> None:
    source = lowered(COPY.format(index="b, h"), "scale").source
    assert "X + b * X_stride + h * N_wide + i * 256 + X_i" in source
    assert "(b < B) & (h < H) & (i * 256 + X_i < N)" in source
    assert "gl.arange(0, 256" in source and "[:, None]" not in source  # the tile has one dimension


def test_an_index_that_may_be_negative_is_masked_below_too() -> None:
    source = lowered(COPY.format(index="b - 1, h"), "scale").source
    assert "(b - 1 < B) & (b - 1 >= 0)" in source


def test_the_box_of_a_bulk_copy_has_the_fixed_dimensions() -> None:
    found = example("batched_gemm")
    boxes = {a.source: (a.block, a.layout) for a in found.launch.arguments if a.kind == "descriptor"}
    assert {name: box for name, (box, _) in boxes.items()} == {"A": (1, 128, 64), "B": (1, 64, 256), "C": (1, 128, 256)}
    assert all("rank=3" in layout for _, layout in boxes.values())
    # The stages themselves stay of rank 2 for wgmma.
    assert re.search(r"allocate_shared_memory\(gl.float16, \[3, 128, 64\]", found.source)
    assert found.source.count(".reshape([1, ") == 3


@needs_triton
def test_bulk_copies_of_three_dimensions_feed_wgmma() -> None:
    ptx = compile_lowered(example("batched_gemm")).ptx
    assert "cp.async.bulk.tensor.3d.shared::cluster.global" in ptx
    assert "cp.async.bulk.tensor.3d.global.shared::cta" in ptx
    assert "cp.async.bulk.tensor.2d" not in ptx and "wgmma.mma_async" in ptx


@needs_triton
def test_cp_async_copies_16_bytes_at_a_time() -> None:
    ptx = compile_lowered(example("batched_gemm_sm80")).ptx
    widths = set(re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], 0x([0-9a-f]+)", ptx))
    assert widths == {"10"}


@needs_triton
@pytest.mark.parametrize("index", ["b, h", "b - 1, h"])
def test_direct_accesses_compile(index: str) -> None:
    assert "ld.global" in compile_lowered(lowered(COPY.format(index=index), "scale")).ptx
