"""Single elements of tensors through all layers: as tiles of shape (), and where they decide the place of a copy."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import Schedule, Violation, run
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.lower import compile_lowered, lower
from tilewright.printer import module_source

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")

SCALED = """
E = tw.sizes("E")

@tw.kernel(target="TARGET", warps=4)
def scaled(X: Global[f32, M, N], S: Global[f16, M], Q: Global[f32, E, 2], IDS: Global[tw.i32, M], Y: Global[f32, M, N]):
    tw.assume(lambda m: 0 <= IDS[m] < E)
    for m, j in tw.tiles(M, tw.cdiv(N, 32)):
        e = tw.load(IDS[m])
        x = tw.load(X[m].tile((j * 32,), (32,)), other=0.0)
        tw.store(Y[m].tile((j * 32,), (32,)), x * tw.load(S[m]).to(f32) * tw.load(Q[e, 1]))
"""
PAGED = """
P, S, B = tw.sizes("P", "S", "B")

@tw.kernel(target="TARGET", warps=4)
def paged(Q: Global[f16, B, 64, 64], V: Global[f16, P, 64, 64], TABLE: Global[tw.i32, B, S], Y: Global[f32, B, 64, 64]):
    tw.assume(lambda b, s: 0 <= TABLE[b, s] < P)
    for b in tw.tiles(B):
        acc = tw.zeros(f32, (64, 64))
        for s in tw.pipeline(0, S, 1, stages=3, roles="ROLES"):
            page = tw.load(TABLE[b, s])
            q = tw.load(Q[b].tile((0, 0), (64, 64)))
            v = tw.load(V[page].tile((0, 0), (64, 64)))
            acc = tw.mma(q, v, acc)
        tw.store(Y[b].tile((0, 0), (64, 64)), acc)
"""
PLACES = [("sm_80", "single"), ("sm_90a", "split"), ("sm_90a", "single"), ("sm_100a", "split"), ("gfx942", "single")]


def kernel(text: str, target: str, roles: str = "single") -> ir.Kernel:
    module = read(HEADER + text.replace("TARGET", target).replace("ROLES", roles))
    (unit,) = module.units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return unit.kernel


def reads_back(explicit: ir.Kernel) -> bool:
    (unit,) = read(module_source(explicit)).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    return expand(unit.kernel).body == explicit.body


@pytest.mark.parametrize(("m", "n", "e"), [(1, 1, 1), (5, 70, 3)])
def test_an_element_of_floating_point_broadcasts(m: int, n: int, e: int) -> None:
    random = np.random.default_rng(m)
    x, s, q = (random.integers(-4, 5, shape) / 2 for shape in ((m, n), (m,), (e, 2)))
    ids, y = random.integers(0, e, m).astype(np.int32), np.zeros((m, n), np.float32)
    explicit = expand(kernel(SCALED, "sm_80"))
    run(explicit, [x.astype(np.float32), s.astype(np.float16), q.astype(np.float32), ids, y])
    np.testing.assert_array_equal(y, x * s[:, None] * q[ids, 1][:, None])
    assert reads_back(explicit)


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "gfx942"])
def test_elements_of_floating_point_compile(target: str) -> None:
    assert compile_lowered(lower(expand(kernel(SCALED, target)))).num_warps == 4


def test_an_element_that_does_not_exist() -> None:
    explicit = expand(kernel(SCALED.replace("S[m]", "S[m + 1]"), "sm_80"))
    arrays = [
        np.zeros((1, 4), np.float32),
        np.zeros(1, np.float16),
        np.zeros((1, 2), np.float32),
        np.zeros(1, np.int32),
    ]
    with pytest.raises(Violation, match="index 1"):
        run(explicit, [*arrays, np.zeros((1, 4), np.float32)])


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize(("target", "roles"), PLACES)
def test_copies_run_ahead_to_where_elements_say(target: str, roles: str, slots: int) -> None:
    random = np.random.default_rng(slots)
    q, v = (random.integers(-2, 3, (n, 64, 64)).astype(np.float16) for n in (2, 4))
    table, y = random.integers(0, 4, (2, slots)).astype(np.int32), np.zeros((2, 64, 64), np.float32)
    explicit = expand(kernel(PAGED, target, roles))
    run(explicit, [q, v, table, y], schedule=Schedule(happens_before=True))
    expected = [sum(q[b].astype(np.float32) @ v[p].astype(np.float32) for p in table[b]) for b in range(2)]
    np.testing.assert_array_equal(y, expected)
    assert reads_back(explicit)


@needs_triton
@pytest.mark.parametrize(("target", "roles"), PLACES)
def test_copies_to_where_elements_say_compile(target: str, roles: str) -> None:
    explicit = expand(kernel(PAGED, target, roles))
    copies = (s for s in ir.walk(explicit.body) if isinstance(s, ir.CpAsync | ir.TmaLoad | ir.Load))
    assert not any(True for s in copies for o in s.view.origin for _ in ex.items(o))
    assert compile_lowered(lower(explicit)).num_warps >= 4
