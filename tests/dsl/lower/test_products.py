"""Element types of matrix products: what each target multiplies, computes and compiles, and what is refused before."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reading import read
from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.expand import expand
from tilewright.infer import InferenceError
from tilewright.interpret import Schedule, run
from tilewright.interpret.numeric import from_bits, to_bits
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import MmaV2, Swizzled, SwizzledShared, Wgmma
from tilewright.lower import LoweringError, compile_lowered, lower
from tilewright.matrix import PRODUCTS, problem, type_problem
from tilewright.targets import TARGETS
from tilewright_analysis import check_unit

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")


def source(
    target: str, a: str, b: str, acc: str, out: str = "", how: str = "", bk: int = 64, turned: bool = True
) -> str:
    """C = A @ B with B stored as (N, K) if `turned`; TMA and wgmma where the target has them, else single-role."""
    roles = "split" if target in ("sm_90a", "sm_100a") else "single"
    rows = 128 if target == "sm_100a" else 64
    names = ", ".join(sorted({a, b, acc, out or acc}))
    at, shape = ("pn * 64, k", f"64, {bk}") if turned else ("k, pn * 64", f"{bk}, 64")
    cast = f".to({out})" if out and out != acc else ""
    return f"""import tilewright as tw
from tilewright import Global, {names}
M, N, K = tw.sizes("M", "N", "K")

@tw.kernel(target="{target}", warps=4)
def product(A: Global[{a}, M, K], B: Global[{b}, {"N, K" if turned else "K, N"}], C: Global[{out or acc}, M, N]):
    tw.assume(K % 16 == 0)
    tw.assume(N % 16 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, {rows}), tw.cdiv(N, 64)):
        acc = tw.zeros({acc}, ({rows}, 64))
        for k in tw.pipeline(0, K, {bk}, stages=3, roles="{roles}"):
            a = tw.load(A.tile((pm * {rows}, k), ({rows}, {bk})))
            b = tw.load(B.tile(({at}), ({shape})))
            acc = tw.mma(a, {"b.T" if turned else "b"}, acc{how})
        tw.store(C.tile((pm * {rows}, pn * 64), ({rows}, 64)), acc{cast})
