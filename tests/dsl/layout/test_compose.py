"""Composition proves itself right, or shows where it breaks."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.layout import (
    IndexMap,
    LayoutError,
    compose,
    from_bases,
    is_injective,
    logical_divide,
    make_layout,
    parse_layout,
    swizzled,
    zipped_divide,
)

from .strategies import compact_layouts, linear_maps, plain_layouts


def test_a_carry_between_modes_is_refused_with_the_first_wrong_index() -> None:
    outer, inner = parse_layout("(8,2):(1,100)"), parse_layout("(4,4):(2,1)")
    with pytest.raises(LayoutError) as caught:
        compose(outer, inner)
    error = caught.value
    assert (error.coordinate, error.left, error.right) == (11, 100, 8)
    assert "At index 11 = (3, 2) the composition is 100" in str(error)
    assert "condition 3" in str(error)


def test_a_stride_that_does_not_fit_a_digit_is_refused() -> None:
    with pytest.raises(LayoutError, match="condition 1") as caught:
        compose(parse_layout("(4,3):(3,1)"), parse_layout("4:3"))
    index = caught.value.coordinate
    assert isinstance(index, int)
    assert caught.value.left == parse_layout("(4,3):(3,1)").at(3 * index)


def test_a_size_that_does_not_fill_a_digit_is_refused() -> None:
    with pytest.raises(LayoutError, match="condition 2"):
        compose(parse_layout("(4,3):(3,1)"), parse_layout("6:1"))


def test_an_offset_that_carries_is_refused() -> None:
    outer = parse_layout("(8,2):(1,100)")
    assert compose(outer, parse_layout("4 + 4:1")).table.tolist() == [4, 5, 6, 7]
    with pytest.raises(LayoutError, match="condition 3") as caught:
        compose(outer, parse_layout("6 + 4:1"))
    assert (caught.value.coordinate, caught.value.left, caught.value.right) == (2, 100, 8)


def test_a_carry_in_a_layout_too_large_to_enumerate_is_still_found() -> None:
    outer = make_layout((1 << 20, 1 << 20), (1, 1 << 30))
    inner = make_layout((1 << 19, 1 << 19), (2, 1))
    with pytest.raises(LayoutError) as caught:
        compose(outer, inner)
    index = caught.value.coordinate
    assert isinstance(index, int)
    assert caught.value.left == outer.at(inner.at(index)) != caught.value.right


def test_a_large_composition_is_proved_without_enumeration() -> None:
    outer = make_layout((1 << 20, 1 << 20), (1, 1 << 30))
    result = compose(outer, make_layout((1 << 10, 1 << 20), (1 << 10, 1 << 20)))
    assert result.at((1 << 30) - 1) == outer.at(((1 << 10) - 1 << 10) + ((1 << 20) - 1 << 20))


@settings(deadline=None)
@given(plain_layouts(), plain_layouts())
def test_composition_is_right_or_refused_at_a_true_difference(outer: IndexMap, inner: IndexMap) -> None:
    try:
        result = compose(outer, inner)
    except LayoutError as error:
        index = error.coordinate
        assert isinstance(index, int)
        assert error.left == outer.at(inner.at(index)) != error.right
        return
    assert result.shape == inner.shape
    assert result.table.tolist() == [outer.at(inner.at(i)) for i in range(inner.size)]


def test_most_random_compositions_on_a_power_of_two_grid_are_decided_both_ways() -> None:
    rng = random.Random(7)
    right = wrong = 0
    for _ in range(400):
        outer = make_layout(
            (rng.choice((2, 4, 8)), rng.choice((2, 4, 8))), (rng.choice((1, 2, 8)), rng.choice((1, 16, 100)))
        )
        inner = make_layout((rng.choice((2, 4)), rng.choice((2, 4))), (rng.choice((1, 2, 4)), rng.choice((1, 2, 4, 8))))
        try:
            result = compose(outer, inner)
        except LayoutError as error:
            assert error.left != error.right
            wrong += 1
        else:
            assert result.table.tolist() == [outer.at(inner.at(i)) for i in range(inner.size)]
            right += 1
    assert right > 100
    assert wrong > 20


@settings(deadline=None)
@given(st.data())
def test_linear_maps_compose_as_matrices(data: st.DataObject) -> None:
    inner = data.draw(linear_maps(out_bits=5))
    vectors = [[data.draw(st.integers(0, 63))] for _ in range(5)]
    split = inner.outputs[0].size or 1
    bits = split.bit_length() - 1
    outer = from_bases({"p": vectors[:bits], "q": vectors[bits:]}, [("offset", 64)], data.draw(st.integers(0, 63)))
    result = compose(outer, inner)
    assert result.table.tolist() == [outer.at(inner.at(i)) for i in range(inner.size)]
    assert [axis.name for axis in result.inputs] == ["x", "y"]


def test_a_swizzle_on_the_outside_survives_composition() -> None:
    outer = swizzled(make_layout((8, 64), (64, 1)), 3, 3, 3)
    inner = make_layout((4, 16), (2, 32))
    assert compose(outer, inner).table.tolist() == [outer.at(inner.at(i)) for i in range(inner.size)]


def test_a_swizzle_inside_a_layout_that_is_not_linear_is_refused() -> None:
    with pytest.raises(LayoutError, match="must be linear over F2"):
        compose(parse_layout("(12,8):(8,1)"), parse_layout("Sw<1,1,2> o 0 o 16:1"))


def test_a_swizzle_that_leaves_the_outer_layout_is_refused() -> None:
    inner = parse_layout("Sw<1,0,3> o 0 o 16:1")
    assert compose(make_layout(16), inner).table.tolist() == inner.table.tolist()
    with pytest.raises(LayoutError, match="leaves the 8 elements"):
        compose(make_layout(8), inner)


def test_named_coordinates_must_be_the_same_on_both_sides() -> None:
    inner = from_bases({"lane": [[1, 0], [0, 1]]}, [("dim0", 2), ("dim1", 2)])
    outer = make_layout((4, 1)).named(inputs=["dim0", "dim1"])
    with pytest.raises(LayoutError, match="dim0: 2, dim1: 2, but the outer one takes dim0: 4, dim1: 1"):
        compose(outer, inner)


def test_a_bounded_layout_is_not_read_past_its_end() -> None:
    outer = make_layout(8).named(outputs=[("row", 8)])
    with pytest.raises(LayoutError, match=r"4:3 reaches 9, but 8:1 has 8 elements"):
        compose(outer, parse_layout("4:3"))
    assert compose(make_layout(8), parse_layout("4:3")).table.tolist() == [0, 3, 6, 9]


@settings(deadline=None)
@given(compact_layouts(), st.sampled_from((1, 2, 3, 4)), st.sampled_from((1, 2, 4)))
def test_division_rearranges_the_elements(layout: IndexMap, size: int, stride: int) -> None:
    try:
        divided = logical_divide(layout, make_layout(size, stride))
    except LayoutError:
        return
    assert sorted(divided.table.tolist()) == list(range(layout.size))
    assert [divided(i, 0) for i in range(size)] == [layout.at(i * stride) for i in range(size)]


def test_division_by_axis_keeps_the_tile_inside() -> None:
    layout = make_layout((8, 6), (6, 1))
    zipped = zipped_divide(layout, [make_layout(4), make_layout(2, 3)])
    assert zipped.shape == (8, 6)
    assert [zipped(i, 0) for i in range(8)] == [6 * r + 3 * c for c in range(2) for r in range(4)]
    assert is_injective(zipped)


def test_division_by_a_tile_that_does_not_divide_is_refused() -> None:
    with pytest.raises(LayoutError, match="does not divide 10"):
        logical_divide(make_layout(10), make_layout(4))
