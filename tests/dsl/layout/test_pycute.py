"""pycute as an optional oracle: equal where it is right, refused where it is silently wrong.

`pip install --no-deps nvidia-cutlass==4.2.0.0` brings it.
"""

import random
from typing import Any

import pytest

from tilewright.layout import LayoutError, coalesce, compose, make_layout, right_inverse

pycute: Any = pytest.importorskip("pycute", reason="pycute comes with nvidia-cutlass, which is optional")


def test_random_compositions_and_inverses() -> None:
    rng = random.Random(3)
    equal = silent = 0
    for _ in range(3000):
        shapes = [tuple(rng.choice((2, 3, 4, 8)) for _ in range(rng.randint(1, 3))) for _ in range(2)]
        strides = [tuple(rng.choice((1, 2, 4, 8, 16, 3, 100)) for _ in shape) for shape in shapes]
        outer, inner = (make_layout(shape, stride) for shape, stride in zip(shapes, strides, strict=True))
        theirs = [pycute.Layout(shape, stride) for shape, stride in zip(shapes, strides, strict=True)]
        assert pycute.size(pycute.coalesce(theirs[0])) == coalesce(outer).size
        assert pycute.size(pycute.right_inverse(theirs[0])) <= right_inverse(outer).size
        try:
            answer = pycute.composition(*theirs)
        except AssertionError:
            continue
        wrong = [i for i in range(inner.size) if answer(i) != outer.at(inner.at(i))]
        try:
            result = compose(outer, inner)
        except LayoutError:
            # Wrong values, or a digit cut short, so that the result has fewer elements than the inner layout.
            assert wrong or pycute.size(answer) != inner.size
            silent += 1
        else:
            assert [result.at(i) for i in range(inner.size)] == [outer.at(inner.at(i)) for i in range(inner.size)]
            equal += not wrong
    assert equal > 300
    assert silent > 100
