"""Pictures name the owner of each element."""

import pytest

from tilewright.layout import Blocked, LayoutError, MmaV2, Slice, Swizzled, Wgmma, parse_layout, picture


def test_owners_of_a_fragment() -> None:
    lines = picture(MmaV2((1, 1)), (16, 8)).splitlines()
    assert lines[0].split() == [str(column) for column in range(8)]
    assert lines[1].startswith(" 0   w0 l0 r0   w0 l0 r1   w0 l1 r0")
    assert lines[9].startswith(" 8   w0 l0 r2")
    assert lines[16].endswith("w0 l31 r3")
    assert len(lines) == 17


def test_large_tiles_are_cut_and_say_so() -> None:
    lines = picture(Wgmma((4, 1), (16, 64, 16)), (64, 64)).splitlines()
    assert len(lines) == 18
    assert lines[-1] == "… 16×16 of 64×64"


def test_copies_are_counted() -> None:
    assert "w0 l0 r0 +7" in picture(Slice(1, MmaV2((2, 2))), (32,))
    assert picture(Blocked((1,), (32,), (2,), (0,)), (2,)).splitlines()[1] == "0  w0 l0 r0 +31  w0 l1 r0 +31"


def test_offsets_of_a_buffer() -> None:
    lines = picture(Swizzled(32, 16), (8, 16)).splitlines()
    assert lines[5].split() == ["4", *map(str, range(72, 80)), *map(str, range(64, 72))]
    assert picture(parse_layout("(2,2):(2,1)"), (2, 2)).splitlines()[1:] == ["0  0  1", "1  2  3"]


def test_only_rank_1_and_2() -> None:
    with pytest.raises(LayoutError, match="rank 1 or 2"):
        picture(parse_layout("(2,2,2)"), (2, 2, 2))
