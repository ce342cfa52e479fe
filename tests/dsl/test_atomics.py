"""Atomic updates through all layers: read, refused, printed, interpreted, laid out, lowered, compiled."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand
from tilewright.interpret import Violation, run
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
HEAD = """import tilewright as tw
from tilewright import Global, bf16, f16, f32, i8, i32, u32

M, N = tw.sizes("M", "N")

"""
TABLE = (
    HEAD
    + """
@tw.kernel(target="TARGET", warps=4)
def table(X: Global[DTYPE, M, N], S: Global[DTYPE, N], T: Global[DTYPE, N], U: Global[DTYPE, M], COUNT: Global[i32, 1]):
    tw.zeroed(S)
    tw.initialized(T)
    tw.initialized(U)
    tw.zeroed(COUNT)
    for i, j in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 32)):
        x = tw.load(X.tile((i * 16, j * 32), (16, 32)), other=0)
        columns = tw.sum(x, axis=0)
        tw.atomic_add(S.tile((j * 32,), (32,)), columns, mask=columns > 0)
        tw.atomic_max(T.tile((j * 32,), (32,)), tw.max(x, axis=0))
        tw.atomic_min(U.tile((i * 16,), (16,)), tw.min(x, axis=1))
        tw.atomic_add(COUNT.tile((0,), (1,)), 2)
"""
)


def kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.problems, [p.message for p in module.problems]
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


def table(dtype: str = "f32", target: str = "sm_80") -> ir.Kernel:
    return kernel(TABLE.replace("DTYPE", dtype).replace("TARGET", target))


@pytest.mark.parametrize(("dtype", "storage"), [("f32", np.float32), ("i32", np.int32)])
def test_results_are_those_of_numpy(dtype: str, storage: type) -> None:
    x = np.random.default_rng(3).integers(-9, 9, (40, 70)).astype(storage)
    s, t, u = np.full(70, 77, storage), np.full(70, -3, storage), np.full(40, -2, storage)
    count = np.full(1, 5, np.int32)
    run(expand(table(dtype)), [x, s, t, u, count])
    parts = [x[i : i + 16].sum(0) for i in range(0, 40, 16)]
    np.testing.assert_array_equal(s, sum(np.where(p > 0, p, 0) for p in parts))
    # The last rows of tiles are past the edge and read as 0.
    np.testing.assert_array_equal(t, np.maximum(np.maximum(x.max(0), 0), -3))
    np.testing.assert_array_equal(u, np.minimum(np.minimum(x.min(1), 0), -2))
    assert count == [3 * 3 * 2]


def test_what_is_printed_reads_back_into_equal_ir() -> None:
    for first in (table(), expand(table())):
        again = kernel(module_source(first))
        assert expand(again).body == expand(first).body and again.params == first.params


@needs_triton
@pytest.mark.parametrize("dtype", ["f32", "i32", "u32"])
@pytest.mark.parametrize(
    "target", ["sm_80", "sm_90a", "sm_100a", "gfx942", pytest.param("gfx950", marks=pytest.mark.slow)]
)
def test_generated_code_compiles(dtype: str, target: str) -> None:
    made = lower(expand(table(dtype, target)))
    assert " S.zero_()" in made.source and " T.zero_()" not in made.source
    assert compile_lowered(made).spill_stores == 0


HALVES = (
    HEAD
    + """
@tw.kernel(target="TARGET", warps=4)
def halves(X: Global[DTYPE, M, N], S: Global[DTYPE, N]):
    tw.zeroed(S)
    for i, j in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 32)):
        x = tw.load(X.tile((i * 16, j * 32), (16, 32)), other=0.0)
        tw.atomic_add(S.tile((j * 32,), (32,)), tw.sum(x, axis=0))
