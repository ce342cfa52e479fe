"""The named families: golden bases from the PTX ISA, invariants of every tile, and refusals a person can read."""

import pytest

from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    LayoutError,
    MmaV2,
    Padded,
    SharedLayout,
    Slice,
    Swizzled,
    SwizzledShared,
    Wgmma,
    bases_of,
    default_blocked,
    default_swizzle,
    is_injective,
    is_surjective,
    to_cute,
)

LANES = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]

DISTRIBUTED: list[DistributedLayout] = [
    Blocked((1, 8), (4, 8), (4, 1), (1, 0)),
    Blocked((2, 2), (8, 4), (2, 2), (0, 1)),
    MmaV2((2, 2)),
    DotOperand(0, MmaV2((2, 2)), 2),
    DotOperand(1, MmaV2((2, 2)), 2),
    DotOperand(0, Wgmma((4, 1), (16, 64, 16)), 2),
    Wgmma((4, 1), (16, 64, 16)),
    Wgmma((8, 1), (16, 256, 16)),
]

SHARED: list[SharedLayout] = [
    Swizzled(128, 16),
    Swizzled(64, 16),
    Swizzled(32, 8),
    Swizzled(0, 16),
    Swizzled(128, 16, transposed=True),
    SwizzledShared(8, 1, 8),
    SwizzledShared(8, 2, 4, (0, 1)),
    SwizzledShared(1, 1, 1),
]


def test_wgmma_accumulator_of_a_warpgroup() -> None:
    assert bases_of(Wgmma((4, 1), (16, 128, 16)).linear((64, 128))) == {
        "register": [(0, 1), (8, 0), (0, 8), (0, 16), (0, 32), (0, 64)],
        "lane": LANES,
        "warp": [(16, 0), (32, 0)],
    }


def test_mma_v2_operand_a_repeats_over_the_warps_of_n() -> None:
    assert bases_of(DotOperand(0, MmaV2((2, 2)), 2).linear((64, 32))) == {
        "register": [(0, 1), (8, 0), (0, 8), (0, 16), (32, 0)],
        "lane": LANES,
        "warp": [(0, 0), (16, 0)],
    }


def test_mma_v2_operand_b_is_read_down_the_columns() -> None:
    assert bases_of(DotOperand(1, MmaV2((1, 1)), 2).linear((16, 8))) == {
        "register": [(1, 0), (8, 0)],
        "lane": [(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)],
        "warp": [],
    }


def test_128_byte_swizzle_formula() -> None:
    layout = Swizzled(128, 16).linear((128, 64))
    for row in range(128):
        for column in range(64):
            assert layout(row, column) == 64 * row + (column ^ 8 * (row % 8))


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Swizzled(128, 16), "Sw<3,3,3> o 0 o (64,64):(64,1)"),
        (Swizzled(64, 16), "Sw<2,3,3> o 0 o (64,(32,2)):(32,(1,2048))"),
        (Swizzled(32, 32), "Sw<1,2,3> o 0 o (64,(8,8)):(8,(1,512))"),
        (Swizzled(0, 16), "(64,64):(64,1)"),
        (SwizzledShared(8, 1, 8), "Sw<3,3,3> o 0 o (64,64):(64,1)"),
        (SwizzledShared(4, 2, 4), "Sw<2,2,5> o 0 o (64,64):(64,1)"),
    ],
)
def test_swizzles_in_cute_notation(layout: SharedLayout, text: str) -> None:
    assert str(layout.linear((64, 64))) == text
    assert str(to_cute(layout.linear((64, 64)))) == text


@pytest.mark.parametrize("layout", DISTRIBUTED, ids=str)
@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (16, 16), (256, 256)])
def test_every_element_of_a_tile_has_an_owner(layout: DistributedLayout, shape: tuple[int, int]) -> None:
    linear = layout.linear(shape)
    assert is_surjective(linear)
    assert [axis.name for axis in linear.inputs] == ["register", "lane", "warp"]
    assert linear.shape[1:] == (32, layout.warps)


@pytest.mark.parametrize("layout", SHARED, ids=str)
@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (64, 64), (256, 512)])
def test_every_offset_of_a_buffer_holds_one_element(layout: SharedLayout, shape: tuple[int, int]) -> None:
    linear = layout.linear(shape)
    assert is_injective(linear)
    assert is_surjective(linear, shape[0] * shape[1])


def test_padding_moves_rows_apart() -> None:
    layout = Padded(64, 8, (4, 64))
    linear = layout.linear((4, 64))
    assert [linear(row, 3) for row in range(4)] == [3, 75, 147, 219]
    assert linear.columns is None
    nested = Padded(16, 4, (2, 64)).linear((2, 64))
    for row in range(2):
        for column in range(64):
            offset = 64 * row + column
            assert nested(row, column) == offset + offset // 16 * 4


