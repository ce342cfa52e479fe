"""What pycute's own tests expect of coalesce, composition, complement, inverses, products and swizzles.

The cases are those of test/python/pycute in NVIDIA/cutlass (BSD-3-Clause); each is checked against the definition by
enumeration. Where pycute answers wrongly or without meaning, the test says that ours refuses.
"""

import pytest

from tilewright.layout import (
    IndexMap,
    LayoutError,
    coalesce,
    complement,
    compose,
    left_inverse,
    logical_product,
    make_layout,
    parse_layout,
    right_inverse,
    swizzled,
)

COALESCE = [
    "1:0",
    "1:1",
    "(2,4)",
    "(2,4,6)",
    "(2,4,6):(1,6,2)",
    "(2,1,6):(1,7,2)",
    "(2,1,6):(4,7,8)",
    "(2,(4,6))",
    "(2,4):(4,1)",
    "(2,4,6):(24,6,1)",
    "(2,1,3):(2,4,4)",
    "((2,2),(2,2)):((1,4),(8,32))",
]

COMPOSE = [
    "1:0∘1:0",
    "1:0∘1:1",
    "1:1∘1:0",
    "1:1∘1:1",
    "4∘4",
    "4:2∘4",
    "4∘4:2",
    "4:0∘4",
    "4∘4:0",
    "1:0∘4",
    "4∘1:0",
    "4∘2",
    "4:2∘2",
    "4∘2:2",
    "4:2∘2:2",
    "12∘(4,3)",
    "12:2∘(4,3)",
    "12∘(4,3):(3,1)",
    "12:2∘(4,3):(3,1)",
    "12∘(2,3):(2,4)",
    "(4,3)∘(4,3)",
    "(4,3)∘12",
    "(4,3)∘6:2",
    "(4,3)∘(6,2):(2,1)",
    "(4,3):(3,1)∘(4,3)",
    "(4,3):(3,1)∘12",
    "(4,3):(3,1)∘6:2",
    "(8,8)∘((2,2,2),(2,2,2)):((1,16,4),(8,2,32))",
    "(8,8):(8,1)∘((2,2,2),(2,2,2)):((1,16,4),(8,2,32))",
    "((2,2,2),(2,2,2)):((1,16,4),(8,2,32))∘8:4",
    "(4,2):(1,16)∘(4,2):(2,1)",
    "(2,2):(2,1)∘(2,2):(2,1)",
    "(4,8,2)∘(2,2,2):(2,8,1)",
    "(4,8,2):(2,8,1)∘(2,2,2):(1,8,2)",
    "(4,8,2):(2,8,1)∘(4,2,2):(2,8,1)",
    "(4,6,8):(1,4,7)∘6:1",
    "(4,6,8,10):(2,3,5,7)∘6:12",
]

COMPLEMENT = [
    "1:0",
    "1:1",
    "4:0",
    "(2,4):(1,2)",
    "(2,3):(1,2)",
    "(2,4):(1,4)",
    "(2,4,8):(8,1,64)",
    "((2,2),(2,2)):((1,4),(8,32))",
    "(2,(3,4)):(3,(1,6))",
]

LEFT = [
    "1:0",
    "(1,1):(0,0)",
    "1:1",
    "4:1",
    "4:2",
    "(8,4):(1,8)",
    "(8,4):(4,1)",
    "(2,4,6):(1,2,8)",
    "(2,4,6):(4,1,8)",
    "(4,2):(1,16)",
]
RIGHT = [*LEFT, "(3,7):(0,0)", "4:0", "(2,4):(0,2)"]

PRODUCT = [
    "1:0×1:0",
    "1:1×1:0",
    "1:0×1:1",
    "1:1×1:1",
    "3:1×4:0",
    "3:0×4:1",
    "3:0×4:0",
    "3:2×4:1",
    "3×(2,4)",
    "(2,5):(5,1)×4",
    "(4,8)×16",
]


@pytest.mark.parametrize("text", COALESCE)
def test_coalesce_keeps_the_function(text: str) -> None:
    layout = parse_layout(text)
    result = coalesce(layout)
    assert result.table.tolist() == layout.table.tolist()
    assert len(result.digits) <= len(layout.digits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(2,1,6):(1,7,2)", "12:1"),
        ("(2,1,6):(4,7,8)", "12:4"),
        ("(2,(4,6)):(1,(2,8))", "48:1"),
        ("((2,2),(2,2)):((1,4),(8,32))", "(2,4,2):(1,4,32)"),
    ],
)
def test_coalesce_merges_what_continues(text: str, expected: str) -> None:
    assert coalesce(parse_layout(text)).digits == parse_layout(expected).digits


