"""Layout inference: where layouts come from, and where conversions stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.kernels import buf, cp_async_gemm, fma, kernel, programs, softmax, split_gemm, tensor, view, x
from dsl.lower.kernels import column_sums, math_functions
from tilewright.dtypes import f16, f32
from tilewright.infer import InferenceError, infer_layouts, mma_layout, wgmma_layout
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType, Type
from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    MmaV2,
    Slice,
    SwizzledShared,
    Wgmma,
    default_blocked,
)  # fmt: skip
from tilewright.source import NO_SPAN

ref = ir.TileRef


def layout(k: ir.Kernel, name: str) -> DistributedLayout | None:
    tile = k.types[name]
    assert isinstance(tile, TileType)
    return tile.layout


def conversions(k: ir.Kernel) -> list[ir.Compute]:
    return [s for s in ir.walk(k.body) if isinstance(s, ir.Compute) and s.op == "convert_layout"]


def assume(k: ir.Kernel, *conditions: str) -> ir.Kernel:
    return replace(k, assumptions=(*k.assumptions, *(ir.Assumption(x(c)) for c in conditions)))


@pytest.mark.parametrize(
    "build", [split_gemm, cp_async_gemm, fma, softmax, column_sums, math_functions], ids=lambda b: b.__name__
)
def test_every_tile_gets_a_layout_and_a_reason_once(build: type) -> None:
    first = infer_layouts(build())
    for name, type_ in first.types.items():
        if isinstance(type_, TileType):
            assert type_.layout is not None and type_.why, name
    assert infer_layouts(first) == first


def test_accumulators_have_the_layout_of_their_instruction_and_follow_into_arithmetic() -> None:
    k = infer_layouts(split_gemm())
    assert layout(k, "acc") == layout(k, "c") == Wgmma((8, 1), (16, 256, 16))
    assert not conversions(k)  # the store goes through shared memory, straight from the accumulator


def test_operands_of_mma_are_loaded_in_their_layout_and_the_result_is_stored_by_rows() -> None:
    k = infer_layouts(assume(cp_async_gemm(), "N % 8 == 0"))
    acc = MmaV2((2, 2))
    assert (layout(k, "acc"), layout(k, "a"), layout(k, "b")) == (acc, DotOperand(0, acc, 2), DotOperand(1, acc, 2))
    (conversion,) = conversions(k)
    assert layout(k, conversion.dst) == default_blocked((128, 128), 16, 4)
    (store,) = [s for s in ir.walk(k.body) if isinstance(s, ir.Store)]
    assert store.src == conversion.dst and "coalesced" in conversion.note


def test_an_operand_that_is_also_read_otherwise_is_converted() -> None:
    k = cp_async_gemm()
    doubled = ir.Compute("a2", "add", (ref("a"), ref("a")))

    def change(s: ir.Stmt) -> ir.Block | None:
        return (doubled, replace(s, a="a2")) if isinstance(s, ir.Mma) else None

    k = infer_layouts(k.with_body(ir.rewrite(k.body, change), {**k.types, "a2": k.types["a"]}))
    assert isinstance(layout(k, "a"), Blocked) and isinstance(layout(k, "a2"), Blocked)
    notes = [c.note for c in conversions(k)]
    assert notes.count("operand A of mma_v2") == 1


def test_rows_take_wide_accesses_only_where_they_are_known_to_be_aligned() -> None:
    assert layout(infer_layouts(softmax()), "x") == Blocked((1, 1), (1, 32), (1, 4), (1, 0))
    known = infer_layouts(assume(softmax(), "N % 4 == 0"))
    assert layout(known, "x") == layout(known, "m") == Blocked((1, 4), (1, 32), (1, 4), (1, 0))
    assert layout(infer_layouts(fma()), "x") == Blocked((4,), (32,), (4,), (0,))


def test_a_reduction_gives_a_slice_and_lower_ranks_follow_it() -> None:
    k = infer_layouts(column_sums())
    matrix = layout(k, "x")
    assert isinstance(matrix, Blocked) and layout(k, "y") == matrix
    assert layout(k, "part") == layout(k, "acc") == Slice(1, matrix)
    assert layout(k, "bias") == Slice(0, matrix)
    assert not conversions(k)


def small(body: tuple[ir.Stmt, ...], types: dict[str, Type], warps: int = 4) -> ir.Kernel:
    params = (tensor("A", f32, "M", "N"), tensor("B", f32, "M", "N"))
    return kernel("small", "sm_80", warps, params, (programs("t", "M", False, *body),), types)


AT = view("A", ("t * 64", 0), (64, 64))
TILE = TileType(f32, (64, 64))


def test_a_given_layout_is_obeyed_and_others_are_converted_to_it() -> None:
    given = Blocked((1, 1), (1, 32), (4, 1), (1, 0))
    other = Blocked((1, 2), (1, 32), (4, 1), (1, 0))
    body = (
        ir.Load("x", AT, None, "direct"), ir.Load("y", AT, None, "direct"),
        ir.Compute("z", "add", (ref("x"), ref("y"))),
        ir.Store(replace(AT, tensor="B"), "z", "direct"),
    )  # fmt: skip
    k = infer_layouts(small(body, {"x": TILE.with_layout(given, ""), "y": TILE.with_layout(other, ""), "z": TILE}))
    assert (layout(k, "x"), layout(k, "y")) == (given, other)
    assert layout(k, "z") in (given, other)
    assert len(conversions(k)) == 1


def test_what_an_accumulator_meets_in_memory_is_loaded_by_rows_and_converted() -> None:
    body = (
        ir.Compute("acc", "full", (0.0,)), ir.SharedLoad("a", buf("s")), ir.SharedLoad("b", buf("s")),
        ir.Mma("acc", "a", "b", "acc", "mma_v2"),
        ir.Load("bias", AT, None, "direct"), ir.Compute("z", "add", (ref("acc"), ref("bias"))),
        ir.Store(replace(AT, tensor="B"), "z", "direct"),
    )  # fmt: skip
    half = TileType(f16, (64, 64))
    shared = SharedType(f16, (64, 64), 1, False, SwizzledShared(8, 1, 8))
    k = infer_layouts(small(body, {"acc": TILE, "a": half, "b": half, "bias": TILE, "z": TILE, "s": shared}))
    assert isinstance(layout(k, "bias"), Blocked) and isinstance(layout(k, "z"), MmaV2)
    assert {c.note for c in conversions(k)} == {
        "'z' combines tiles in one layout", "a coalesced store needs rows, not matrix fragments",
    }  # fmt: skip


def test_expand_dims_transpose_and_broadcast_agree_with_their_operands() -> None:
    line = TileType(f32, (64,))
    body = (
        ir.Load("x", AT, None, "direct"), ir.Compute("r", "sum", (ref("x"),), axis=0),
        ir.Compute("e", "expand_dims", (ref("r"),), axis=1), ir.Compute("b", "broadcast", (ref("e"),)),
        ir.Compute("t1", "transpose", (ref("x"),)), ir.Compute("z", "add", (ref("b"), ref("t1"))),
        ir.Store(replace(AT, tensor="B"), "z", "direct"),
    )  # fmt: skip
    types: dict[str, Type] = {"x": TILE, "r": line, "e": TileType(f32, (64, 1)), "b": TILE, "t1": TILE, "z": TILE}
    k = infer_layouts(small(body, types))
    for s in ir.walk(k.body):
        match s:
            case ir.Compute(op="expand_dims", args=(ir.TileRef(name),)):
                wanted = layout(k, s.dst)
                assert wanted is not None and layout(k, name) == Slice(1, wanted)
            case ir.Compute(op="broadcast" | "add", args=args):
                assert all(layout(k, a.name) == layout(k, s.dst) for a in args if isinstance(a, ir.TileRef))
            case ir.Compute(op="transpose", args=(ir.TileRef(name),)):
                source, made = layout(k, name), layout(k, s.dst)
                assert isinstance(source, Blocked) and isinstance(made, Blocked)
                assert made.order == source.order[::-1] and made.size_per_thread == source.size_per_thread[::-1]
            case _:
                pass


@pytest.mark.parametrize(
    ("shape", "warps", "expected"),
    [
        ((128, 256), 8, Wgmma((8, 1), (16, 256, 16))), ((64, 256), 8, Wgmma((4, 2), (16, 128, 16))),
        ((128, 512), 8, Wgmma((8, 1), (16, 256, 16))), ((256, 128), 4, Wgmma((4, 1), (16, 128, 16))),
    ],
)  # fmt: skip
def test_warpgroups_of_wgmma_stand_down_the_rows_first(shape: tuple[int, int], warps: int, expected: Wgmma) -> None:
    assert wgmma_layout(shape, 16, warps, NO_SPAN) == expected


@pytest.mark.parametrize(
    ("shape", "warps", "message"),
    [((128, 256), 2, "whole warpgroups"), ((32, 256), 4, "multiple of 64 rows"), ((64, 8), 8, "at least 8 columns")],
)
def test_impossible_wgmma_shapes_are_refused(shape: tuple[int, int], warps: int, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        wgmma_layout(shape, 16, warps, NO_SPAN)


@pytest.mark.parametrize(
    ("shape", "warps", "grid"), [((128, 128), 4, (2, 2)), ((16, 256), 4, (1, 4)), ((256, 16), 4, (4, 1))]
)
def test_warps_of_mma_go_where_most_instructions_are(shape: tuple[int, int], warps: int, grid: tuple[int, int]) -> None:
    assert mma_layout(shape, warps) == MmaV2(grid)


def test_a_tile_cannot_belong_to_two_roles_of_different_size() -> None:
    roles = tuple(
        ir.Role(name, warps, None, (programs("t", "M", False, ir.Load("x", AT, None, "direct")),))
        for name, warps in (("one", 4), ("two", 1))
    )
    k = kernel("f", "sm_90a", 4, (tensor("A", f32, "M", "N"),), (ir.Roles(roles),), {"x": TILE})
    with pytest.raises(InferenceError, match="a role with 4 warps and of one with 1"):
        infer_layouts(k)
