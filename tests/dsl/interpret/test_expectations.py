"""Expectations in the interpreter: real tags of every element, and a violation that names the element."""

import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import Schedule, Violation, replay
from tilewright.interpret.execution import compile_kernel, execute_compiled
from tilewright.interpret.replaying import random_arguments
from tilewright.interpret.schedule import Limits
from tilewright.ir import nodes as ir

KERNEL = f"""{HEADER}

@tw.kernel(target="sm_80", warps=4)
def copy(A: Global[f32, M, N], C: Global[f32, M, N]):
    tile = tw.shared(f32, (16, 64))
    for p, q in tw.tiles(tw.cdiv(M, 16), tw.cdiv(N, 64)):
        x = tw.load(A.tile((p * 16, q * 64), (16, 64)), other=0.0)
        tw.store_shared(tile, x)
        tw.tag(tile, PART=lambda i, j: p + i // 8)
        y = tw.load_shared(tile)
        r = tw.reshape(y, (8, 128))
        tw.expect(lambda i, j: CONDITION)
        tw.store(C.tile((p * 16, q * 64), (16, 64)), y)
"""


def explicit(condition: str) -> ir.Kernel:
    (unit,) = read(KERNEL.replace("CONDITION", condition)).units
    assert unit.kernel is not None, unit.problems
    return expand(unit.kernel)


@pytest.mark.parametrize(
    "condition",
    [
        "r[i, j].M == p * 16 + 2 * i + j // 64",
        "y[i, j].N == q * 64 + j and y[i, j].PART == p + i // 8",
        "y[i, j + 1].N == y[i, j].N + 1",
        "tile[i, j].M < 16 * p + 16 or y[i, j].N < 0",
        "y.at(0, i, j).M >= 0",
    ],
)
def test_what_holds_is_not_refused(condition):
    assert replay(explicit(condition), {"M": 33, "N": 70}, tries=3) is None


@pytest.mark.parametrize(
    ("condition", "element", "program"),
    [
        ("r[i, j].M == p * 16 + 2 * i", (0, 64), 0),
        ("y[i, j].PART == p", (8, 0), 0),
        ("y[i, j].N == j", (0, 0), 1),
        ("y[i, j].M % 8 == i", (8, 0), 0),
        ("y[i, j + 1].N == y[i, j].N + 1 and y[i, j].N != 62 + 64 * q", (0, 62), 0),
    ],
)
def test_what_does_not_hold_names_the_element(condition, element, program):
    found = replay(explicit(condition), {"M": 33, "N": 70}, tries=0, code="TW106")
    assert found is not None and found.kind == "expectation"
    assert (found.element, found.program) == (element, program)
    assert "does not hold for" in found.message and found.values


def test_runs_without_tags_do_not_look():
    kernel = explicit("y[i, j].N == 7")
    compiled = compile_kernel(kernel, Limits())
    sizes = {"M": 5, "N": 5}
    execute_compiled(compiled, random_arguments(kernel, sizes, 0), Schedule(), None)
    with pytest.raises(Violation, match=r"y\[i, j\]\.N is 0"):
        execute_compiled(compiled, random_arguments(kernel, sizes, 0), Schedule(tags=True), None)