"""


def kernel_of(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.problems, module.problems
    kernel = module.units[0].kernel
    assert kernel is not None
    return kernel


TF32 = ', precision="tf32"'
CASES = [
    ("sm_80", "f16", "f16", "f16", "", r"mma\.sync.*\.f16\.f16\.f16\.f16"),
    ("sm_80", "bf16", "bf16", "f32", "", r"mma\.sync.*\.f32\.bf16\.bf16\.f32"),
    ("sm_80", "f32", "f32", "f32", TF32, r"mma\.sync.*\.tf32\.tf32"),
    ("sm_80", "i8", "i8", "i32", "", r"mma\.sync.*\.s32\.s8\.s8"),
    ("sm_89", "f8e4m3", "f8e4m3", "f32", "", r"mma\.sync.*\.f32\.e4m3\.e4m3"),
    ("sm_89", "f8e5m2", "f8e4m3", "f16", "", r"mma\.sync.*\.f16\.e5m2\.e4m3"),
    ("sm_90a", "f16", "f16", "f16", "", r"wgmma.*\.f16\.f16\.f16"),
    ("sm_90a", "bf16", "bf16", "f32", "", r"wgmma.*\.f32\.bf16\.bf16"),
    ("sm_90a", "f32", "f32", "f32", TF32, r"wgmma.*\.f32\.tf32\.tf32"),
    ("sm_90a", "i8", "i8", "i32", "", r"wgmma.*\.s32\.s8\.s8"),
    ("sm_90a", "f8e4m3", "f8e4m3", "f32", "", r"wgmma.*\.f32\.e4m3\.e4m3"),
    ("sm_90a", "f8e4m3", "f8e5m2", "f16", "", r"wgmma.*\.f16\.e4m3\.e5m2"),
    ("sm_100a", "bf16", "bf16", "f32", "", r"tcgen05\.mma"),
    ("gfx942", "i8", "i8", "i32", "", "v_mfma_i32_32x32x16_i8"),
    ("gfx942", "f32", "f32", "f32", TF32, "v_mfma_f32_32x32x2_f32"),
    ("gfx950", "f32", "f32", "f32", ', precision="ieee"', "v_mfma_f32_32x32x2_f32"),
    ("gfx950", "i8", "i8", "i32", "", "v_mfma_i32_32x32x32_i8"),
    ("gfx950", "f8e4m3", "f8e5m2", "f32", "", "v_mfma_f32_32x32x16_fp8_bf8"),
]
IDS = [f"{c[0]}-{c[1]}-{c[2]}-{c[3]}" for c in CASES]


def elements(rng: np.random.Generator, shape: tuple[int, int], dtype: DType) -> Any:
    """Random elements as the interpreter stores them."""
    if not dtype.is_float:
        return rng.integers(-128, 128, shape).astype(np.int8)
    values = rng.standard_normal(shape).astype(np.float32)
    return values if dtype.bits == 32 else values.astype(np.float16) if dtype.name == "f16" else to_bits(values, dtype)


def values(stored: Any, dtype: DType) -> Any:
    return from_bits(stored, dtype) if stored.dtype in (np.uint8, np.uint16) else stored


@pytest.mark.parametrize(("target", "a", "b", "acc", "how", "_"), CASES, ids=IDS)
def test_it_is_proved_and_gives_the_numbers_of_numpy(target: str, a: str, b: str, acc: str, how: str, _: str) -> None:
    text = source(target, a, b, acc, how=how, bk=32 if a == "f32" else 64)
    report = check_unit(read(text).units[0])
    # Whether 11 bits are enough for a sum is not for the verifier to say.
    open_ = ["TW107"] if acc == "f16" else []
    assert [f.code for f in report.findings] == open_, [f.message for f in report.findings]
    assert report.verdict == ("unknown" if open_ else "proved")
    ta, tb, tc = (dtypes.ALL[n] for n in (a, b, acc))
    rng = np.random.default_rng(3)
    left, right = elements(rng, (70, 144), ta), elements(rng, (80, 144), tb)
    out = np.zeros((70, 80), {"f32": np.float32, "f16": np.float16, "i32": np.int32}[acc])
    run(expand(kernel_of(text)), [left, right, out], schedule=Schedule(tags=True))
    want = values(left, ta).astype(np.float64) @ values(right, tb).astype(np.float64).T
    tolerance = 0.0 if acc == "i32" else 0.3 if acc == "f16" else 0.05 if a == "f32" else 1e-3
    assert np.abs(out - want).max() <= tolerance, tc


@needs_triton
@pytest.mark.parametrize(("target", "a", "b", "acc", "how", "opcode"), CASES, ids=IDS)
def test_it_compiles_to_its_instruction(target: str, a: str, b: str, acc: str, how: str, opcode: str) -> None:
    compiled = compile_lowered(lower(expand(kernel_of(source(target, a, b, acc, how=how)))))
    assert re.search(opcode, compiled.amdgcn or compiled.ptx)


@needs_triton
def test_wide_products_of_integers_are_two_instructions() -> None:
    text = source("sm_90a", "i8", "i8", "i32").replace("pn * 64", "pn * 256").replace("(64, 64)", "(64, 256)")
    text = text.replace("tw.cdiv(N, 64)", "tw.cdiv(N, 256)")
    text = text.replace("A.tile((pm * 64, k), (64, 256))", "A.tile((pm * 64, k), (64, 64))")
    text = text.replace("B.tile((pn * 256, k), (64, 256))", "B.tile((pn * 256, k), (256, 64))")
    compiled = compile_lowered(lower(expand(kernel_of(text))))
    assert re.search(r"wgmma.*m64n128k32\.s32\.s8\.s8", compiled.ptx)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (source("sm_80", "f16", "bf16", "f32"), "not f16 and bf16"),
        (source("sm_80", "bf16", "bf16", "f16"), "summed up in f32, not f16"),
        (source("sm_80", "i8", "i8", "f32"), "summed up in i32, not f32; start from tw.zeros(i32"),
        (source("sm_80", "u8", "u8", "i32"), "not u8 and u8"),
        (source("sm_80", "f64", "f64", "f64"), "not f64 and f64"),
        (source("sm_80", "f32", "f32", "f32"), "say how f32 operands are multiplied"),
        (source("sm_80", "f16", "f16", "f32", how=TF32), "precision= is for f32 operands"),
        (source("sm_80", "f32", "f32", "f32", how=', precision="bf16x3"'), 'precision is "tf32" or "ieee"'),
    ],
)
def test_types_that_nobody_multiplies_are_told_at_once(text: str, message: str) -> None:
    problems = read(text).units[0].problems
    assert problems and message in problems[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (source("sm_80", "f8e5m2", "f8e5m2", "f32"), "mma_v2 of sm_80 does not multiply f8e5m2 and f8e5m2; sm_89"),
        (source("sm_80", "f32", "f32", "f32", how=', precision="ieee"'), "mma_v2 reads f32 as tf32"),
        (source("gfx942", "f8e4m3", "f8e4m3", "f32"), "FNUZ formats; gfx950 can"),
        (source("gfx950", "f16", "f16", "f16"), "mfma sums up products of f16 and f16 in f32, not f16"),
        (source("sm_90a", "f8e4m3", "f8e4m3", "f32", turned=False), "both operands with K contiguous"),
        (source("sm_90a", "i8", "i8", "i32", turned=False), "'b_ring' has it along its other axis"),
        (source("sm_90a", "f32", "f32", "f32", how=TF32, turned=False), "only 16-bit types"),
        (source("sm_90a", "i8", "i8", "i32", bk=16), "without a swizzle has no transposed view"),
        (source("sm_100a", "f8e4m3", "f8e4m3", "f32"), "tcgen05 multiplies f16 into f32, bf16 into f32, not f8e4m3"),
        (source("sm_80", "i8", "i8", "i32", bk=16), "a multiple of 32"),
    ],
)
def test_types_that_a_target_does_not_multiply_are_refused_by_verifier_and_lowering(text: str, message: str) -> None:
    kernel = kernel_of(text)
    with pytest.raises((LoweringError, InferenceError)) as error:
        lower(expand(kernel))
    assert message in str(error.value)
    assert check_unit(read(text).units[0]).verdict == "refuted"


def test_the_table_names_targets_that_have_the_instruction() -> None:
    for product in PRODUCTS:
        having = [t for t in TARGETS.values() if t.has(product.instruction)]
        a, b = product.operands[0], product.operands[-1]
        assert any(not problem(product.instruction, t, a, b, product.sums[0]) for t in having)
        assert all(not type_problem(a, b, s) for s in product.sums)


# ------------------------------------------------------------------------------- what aborts the compiler


def wgmma_kernel() -> ir.Kernel:
    return expand(kernel_of(source("sm_90a", "f16", "f16", "f32")))


def retyped(kernel: ir.Kernel, **types: Any) -> ir.Kernel:
    return replace(kernel, types={**kernel.types, **types})


def with_tile(kernel: ir.Kernel, name: str, also: tuple[str, ...] = (), **changes: Any) -> ir.Kernel:
    """The kernel with another tile type; `also`: an element type, and further tiles that get it."""
    types = dict(kernel.types)
    for tile, new in ((name, changes), *((n, {"dtype": dtypes.ALL[also[0]]}) for n in also[1:])):
        old = types[tile]
        assert isinstance(old, TileType)
        types[tile] = replace(old, **new)
    return replace(kernel, types=types)


def aborting() -> list[tuple[str, ir.Kernel]]:
    """Kernels with which Triton 3.6 aborts its process or fails without a place, made from good ones."""
    good = wgmma_kernel()
    shared = good.types["b_ring"]
    assert isinstance(shared, SharedType)
    mma = expand(kernel_of(source("sm_80", "f16", "f16", "f32")))
    (product,) = (s for s in ir.walk(mma.body) if isinstance(s, ir.Mma))
    mfma = expand(kernel_of(source("gfx950", "f16", "f16", "f32")))
    return [
        ("wgmma of 96 columns", retyped(with_tile(good, "acc", shape=(64, 96)), b_ring=replace(shared, shape=(96, 64)))),
        ("wgmma of 100 columns", retyped(with_tile(good, "acc", shape=(64, 100)), b_ring=replace(shared, shape=(100, 64)))),
        ("wgmma on another layout", retyped(good, b_ring=replace(shared, layout=SwizzledShared(8, 1, 8)))),
        ("wgmma without a swizzle", retyped(good, b_ring=replace(shared, layout=Swizzled(0, 16)))),
        ("wgmma of other K", retyped(good, b_ring=replace(shared, shape=(64, 32)))),
        ("wgmma on sm_80", replace(good, target="sm_80")),
        ("wgmma on sm_100a", replace(good, target="sm_100a")),
        ("a swizzle wider than the row", retyped(good, b_ring=replace(shared, shape=(64, 32), layout=Swizzled(128, 16)))),
        ("tcgen05 on sm_90a", replace(expand(kernel_of(source("sm_100a", "f16", "f16", "f32"))), target="sm_90a")),
        ("mfma on NVIDIA", replace(mfma, target="sm_80")),
        ("mma_v2 on AMD", replace(mma, target="gfx942")),
        ("mfma into f16", with_tile(mfma, "acc", dtype=dtypes.f16)),
        ("mma_v2 of bf16 into f16", with_tile(mma, "acc", dtype=dtypes.f16, also=("bf16", product.a, product.b))),
    ]  # fmt: skip


@pytest.mark.parametrize(("what", "kernel"), aborting(), ids=[w.replace(" ", "-") for w, _ in aborting()])
def test_what_aborts_the_compiler_is_refused_before(what: str, kernel: ir.Kernel) -> None:
    with pytest.raises(LoweringError) as error:
        lower(kernel)
    assert str(error.value), what


# --------------------------------------------------------------------------- wgmma and mma on one accumulator

BOTH = """import tilewright as tw
from tilewright import Global, f16, f32

