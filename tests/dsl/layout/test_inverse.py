"""Inverses undo, and owners are exactly the inputs that reach an element."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.layout import (
    Blocked,
    IndexMap,
    LayoutError,
    Padded,
    Swizzled,
    Wgmma,
    inverse,
    is_injective,
    left_inverse,
    owner,
    owners,
    parse_layout,
    right_inverse,
)

from .strategies import compact_layouts, linear_maps, plain_layouts


@settings(deadline=None)
@given(plain_layouts() | linear_maps())
def test_left_inverse_undoes_or_is_refused(layout: IndexMap) -> None:
    try:
        undo = left_inverse(layout)
    except LayoutError as error:
        if is_injective(layout):
            # Only a layout with an offset or with overlapping steps has an inverse that is no layout.
            assert layout.columns is None
        else:
            first, second = error.left, error.right
            assert isinstance(first, int)
            assert isinstance(second, int)
            assert layout.at(first) == layout.at(second)
        return
    assert [undo.at(layout.at(i)) for i in range(layout.size)] == list(range(layout.size))


@settings(deadline=None)
@given(compact_layouts())
def test_a_compact_layout_has_an_inverse_on_both_sides(layout: IndexMap) -> None:
    assert right_inverse(layout).size == layout.size
    undo = inverse(layout.named(outputs=[("offset", layout.size)]))
    assert [undo.at(layout.at(i)) for i in range(layout.size)] == list(range(layout.size))


@settings(deadline=None)
@given(linear_maps())
def test_right_inverse_of_a_linear_map_reaches_whole_bits(layout: IndexMap) -> None:
    if layout.origin:
        return
    find = right_inverse(layout)
    assert [layout.at(find.at(v)) for v in range(find.size)] == list(range(find.size))
    values = set(layout.table.tolist())
    assert not set(range(2 * find.size)) <= values


@settings(deadline=None)
@given(plain_layouts())
@example(parse_layout("(2,2):(1,1)"))
@example(parse_layout("(4,2,3):(1,2,8)"))
def test_right_inverse_of_a_plain_layout_finds_each_value(layout: IndexMap) -> None:
    if layout.offset:
        with pytest.raises(LayoutError, match="take the offset off"):
            right_inverse(layout)
        return
    find = right_inverse(layout)
    assert [layout.at(find.at(v)) for v in range(find.size)] == list(range(find.size))


def test_a_swizzled_layout_with_an_offset_has_no_right_inverse() -> None:
    with pytest.raises(LayoutError, match="not linear over F2 from 0"):
        right_inverse(parse_layout("Sw<1,0,1> o 4 o 4:1"))


def test_the_inverse_of_a_distributed_layout_names_the_owner() -> None:
    layout = Wgmma((4, 1), (16, 64, 16)).linear((64, 64))
    where = inverse(layout)
    assert [axis.name for axis in where.inputs] == ["dim0", "dim1"]
    held = where.apply(dim0=17, dim1=33)
    assert layout.apply(**held) == {"dim0": 17, "dim1": 33}
    assert held == owner(layout, (17, 33))


def test_the_inverse_of_a_swizzle_reads_the_element_at_an_offset() -> None:
    layout = Swizzled(128, 16).linear((128, 64)).named(outputs=[("offset", 8192)])
    where = inverse(layout)
    for offset in (0, 64, 72, 8191):
        assert layout.apply(**where.apply(offset=offset)) == {"offset": offset}


def test_what_is_not_reached_is_named() -> None:
    with pytest.raises(LayoutError, match=r"\(4,\) is not reached"):
        inverse(parse_layout("4:1").named(outputs=[("offset", 8)]))


@settings(deadline=None)
@given(linear_maps(), st.data())
def test_owners_are_all_inputs_of_an_element(layout: IndexMap, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, (layout.codomain or 1) - 1))
    expected = [index for index in range(layout.size) if layout.at(index) == value]
    found = owners(layout, layout.unpack(value))
    assert found == [dict(zip("xy", layout.split(index), strict=True)) for index in expected]


def test_owners_of_a_broadcast_tile() -> None:
    layout = Blocked((1,), (32,), (4,), (0,)).linear((32,))
    assert owners(layout, (5,)) == [{"register": 0, "lane": 5, "warp": warp} for warp in range(4)]


def test_owners_in_a_layout_that_is_not_linear() -> None:
    layout = Padded(64, 8, (4, 64)).linear((4, 64))
    assert owners(layout, (72,)) == [{"dim0": 1, "dim1": 0}]
    with pytest.raises(LayoutError, match="no owner"):
        owner(layout, (64,))


def test_an_element_outside_the_tile_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"dim0 = 64 is outside \[0, 64\)"):
        owners(Wgmma((4, 1), (16, 64, 16)).linear((64, 64)), (64, 0))
