"""Hypothesis strategies for layouts."""

from __future__ import annotations

from hypothesis import strategies as st

from tilewright.layout import IndexMap, from_bases, make_layout


def shapes(max_modes: int = 3, sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 8)) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(sizes), min_size=1, max_size=max_modes).map(tuple)


@st.composite
def plain_layouts(draw: st.DrawFn, strides: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 100)) -> IndexMap:
    """Affine layouts of up to three modes, broadcast, overlapping and with gaps."""
    shape = draw(shapes())
    stride = tuple(draw(st.sampled_from(strides)) for _ in shape)
    return make_layout(shape, stride, draw(st.sampled_from((0, 0, 0, 1, 5))))


@st.composite
def compact_layouts(draw: st.DrawFn) -> IndexMap:
    """Bijections onto [0, size): the compact strides of some order of the modes."""
    shape = draw(shapes())
    order = draw(st.permutations(range(len(shape))))
    strides, scale = [0] * len(shape), 1
    for position in order:
        strides[position] = scale
        scale *= shape[position]
    return make_layout(shape, tuple(strides))


@st.composite
def linear_maps(draw: st.DrawFn, in_bits: int | None = None, out_bits: int | None = None) -> IndexMap:
    """Random F2 maps (x, y) -> (p, q), of any rank, with an origin."""
    bits = in_bits if in_bits is not None else draw(st.integers(0, 7))
    width = out_bits if out_bits is not None else draw(st.integers(1, 7))
    split_in, split_out = draw(st.integers(0, bits)), draw(st.integers(0, width))
    sizes = (1 << split_out, 1 << width - split_out)
    vectors = [[draw(st.integers(0, size - 1)) for size in sizes] for _ in range(bits)]
    origin = draw(st.integers(0, (1 << width) - 1))
    return from_bases({"x": vectors[:split_in], "y": vectors[split_in:]}, [("p", sizes[0]), ("q", sizes[1])], origin)