@pytest.mark.parametrize("pair", COMPOSE)
def test_composition_is_the_function_composed(pair: str) -> None:
    outer, inner = map(parse_layout, pair.split("∘"))
    result = compose(outer, inner)
    assert result.shape == inner.shape
    assert [result.at(i) for i in range(inner.size)] == [outer.at(inner.at(i)) for i in range(inner.size)]


@pytest.mark.parametrize("text", COMPLEMENT)
def test_complement_tiles_the_codomain_once(text: str) -> None:
    layout = parse_layout(text)
    for size in (None, 2 * complement(layout).size * distinct(layout)):
        rest = complement(layout, size)
        sums = sorted(a + b for a in set(layout.table.tolist()) for b in rest.table.tolist())
        assert sums == list(range(len(sums)))
        assert size is None or len(sums) == size


@pytest.mark.parametrize(("text", "stride", "reach"), [("(4,6):(1,6)", 6, 4), ("(4,10):(1,10)", 10, 4)])
def test_complement_that_pycute_answers_without_meaning_is_refused(text: str, stride: int, reach: int) -> None:
    with pytest.raises(LayoutError, match=f"stride {stride} is not a multiple of {reach}") as caught:
        complement(parse_layout(text))
    assert (caught.value.left, caught.value.right) == (stride, reach)


@pytest.mark.parametrize("text", LEFT)
def test_left_inverse_undoes_the_layout(text: str) -> None:
    layout = parse_layout(text)
    undo = left_inverse(layout)
    assert [undo.at(layout.at(i)) for i in range(layout.size)] == list(range(layout.size))


@pytest.mark.parametrize("text", RIGHT)
def test_right_inverse_finds_each_value(text: str) -> None:
    layout = parse_layout(text)
    find = right_inverse(layout)
    assert [layout.at(find.at(v)) for v in range(find.size)] == list(range(find.size))


@pytest.mark.parametrize(("text", "size"), [("(8,4):(4,1)", 32), ("(2,4):(0,2)", 1), ("(4,2):(1,16)", 4), ("4:0", 1)])
def test_right_inverse_reaches_as_far_as_values_do(text: str, size: int) -> None:
    assert right_inverse(parse_layout(text)).size == size


@pytest.mark.parametrize("pair", PRODUCT)
def test_product_repeats_the_layout_at_the_tilers_places(pair: str) -> None:
    layout, tiler = map(parse_layout, pair.split("×"))
    result = logical_product(layout, tiler)
    assert result.shape == (layout.size, tiler.size)
    assert [result(i, 0) for i in range(layout.size)] == layout.table.tolist()
    copies = [sorted(result(i, j) for i in range(layout.size)) for j in range(tiler.size)]
    if len(set(tiler.table.tolist())) == tiler.size:
        flat = [value for copy in copies for value in set(copy)]
        assert len(flat) == len(set(flat))


def test_product_has_the_documented_strides() -> None:
    assert str(logical_product(parse_layout("(2,5):(5,1)"), parse_layout("4"))) == "((2,5),4):((5,1),10)"


def test_product_of_a_layout_with_gaps_fills_them() -> None:
    assert str(logical_product(parse_layout("3:5"), parse_layout("4"))) == "(3,4):(5,1)"
    with pytest.raises(LayoutError, match="does not fill digit 5:1 evenly"):
        logical_product(parse_layout("3:5"), parse_layout("7"))


def test_prefix_products_are_the_compact_strides() -> None:
    assert str(parse_layout("((2,3),(2,1,2),(5,2,1))")) == ("((2,3),(2,1,2),(5,2,1)):((1,2),(6,12,12),(24,120,240))")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ((2, 3, -3), [0, 1, 2, 7, 72, 73, 79, 144, 255, 64, 63, 256]),
        ((1, 0, 1), [0, 1, 3, 6, 8, 9, 14, 16, 62, 64, 254, 256]),
        ((3, 2, 3), [0, 1, 2, 7, 8, 9, 15, 16, 59, 72, 227, 256]),
        ((2, 1, -2), [0, 1, 10, 31, 8, 9, 23, 16, 39, 64, 231, 256]),
        ((0, 4, 0), [0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 255, 256]),
    ],
)
def test_swizzles_match_cute(parameters: tuple[int, int, int], expected: list[int]) -> None:
    layout = swizzled(make_layout(512), *parameters)
    assert [layout.at(x) for x in (0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 255, 256)] == expected
    assert [layout.at(layout.at(x)) for x in range(256)] == list(range(256))


def distinct(layout: IndexMap) -> int:
    return len(set(layout.table.tolist()))
