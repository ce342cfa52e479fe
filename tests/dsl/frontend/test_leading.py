"""`A[b].tile(…)`: an index fixes leading dimensions of a tensor."""

from __future__ import annotations

import numpy as np
import pytest

from reading import read
from tilewright.expand import expand, expand_policies
from tilewright.interpret import Violation, run
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.printer import module_source

HEADER = """import tilewright as tw
from tilewright import Global, f16, f32

B, H, M, N, K = tw.sizes("B", "H", "M", "N", "K")

@tw.kernel
def k(X: Global[f32, B, H, N], P: Global[f32, 4, N], OUT: Global[f32, B, H, N]):
    for b, h, i in tw.tiles(B, H, tw.cdiv(N, 16)):
"""


def kernel(body: str) -> ir.Kernel:
    module = read(HEADER + "\n".join("        " + line for line in body.splitlines()) + "\n")
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


def problems(body: str) -> list[tuple[str, str]]:
    module = read(HEADER + "\n".join("        " + line for line in body.splitlines()) + "\n")
    return [(p.code, p.message) for p in module.all_problems if p.severity == "error"]


def views(k: ir.Kernel) -> list[ir.View]:
    return [s.view for s in ir.walk(k.body) if isinstance(s, ir.Load | ir.Store)]


COPY = """x = tw.load({}.tile((i * 16,), (16,)), other=0.0)
tw.store(OUT[b, h].tile((i * 16,), (16,)), x)"""


def test_a_view_keeps_one_entry_a_dimension_and_the_tile_has_the_rest() -> None:
    source, target = views(kernel(COPY.format("X[b, h]")))
    origin = (Var("b"), Var("h"), ex.mul(Var("i"), Int(16)))
    assert (source.origin, source.shape, source.lead, source.tile_shape) == (origin, (1, 1, 16), 2, (16,))
    assert (target.origin, target.lead) == (origin, 2)


@pytest.mark.parametrize("text", ["X[b, h]", "X[b][h]"])
def test_indices_may_follow_each_other(text: str) -> None:
    assert views(kernel(COPY.format(text)))[0].origin[:2] == (Var("b"), Var("h"))


def test_what_is_left_is_a_tensor_too() -> None:
    found = kernel("""m = X[b]
length = m.shape[1]
x = tw.load(m.tile((h, i * 16), (1, 16)), other=0.0).to(m.dtype)
tw.store(OUT[b].tile((h, i * 16), (1, 16)), x + length)""")
    source, target = views(found)
    assert (source.lead, source.tile_shape, target.tile_shape) == (1, (1, 16), (1, 16))
    (added,) = [s for s in ir.walk(found.body) if isinstance(s, ir.Compute) and s.op == "add"]
    assert added.args[1] == ex.Size("N")


def test_a_slice_kept_in_a_name_keeps_its_index() -> None:
    found = kernel("""n = h
row = X[b, n]
n = 0
x = tw.load(row.tile((i * 16,), (16,)), other=0.0)
tw.store(OUT[b, h].tile((i * 16,), (16,)), x)""")
    x = np.arange(2 * 3 * 20, dtype=np.float32).reshape(2, 3, 20)
    out = np.zeros_like(x)
    run(expand(found), [x, np.zeros((4, 20), np.float32), out])
    assert (out == x).all()


@pytest.mark.parametrize("text", ["X[b, h]", "X[B - 1 - b, h // 2]", "X[min(b, 0), 0]"])
def test_printed_kernels_read_back(text: str) -> None:
    written = kernel(COPY.format(text))
    for each in (written, expand_policies(written)):
        again = read(module_source(each))
        assert not again.all_problems, module_source(each)
        found = again.units[0].kernel
        assert found is not None
        assert [(v.origin, v.lead) for v in views(found)] == [(v.origin, v.lead) for v in views(each)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("X[b, h, 0]", "'X' has an index for each of its dimensions here, which leaves one element and no tile"),
        ("X[b, h, 0, 0]", "'X' has 3 dimensions, and each has an index already"),
        ("X[b, h][0]", "one element and no tile"),
        ("P[4]", "index 4 of 'P' is outside 0 … 3"),
        ("P[-1]", "index -1 of 'P' is outside 0 … 3"),
        ("X[-1, h]", "index -1 of 'X' is outside 0 … B - 1"),
        ("X[b, :]", "integer scalars that fix its leading dimensions, not ':'"),
        ("X[1.5, h]", "not the number 1.5"),
        ("X[b]", "'X' has 2 dimensions left; .tile takes as many starts and extents, not 1 and 1"),
    ],
)
def test_what_cannot_be_an_index_is_refused(text: str, words: str) -> None:
    ((code, message),) = problems(COPY.format(text))
    assert code == "TW003" and words in message


def test_a_slice_has_no_other_attributes_and_is_no_view() -> None:
    assert "has no 'size'" in problems("x = X[b].size")[0][1]
    assert "a tile of a tensor such as" in problems("x = tw.load(X[b])")[0][1]


def test_the_interpreter_refuses_an_index_that_does_not_exist() -> None:
    found = kernel(COPY.format("X[b + 1, h]"))
    x = np.zeros((1, 1, 16), np.float32)
    with pytest.raises(Violation, match="index 1 of dimension 0 of X does not exist: its extent is 1") as caught:
        run(expand(found), [x, np.zeros((4, 16), np.float32), x.copy()])
    assert caught.value.kind == "bounds"


def test_groups_of_three_axes_walk_one_matrix_after_the_other() -> None:
    text = """import tilewright as tw
from tilewright import Global, f32

B, M, N = tw.sizes("B", "M", "N")

@tw.kernel
def k(OUT: Global[f32, B, M, N]):
    for b, m, n in tw.tiles(B, M, N, order=tw.grouped(2)):
        tw.store(OUT[b].tile((m, n), (1, 1)), tw.full(f32, (1, 1), 1.0))
"""
    unit = read(text).units[0]
    assert unit.kernel is not None
    body = expand(unit.kernel).body[0]
    assert isinstance(body, ir.Programs)
    sizes = {"B": 2, "M": 3, "N": 2}
    met: list[tuple[int, ...]] = []
    for t in range(ex.evaluate(body.count, sizes)):
        env = {**sizes, body.var: t}
        for s in body.body:
            if isinstance(s, ir.Assign):
                env[s.dst] = ex.evaluate(s.value, env)
        met.append((env["b"], env["m"], env["n"]))
    one = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert met == [(b, *at) for b in (0, 1) for at in one]


def test_groups_need_rows_and_columns() -> None:
    text = HEADER.replace("b, h, i in tw.tiles(B, H, tw.cdiv(N, 16))", "i in tw.tiles(N, order=tw.grouped(2))")
    (problem,) = [p for p in read(text + "        pass\n").all_problems if p.severity == "error"]
    assert (problem.code, "2 or 3 axes" in problem.message) == ("TW009", True)