@tw.kernel(target="sm_90a", warps=4)
def both(X: Global[f16, 64, 64], W: Global[f16, 64, 64], V: Global[f16, 64, 64], Y: Global[f32, 64, 64]):
    x_tile = tw.shared(f16, (64, 64))
    w_tile = tw.shared(f16, (64, 64))
    full = tw.barrier(1)
    for p in tw.programs(1):
        tw.expect(full, 16384)
        tw.tma_load(X.tile((0, 0), (64, 64)), x_tile, full)
        tw.tma_load(W.tile((0, 0), (64, 64)), w_tile, full)
        tw.wait(full, 0)
        acc = tw.wgmma(x_tile, w_tile, tw.zeros(f32, (64, 64)))
        tw.wgmma_wait(0)
        acc = tw.mma(tw.load_shared(x_tile), tw.load(V.tile((0, 0), (64, 64))), acc)
        tw.store(Y.tile((0, 0), (64, 64)), acc)
"""


def test_an_accumulator_of_wgmma_is_converted_for_mma_and_back() -> None:
    kernel = expand(kernel_of(BOTH))
    (product,) = (s for s in ir.walk(kernel.body) if isinstance(s, ir.Mma))
    into, out = kernel.types["acc"], kernel.types[product.dst]
    assert isinstance(into, TileType) and isinstance(into.layout, Wgmma)
    assert isinstance(out, TileType) and isinstance(out.layout, MmaV2)
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(3))
    y = np.zeros((64, 64), np.float32)
    run(kernel, [x, w, v, y])
    np.testing.assert_allclose(y, x.astype(np.float32) @ (w.astype(np.float32) + v), atol=1e-3)


@needs_triton
def test_both_compile_into_one_kernel() -> None:
    ptx = compile_lowered(lower(expand(kernel_of(BOTH)))).ptx
    assert "wgmma.mma_async" in ptx and "mma.sync" in ptx
