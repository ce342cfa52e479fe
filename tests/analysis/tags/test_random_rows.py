"""Random kernels over rows with an edge: what is proved gives, past the edge, what tiles of the exact width give."""

import random

import numpy as np
import pytest

from reading import read
from support import whole
from tilewright.expand import expand
from tilewright.interpret import run
from tilewright.interpret.numeric import Array
from tilewright.ir import nodes as ir
from tilewright_analysis.checks import CHECKS
from tilewright_analysis.driver import check_kernel

UNARY = (
    "tw.exp({a})", "tw.abs({a})", "-{a}", "{a} * 0.5", "{a} + 1.0", "{a} * {a}", "tw.maximum({a}, 0.0)",
    "tw.minimum({a}, 1.0)", "tw.sqrt(tw.abs({a}))", "tw.where(cols < N, {a}, 0.0)", "tw.where(cols < N, {a}, -tw.inf)",
    "tw.where(cols < N - 1, {a}, 0.0)", "tw.where(cols + 1 <= N, {a}, 0.0)", "tw.sigmoid({a})", "tw.tanh({a})",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "tw.maximum({a}, {b})", "tw.where({a} < {b}, {a}, {b})",
    "tw.where(cols >= N, {a}, {b})",
)  # fmt: skip
REDUCE = (
    "tw.sum({a}, axis=1, keep_dims=True)", "tw.max({a}, axis=1, keep_dims=True)",
    "tw.min({a}, axis=1, keep_dims=True)", "tw.sum({a}, axis=1, keep_dims=True) / N",
)  # fmt: skip
TEXT = """
@tw.kernel(target="sm_80", warps=4)
def rows(X: Global[f32, M, N], Y: Global[f32, M, N], V: Global[f32, M, 1], W: Global[f32, M, N]):
    tw.assume(N <= {width})
    cols = tw.arange({width})[None, :]
    for i in tw.tiles(tw.cdiv(M, 4)):
        x = tw.load(X.tile((i * 4, 0), (4, {width})), other={first})
        y = tw.load(Y.tile((i * 4, 0), (4, {width})), other={second})
{lines}
        tw.store(V.tile((i * 4, 0), (4, 1)), {reduced})
        tw.store(W.tile((i * 4, 0), (4, {width})), {full})
"""


def written(seed: int, width: int) -> str:
    choose = random.Random(seed)
    full, reduced, lines = ["x", "y"], [], []
    for i in range(choose.randint(2, 6)):
        kind = choose.random() if i else 1.0
        if kind < 0.35:
            value = choose.choice(UNARY).format(a=choose.choice(full))
        elif kind < 0.7:
            a, b = choose.choice(full), choose.choice(full + reduced)
            a, b = (b, a) if choose.random() < 0.3 and b not in reduced else (a, b)
            value = choose.choice(BINARY).format(a=a, b=b)
        else:
            value = choose.choice(REDUCE).format(a=choose.choice(full))
        (reduced if kind >= 0.7 else full).append(f"t{i}")
        lines.append(f"        t{i} = {value}")
    return TEXT.format(
        width=width, first=choose.choice(("0.0", "-tw.inf", "1.0")), second=choose.choice(("0.0", "-tw.inf", "tw.inf")),
        lines="\n".join(lines), reduced=reduced[-1], full=full[-1],
    )  # fmt: skip


def kernel(text: str) -> ir.Kernel:
    (unit,) = read(whole(text)).units
    assert unit.kernel is not None, unit.problems
    return unit.kernel


def results(explicit: ir.Kernel, columns: int, seed: int) -> tuple[Array, Array]:
    draw = np.random.default_rng(seed)
    x, y = (draw.integers(-4, 5, (5, columns)).astype(np.float32) / (1 + seed) for _ in range(2))
    v, w = np.zeros((5, 1), np.float32), np.zeros((5, columns), np.float32)
    run(explicit, [x, y, v, w])
    return v, w


def attack(seed: int) -> str:
    """The verdict on a random kernel, after an attempt to show that "proved" is wrong."""
    report = check_kernel(kernel(written(seed, 16)), checks=[c for c in CHECKS if c.name == "tags.validity"])
    if report.verdict == "proved":
        wide = expand(kernel(written(seed, 16)))
        for columns in (1, 2, 4, 8):
            narrow = expand(kernel(written(seed, columns)))
            for draw in range(2):
                for got, want in zip(results(wide, columns, draw), results(narrow, columns, draw), strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=written(seed, 16))
    return report.verdict


def test_what_is_proved_does_not_depend_on_lanes_past_the_edge() -> None:
    verdicts = [attack(seed) for seed in range(60)]
    assert verdicts.count("proved") >= 5
    assert verdicts.count("refuted") >= 20


@pytest.mark.slow
def test_what_is_proved_does_not_depend_on_lanes_past_the_edge_at_length() -> None:
    verdicts = [attack(seed) for seed in range(60, 1200)]
    assert verdicts.count("proved") >= 100
