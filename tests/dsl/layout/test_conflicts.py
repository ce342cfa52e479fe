"""Bank conflicts: known answers, and a count by definition for layouts that Triton does not take."""

from dataclasses import replace

import pytest

from tilewright.layout import (
    BankConflicts,
    Blocked,
    DistributedLayout,
    DotOperand,
    LayoutError,
    MmaV2,
    Padded,
    SharedLayout,
    Swizzled,
    SwizzledShared,
    Wgmma,
    bank_conflicts,
)

COLUMN_READER = Blocked((1, 1), (32, 1), (1, 4), (0, 1))


@pytest.mark.parametrize(
    ("registers", "shared", "shape", "expected"),
    [
        (Wgmma((4, 1), (16, 64, 16)), Swizzled(128, 16), (64, 64), BankConflicts(32, 1, 0)),
        (DotOperand(0, MmaV2((2, 2)), 2), SwizzledShared(1, 1, 1), (64, 64), BankConflicts(32, 8, 7)),
        (DotOperand(0, MmaV2((2, 2)), 2), SwizzledShared(8, 1, 8), (64, 64), BankConflicts(32, 1, 0)),
        (Blocked((1, 8), (4, 8), (4, 1), (1, 0)), Swizzled(128, 16), (64, 64), BankConflicts(128, 4, 0)),
        (Blocked((1, 8), (32, 1), (4, 1), (1, 0)), Swizzled(0, 16), (128, 64), BankConflicts(128, 32, 7)),
    ],
)
def test_known_answers_for_16_bit_elements(
    registers: DistributedLayout, shared: SharedLayout, shape: tuple[int, int], expected: BankConflicts
) -> None:
    assert bank_conflicts(registers.linear(shape), shared.linear(shape), 16) == expected


def test_padding_by_one_word_frees_a_column_read() -> None:
    shape = (32, 32)
    plain = SwizzledShared(1, 1, 1).linear(shape)
    assert bank_conflicts(COLUMN_READER.linear(shape), plain, 32).excess == 31
    padded = Padded(32, 1, shape).linear(shape)
    assert bank_conflicts(COLUMN_READER.linear(shape), padded, 32) == BankConflicts(32, 1, 0)


def test_lanes_that_share_a_word_do_not_conflict() -> None:
    shape = (1, 4)
    layout = Blocked((1, 1), (1, 32), (1, 4), (1, 0))
    assert bank_conflicts(layout.linear(shape), SwizzledShared(1, 1, 1).linear(shape), 8).excess == 0


def test_an_offset_breaks_vectors() -> None:
    shape = (128, 64)
    registers = Blocked((1, 8), (4, 8), (4, 1), (1, 0)).linear(shape)
    buffer = SwizzledShared(1, 1, 1).linear(shape)
    assert bank_conflicts(registers, buffer, 16).vector_bits == 128
    assert bank_conflicts(registers, replace(buffer, offset=8 * 8192), 16).vector_bits == 128
    assert bank_conflicts(registers, replace(buffer, offset=4), 16).vector_bits == 64


def test_the_coordinates_must_be_named_alike() -> None:
    with pytest.raises(LayoutError, match="the inner layout gives"):
        bank_conflicts(MmaV2((2, 2)).linear((64, 64)), Swizzled(128, 16).linear((128, 64)), 16)
    with pytest.raises(LayoutError, match="4 bits"):
        bank_conflicts(MmaV2((2, 2)).linear((64, 64)), Swizzled(128, 16).linear((64, 64)), 4)
    with pytest.raises(LayoutError, match="inputs register, lane"):
        bank_conflicts(Swizzled(128, 16).linear((64, 64)), Swizzled(128, 16).linear((64, 64)), 16)
