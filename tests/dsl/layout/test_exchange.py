"""What a change of layout takes, against a list of who has and who needs which element."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.layout import Blocked, DistributedLayout, DotOperand, MmaV2, Slice, Wgmma, exchange


def listed(source: DistributedLayout, target: DistributedLayout, shape: tuple[int, ...]) -> str:
    old, new = source.linear(shape), target.linear(shape)

    def owned(layout, by: tuple[str, ...]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
        found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        axes = {a.name: a.extent for a in layout.inputs}
        for index in product(*(range(n) for n in axes.values())):
            at = dict(zip(axes, index, strict=True))
            found.setdefault(tuple(at[b] for b in by), set()).add(tuple(layout.apply(**at).values()))
        return found

    for name, by in (("registers", ("lane", "warp")), ("lanes", ("warp",))):
        has, needs = owned(old, by), owned(new, by)
        if all(needs[who] <= has[who] for who in needs):
            return name
    return "warps"


ROWS = Blocked((1, 8), (4, 8), (4, 1), (1, 0))


@pytest.mark.parametrize(
    ("source", "target", "shape", "want"),
    [
        (ROWS, ROWS, (16, 64), "registers"),
        (ROWS, Blocked((1, 4), (4, 8), (4, 1), (1, 0)), (16, 64), "lanes"),
        (ROWS, Blocked((1, 8), (4, 8), (1, 4), (1, 0)), (16, 256), "warps"),
        (MmaV2((4, 1)), ROWS, (64, 64), "warps"),
        (Wgmma((4, 1), (16, 64, 16)), DotOperand(0, Wgmma((4, 1), (16, 64, 16)), 2), (64, 64), "registers"),
        (Slice(1, ROWS), Slice(1, Blocked((1, 4), (4, 8), (4, 1), (1, 0))), (16,), "registers"),
    ],
    ids=str,
)  # fmt: skip
def test_cases(source, target, shape, want) -> None:
    assert exchange(source.linear(shape), target.linear(shape)) == want == listed(source, target, shape)


@st.composite
def blocked(draw: st.DrawFn) -> Blocked:
    lanes, warps = draw(st.integers(0, 5)), draw(st.integers(0, 2))
    order = draw(st.sampled_from([(1, 0), (0, 1)]))
    size = tuple(1 << draw(st.integers(0, 2)) for _ in range(2))
    return Blocked(size, (1 << lanes, 32 >> lanes), (1 << warps, 4 >> warps), order)


@settings(deadline=None, max_examples=15)
@given(blocked(), blocked(), st.sampled_from([(8, 8), (4, 16), (32, 2)]))
def test_any_two_layouts(source: Blocked, target: Blocked, shape: tuple[int, int]) -> None:
    assert exchange(source.linear(shape), target.linear(shape)) == listed(source, target, shape)
