from __future__ import annotations

import pytest

from tilewright.interpret.tags import LOST, Axis, Covered, Tag, TagError, check_store, combine, matrix_product

EMPTY = Tag((None, None))


def axis(label: str, start: int, extent: int = 40) -> Axis:
    return Axis(label, start, extent)


def operand(rows: Axis | None, columns: Axis | None) -> Tag:
    return Tag((rows, columns))


def step(acc: Tag, k: int, row: int = 16) -> Tag:
    return matrix_product(operand(axis("M", row), axis("K", k)), operand(axis("K", k), axis("N", 0)), acc, 8)


def test_chunks_in_any_order_cover_the_contraction() -> None:
    acc = EMPTY
    for k in (8, 0, 32, 16, 24):
        acc = step(acc, k)
    assert acc.axes == (axis("M", 16), axis("N", 0))
    assert acc.covered == {"K": Covered(40, ((0, 40),))}
    check_store(acc, (axis("M", 16), axis("N", 0)))


def test_the_tail_ends_at_the_extent() -> None:
    short = operand(axis("M", 0), Axis("K", 8, 12))
    acc = matrix_product(short, operand(Axis("K", 8, 12), axis("N", 0)), EMPTY, 8)
    assert acc.covered["K"].ranges == ((8, 12),)


def test_a_chunk_past_the_end_adds_nothing() -> None:
    assert step(EMPTY, 40).covered["K"].ranges == ()


def test_different_chunks_do_not_align() -> None:
    with pytest.raises(TagError, match="first start at K = 8, rows of the second at K = 16") as caught:
        matrix_product(operand(None, axis("K", 8)), operand(axis("K", 16), None), EMPTY, 8)
    assert caught.value.kind == "alignment"


def test_different_dimensions_do_not_align() -> None:
    with pytest.raises(TagError):
        matrix_product(operand(None, axis("K", 0)), operand(axis("N", 0), None), EMPTY, 8)


def test_a_chunk_counted_twice_is_refused() -> None:
    with pytest.raises(TagError, match=r"K = \[0, 8\) is contracted twice") as caught:
        step(step(step(EMPTY, 0), 8), 0)
    assert caught.value.kind == "completeness"


def test_a_gap_is_refused_at_the_store() -> None:
    acc = step(step(EMPTY, 0), 16)
    with pytest.raises(TagError, match=r"covers \[0, 8\) \+ \[16, 24\), expected \[0, 40\)") as caught:
        check_store(acc, (axis("M", 16), axis("N", 0)))
    assert caught.value.kind == "completeness"


def test_rows_of_another_tile_are_refused() -> None:
    with pytest.raises(TagError, match=r"rows of the accumulator carry M = 16") as caught:
        step(step(EMPTY, 0), 8, row=32)
    assert caught.value.kind == "placement"
    with pytest.raises(TagError, match=r"carries M = 16…, but is stored at M = 0"):
        check_store(operand(axis("M", 16), None), (axis("M", 0), axis("N", 0)))


def test_unknown_coordinates_are_never_refused() -> None:
    assert matrix_product(EMPTY, EMPTY, EMPTY, 8) == EMPTY
    check_store(EMPTY, (axis("M", 0), axis("N", 0)))
    check_store(operand(axis("M", 16), axis("N", 0)), (None, axis("N", 0)))


def test_elementwise_results_keep_what_operands_agree_on() -> None:
    one, other = operand(axis("M", 0), axis("N", 0)), operand(axis("M", 0), axis("N", 8))
    got = combine([(one, (4, 8)), (other, (4, 8))], (4, 8), addition=True)
    assert got.axes == (axis("M", 0), LOST)
    # A third operand does not bring a coordinate back, and no store is refused for it.
    again = combine([(got, (4, 8)), (other, (4, 8))], (4, 8), addition=True)
    assert again.axes == (axis("M", 0), LOST)
    check_store(again, (axis("M", 0), axis("N", 0)))


def test_a_broadcast_axis_says_nothing() -> None:
    got = combine([(operand(axis("M", 0), axis("N", 0)), (4, 1)), (EMPTY, (4, 8))], (4, 8), addition=False)
    assert got.axes == (axis("M", 0), None)
    row = combine([(Tag((axis("N", 0),)), (8,)), (EMPTY, (4, 8))], (4, 8), addition=False)
    assert row.axes == (None, axis("N", 0))


def test_split_accumulators_cover_the_union() -> None:
    halves = step(step(EMPTY, 0), 16), step(step(step(EMPTY, 8), 24), 32)
    total = combine([(h, (16, 16)) for h in halves], (16, 16), addition=True)
    assert total.covered["K"].ranges == ((0, 40),)


def test_a_sum_of_the_same_accumulator_covers_what_it_did() -> None:
    half = step(EMPTY, 0)
    assert combine([(half, (16, 16))] * 2, (16, 16), addition=True).covered == half.covered