def test_a_slice_keeps_copies_along_the_dimension_taken_off() -> None:
    layout = Slice(1, MmaV2((2, 2)))
    assert bases_of(layout.linear((32,))) == {
        "register": [(8,)],
        "lane": [(0,), (0,), (1,), (2,), (4,)],
        "warp": [(0,), (16,)],
    }


@pytest.mark.parametrize(
    ("layout", "source"),
    [
        (Blocked((1, 8), (4, 8), (4, 1), (1, 0)), "gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])"),
        (MmaV2((2, 2)), "gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])"),
        (Wgmma((8, 1), (16, 256, 16)), "gl.NVMMADistributedLayout([3, 0], [8, 1], [16, 256, 16])"),
        (
            DotOperand(0, MmaV2((2, 2)), 2),
            "gl.DotOperandLayout(0, gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8]), 2)",
        ),
        (Slice(0, Blocked((1,), (32,), (4,), (0,))), "gl.SliceLayout(0, gl.BlockedLayout([1], [32], [4], [0]))"),
        (
            Swizzled(128, 16),
            "gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)",
        ),
        (
            Swizzled(64, 8, 3, True),
            "gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=8, rank=3, transposed=True)",
        ),
        (
            SwizzledShared(8, 1, 8),
            "gl.SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])",
        ),
        (Padded(64, 8, (4, 64)), "gl.PaddedSharedLayout.with_identity_for([[64, 8]], [4, 64], [1, 0])"),
    ],
)
def test_gluon_source(layout: DistributedLayout | SharedLayout, source: str) -> None:
    assert layout.gluon() == source


@pytest.mark.parametrize(
    ("shape", "bits", "warps", "order", "expected"),
    [
        ((128, 64), 16, 4, None, Blocked((1, 8), (4, 8), (4, 1), (1, 0))),
        ((64, 128), 16, 4, (0, 1), Blocked((8, 1), (8, 4), (1, 4), (0, 1))),
        ((1024,), 32, 4, None, Blocked((4,), (32,), (4,), (0,))),
        ((128,), 32, 4, None, Blocked((1,), (32,), (4,), (0,))),
        ((16,), 32, 4, None, Blocked((1,), (32,), (4,), (0,))),
        ((1, 4096), 32, 8, None, Blocked((1, 4), (1, 32), (1, 8), (1, 0))),
        ((8192,), 1, 4, None, Blocked((16,), (32,), (4,), (0,))),
        ((16, 16), 8, 1, None, Blocked((1, 8), (16, 2), (1, 1), (1, 0))),
    ],
)
def test_default_blocked(
    shape: tuple[int, ...], bits: int, warps: int, order: tuple[int, ...] | None, expected: Blocked
) -> None:
    layout = default_blocked(shape, bits, warps, order)
    assert layout == expected
    assert layout.warps == warps
    assert is_surjective(layout.linear(shape))


@pytest.mark.parametrize(
    ("shape", "bits", "width"),
    [((128, 64), 16, 128), ((64, 32), 16, 64), ((64, 16), 16, 32), ((64, 8), 16, 0), ((4, 64), 16, 0), ((64,), 16, 0)],
)
def test_default_swizzle_is_the_widest_that_a_row_fills(shape: tuple[int, ...], bits: int, width: int) -> None:
    layout = default_swizzle(shape, bits)
    assert layout == Swizzled(width, bits, len(shape))
    assert is_injective(layout.linear(shape))


def test_messages_name_the_numbers() -> None:
    with pytest.raises(LayoutError, match="has 64 bytes, fewer than the 128 that the swizzle permutes"):
        Swizzled(128, 16).linear((64, 32))
    with pytest.raises(LayoutError, match="has 4 rows"):
        Swizzled(128, 16).linear((4, 64))
    with pytest.raises(LayoutError, match=r"\[48, 64\]: 48 is not a power of two"):
        Blocked((1, 8), (4, 8), (4, 1), (1, 0)).linear((48, 64))
    with pytest.raises(LayoutError, match="16 threads; a warp has 32"):
        Blocked((1, 8), (2, 8), (4, 1), (1, 0))
    with pytest.raises(LayoutError, match="N is a multiple of 8 up to 256"):
        Wgmma((4, 1), (16, 100, 16))
    with pytest.raises(LayoutError, match="N = 96 is not a power of two"):
        Wgmma((4, 1), (16, 96, 16)).linear((64, 96))
    with pytest.raises(LayoutError, match=r"warpgroup of 4 warps along the rows, but warps_per_cta is \[2, 2\]"):
        Wgmma((2, 2), (16, 64, 16))
    with pytest.raises(LayoutError, match="only A may be in registers"):
        DotOperand(1, Wgmma((4, 1), (16, 64, 16)), 2)
    with pytest.raises(LayoutError, match="rank 2, the tile 64 rank 1"):
        MmaV2((2, 2)).linear((64,))
    with pytest.raises(LayoutError, match="128, 64, 32 or 0 exist"):
        Swizzled(16, 16)
