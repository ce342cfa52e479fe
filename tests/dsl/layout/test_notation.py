"""The two notations read, print and convert into each other."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.layout import (
    IndexMap,
    LayoutError,
    MmaV2,
    bases_of,
    difference,
    format_bases,
    from_bases,
    make_layout,
    parse_layout,
    swizzled,
    to_cute,
)

from .strategies import linear_maps, plain_layouts


@pytest.mark.parametrize(
    "text",
    [
        "8:1",
        "(128,64):(64,1)",
        "((2,4),(3,5)):((1,100),(2,7))",
        "16 + (8,8):(8,1)",
        "Sw<3,4,3> o 0 o (8,64):(64,1)",
        "Sw<2,0,-3> o 5 o 8:8",
        "F2<3,6,5> o 0 o (2,4):(1,2)",
        "(4,4):(-1,0)",
    ],
)
def test_cute_notation_round_trips(text: str) -> None:
    assert str(parse_layout(text)) == text


def test_cute_notation_is_lenient_in_what_it_reads() -> None:
    assert parse_layout(" ( 8, 4 ) : ( 4, 1 ) ") == parse_layout("(8,4):(4,1)")
    assert parse_layout("(8,(2,3))") == parse_layout("(8,(2,3)):(1,(8,16))")
    assert parse_layout("Sw<3,4,3> o (8,64):(64,1)") == parse_layout("Sw<3,4,3> o 0 o (8,64):(64,1)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(8,4", r"column 5: expected '\)'"),
        ("(8,4):(4,1) x", "column 12: expected the end of the layout"),
        ("(8,x):1", "column 4: expected a number"),
        ("", "column 1: expected a number"),
        ("(8,4):(1,(2,3))", "do not nest alike"),
        ("(8,4):4", "do not nest alike"),
        ("(8,0):(1,8)", "size 0 is not positive"),
        ("Sw<3,4> o 8:1", "three numbers"),
        ("Sw<3,4,2> o 8:1", r"\|S\| not less than B"),
        ("Sw<1,0,1> o 0 o 4:-1", r"spans \[-3, 0\]"),
        ("(1,2) + 8:1", "the offset is one number"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        parse_layout(text)


@settings(deadline=None)
@given(plain_layouts())
@example(parse_layout("1 + 4:1"))
@example(parse_layout("1 + 2:1"))
def test_a_layout_is_linear_exactly_when_no_addition_carries(layout: IndexMap) -> None:
    """The disjoint-bits test against the definition f(x ^ y) = f(x) ^ f(y) ^ f(0)."""
    values = layout.table.tolist()
    if any(size & (size - 1) for size, _ in layout.digits):
        assert layout.columns is None
        return
    linear = all(
        values[x ^ y] == values[x] ^ values[y] ^ values[0] for x in range(layout.size) for y in range(layout.size)
    )
    if layout.columns is not None:
        for index, value in enumerate(values):
            for bit, column in enumerate(layout.columns):
                value ^= column if index >> bit & 1 else 0
            assert value == layout.origin
    if layout.offset:
        # An offset may carry into a single bit and still be an xor (1 + 1·x is 1 ^ 3·x); such maps stay affine.
        assert layout.columns is None or linear
    else:
        assert (layout.columns is not None) == linear


@settings(deadline=None)
@given(linear_maps())
def test_linear_notation_round_trips(layout: IndexMap) -> None:
    again = from_bases(bases_of(layout), [(o.name, o.size or 1) for o in layout.outputs], layout.origin)
    assert difference(again, layout) is None
    for index in range(layout.size):
        expected = layout.origin
        position = 0
        for name, vectors in bases_of(layout).items():
            for vector in vectors:
                expected ^= layout.pack(vector) if index >> position & 1 else 0
                position += 1
            assert name in "xy"
        assert layout.at(index) == expected


@settings(deadline=None)
@given(
    st.sampled_from([(1, 0, 1), (2, 0, 3), (3, 3, 3), (2, 4, 3), (1, 1, -2), (2, 0, -2)]),
    st.permutations([1, 2, 4, 8, 16, 32, 64, 128, 256]),
)
def test_a_swizzle_is_found_again_in_the_bases(parameters: tuple[int, int, int], strides: list[int]) -> None:
    layout = swizzled(make_layout((2,) * 9, tuple(strides)), *parameters)
    linear = from_bases(bases_of(layout.named(outputs=[("offset", 512)])), [("offset", 512)])
    found = to_cute(linear)
    assert difference(found, layout) is None
    assert "F2" not in str(found)


def test_a_matrix_that_is_no_swizzle_stays_a_matrix() -> None:
    layout = from_bases({"x": [[1], [3], [7]]}, [("p", 8)])
    assert str(layout) == "F2<1,3,7> o 0 o 8:1"
    with pytest.raises(LayoutError, match="no CuTe swizzle"):
        to_cute(layout)


def test_linear_notation_as_text() -> None:
    assert format_bases(MmaV2((2, 1)).linear((32, 8))) == (
        "register [0,1] [8,0]; lane [0,2] [0,4] [1,0] [2,0] [4,0]; warp [16,0]"
    )
    with pytest.raises(LayoutError, match="not linear over F2"):
        format_bases(parse_layout("(3,4):(1,3)"))


def test_bases_outside_the_tile_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"basis \[8\] of x leaves p, which has size 8"):
        from_bases({"x": [[8]]}, [("p", 8)])
    with pytest.raises(LayoutError, match="needs powers of two"):
        from_bases({"x": [[1]]}, [("p", 6)])


def test_coordinates_by_name_and_by_nesting() -> None:
    layout = parse_layout("((2,4),8):((1,100),2)")
    assert layout((1, 3), 2) == layout(7, 2) == layout(7 + 8 * 2) == 305
    assert layout.apply(**{"0": 7, "1": 2}) == {"offset": 305}
    with pytest.raises(LayoutError, match=r"1 = 8 is outside \[0, 8\)"):
        layout.apply(**{"1": 8})
    with pytest.raises(LayoutError, match="no input 'lane'"):
        layout.apply(lane=1)
    with pytest.raises(LayoutError, match="coordinate 8 is outside the 8 values of 8"):
        layout(0, 8)
    with pytest.raises(LayoutError, match="2 coordinates expected, got 3"):
        layout(1, 2, 3)