"""
)


@needs_triton
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942", "gfx950"])
def test_halves_are_added_where_the_target_can(dtype: str, target: str) -> None:
    assert compile_lowered(lower(expand(kernel(HALVES.replace("DTYPE", dtype).replace("TARGET", target))))).num_warps


def test_halves_are_rounded_at_each_addition() -> None:
    x, s = np.zeros((48, 3), np.float16), np.full(3, 9, np.float16)
    x[0], x[16], x[32] = 2048, 1, 1
    run(expand(kernel(HALVES.replace("DTYPE", "f16").replace("TARGET", "sm_80"))), [x, s])
    assert list(s) == [2048] * 3  # 2049 is no f16, and rounds to even twice


def test_what_nothing_initializes_is_refused_at_run_time() -> None:
    with pytest.raises(Violation, match="T is accumulated into, but nothing says what it holds") as caught:
        arrays = [np.zeros((4, 4), np.float32), *(np.zeros(4, np.float32) for _ in range(3)), np.zeros(1, np.int32)]
        run(
            expand(
                kernel(TABLE.replace("DTYPE", "f32").replace("TARGET", "sm_80").replace("    tw.initialized(T)\n", ""))
            ),
            arrays,
        )
    assert caught.value.kind == "uninitialized"


BODY = """@tw.kernel
def k(X: Global[f32, M, N], S: Global[f32, N], H: Global[f16, N], B: Global[i8, N], Q: Global[i32, N]):
    tw.zeroed(S)
    for i in tw.tiles(tw.cdiv(N, 32)):
        x = tw.load(S.tile((i * 32,), (32,)), other=0.0)
        LINE
"""


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("tw.atomic_max(H.tile((i * 32,), (32,)), x.to(f16))", "TW004", "atomic_max updates f32, i32 or u32; 'H' holds f16"),
        ("tw.atomic_add(B.tile((i * 32,), (32,)), 1)", "TW004", "atomic_add updates f16, bf16, f32, i32 or u32; 'B' holds i8"),
        ("tw.atomic_add(Q.tile((i * 32,), (32,)), x)", "TW004", "'Q' holds i32, the tile is f32; cast it with .to(i32)"),
        ("tw.atomic_add(Q.tile((i * 32,), (32,)), 1.5)", "TW004", "1.5 is a fraction, and the view is i32"),
        ("tw.atomic_add(Q.tile((i * 32,), (32,)), 2 ** 31)", "TW004", "2147483648 does not fit i32"),
        ("tw.atomic_add(S.tile((i * 32,), (64,)), x)", "TW003", "the view is [64], the tile [32]"),
        ("tw.atomic_add(S, x)", "TW003", "a tile of a tensor such as A.tile((row, column), (64, 64)) is needed"),
        ("tw.atomic_add(S.tile((i * 32,), (32,)), x, mask=x)", "TW004", "the mask of atomic_add is a comparison, not f32[32]"),
        ("tw.atomic_add(S.tile((i * 32,), (32,)), x, mask=tw.arange(64) < 3)", "TW003", "do not match"),
        ("y = tw.atomic_add(S.tile((i * 32,), (32,)), x) + 1.0", "TW003", "None"),
        ("tw.zeroed(Q)", "TW005", "tw.zeroed stands at the top of the kernel"),
        ("tw.zeroed(x)", "TW003", "tw.zeroed is for a tensor argument, not a register tile"),
    ],
)  # fmt: skip
def test_wrong_updates_are_refused(line: str, code: str, words: str) -> None:
    problems = [(p.code, p.message) for u in read(HEAD + BODY.replace("LINE", line)).units for p in u.problems]
    assert any(c == code and words in m for c, m in problems), problems


def test_zeros_and_values_exclude_each_other() -> None:
    text = HEAD + BODY.replace("LINE", "tw.store(S.tile((i * 32,), (32,)), x)")
    text = text.replace("    tw.zeroed(S)\n", "    tw.zeroed(S)\n    tw.initialized(S)\n")
    messages = [p.message for u in read(text).units for p in u.problems]
    assert messages == ["'S' is said to hold zeros and the caller's values"]
