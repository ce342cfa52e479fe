"""Equality, injectivity and coverage agree with enumeration, witnesses included."""

import pytest
from hypothesis import example, given, settings

from tilewright.layout import (
    IndexMap,
    LayoutError,
    collision,
    difference,
    equal,
    from_bases,
    is_injective,
    make_layout,
    parse_layout,
    uncovered,
)

from .strategies import linear_maps, plain_layouts

ANY_SIGN = plain_layouts(strides=(-8, -3, -1, 0, 1, 2, 3, 4, 16, 100))


@settings(deadline=None)
@given(ANY_SIGN | linear_maps())
@example(parse_layout("(2,2):(1,1)"))
@example(parse_layout("(3,4):(1,2)"))
@example(parse_layout("(2,2):(3,2)"))
@example(parse_layout("2:-1"))
def test_injectivity_is_decided_with_a_pair(layout: IndexMap) -> None:
    values = layout.table.tolist()
    clash = collision(layout)
    assert (clash is None) == (len(set(values)) == len(values))
    if clash is not None:
        assert clash.first != clash.second
        assert values[clash.first] == values[clash.second] == clash.value


@settings(deadline=None)
@given(linear_maps())
def test_coverage_of_a_linear_map_is_decided_with_a_value(layout: IndexMap) -> None:
    free = uncovered(layout)
    values = set(layout.table.tolist())
    assert (free is None) == (len(values) == layout.codomain)
    assert free is None or free not in values


@settings(deadline=None)
@given(plain_layouts())
def test_coverage_of_a_plain_layout_finds_the_lowest_gap(layout: IndexMap) -> None:
    values = set(layout.table.tolist())
    free = uncovered(layout, layout.cosize)
    gaps = [value for value in range(layout.cosize) if value not in values]
    assert (free is None) == (not gaps)
    assert free is None or free in gaps


@settings(deadline=None)
@given(ANY_SIGN, ANY_SIGN)
@example(parse_layout("(4,6):(1,4)"), parse_layout("(6,4):(1,6)"))
@example(parse_layout("2:-1"), parse_layout("2:1"))
def test_difference_is_decided_with_an_index(left: IndexMap, right: IndexMap) -> None:
    if left.size != right.size:
        with pytest.raises(LayoutError, match="cannot be compared"):
            difference(left, right)
        return
    found = difference(left, right)
    assert (found is None) == (left.table.tolist() == right.table.tolist())
    if found is not None:
        assert (left.at(found.index), right.at(found.index)) == (found.left, found.right)
        assert found.left != found.right


@settings(deadline=None)
@given(linear_maps(in_bits=4, out_bits=2), linear_maps(in_bits=4, out_bits=2))
def test_difference_of_linear_maps_is_decided(left: IndexMap, right: IndexMap) -> None:
    found = difference(left, right)
    assert (found is None) == (left.table.tolist() == right.table.tolist())
    if found is not None:
        assert (left.at(found.index), right.at(found.index)) == (found.left, found.right)


def test_layouts_equal_as_functions_may_nest_differently() -> None:
    assert equal(parse_layout("(2,4):(1,2)"), parse_layout("8:1"))
    assert equal(parse_layout("(6,4):(4,24)"), parse_layout("((2,3),4):((4,8),24)"))
    assert not equal(parse_layout("8:1"), parse_layout("8:2"))


def test_large_layouts_are_decided_without_enumeration() -> None:
    assert is_injective(make_layout((1 << 20, 3, 1 << 20), (3, 1, 3 << 20)))
    assert equal(make_layout((1 << 30, 6)), make_layout((1 << 15, 1 << 15, 6)))
    clash = collision(make_layout((1 << 20, 1 << 20), (1, 0)))
    assert clash is not None
    assert clash.second == 1 << 20


def test_an_undecidable_size_is_said_so() -> None:
    with pytest.raises(LayoutError, match="too many to enumerate"):
        is_injective(make_layout((3 << 21, 3), (2, 3)))


def test_coverage_needs_a_codomain() -> None:
    with pytest.raises(LayoutError, match="bounded output"):
        uncovered(make_layout(4))
    assert uncovered(make_layout(4), 100) == 4
    assert uncovered(from_bases({"x": [[1], [2]]}, [("p", 8)])) == 4
