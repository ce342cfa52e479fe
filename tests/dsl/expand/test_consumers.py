"""Roles that share what is loaded: what rows are divided into, in which order products run, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.interpret import run
from tilewright.ir import nodes as ir
from tilewright.printer import kernel_source, module_source

LAYERS = """
@tw.kernel(target="sm_90a", warps=4)
def layers(X: Global[f16, M, 64], A: Global[f16, K, 64], B: Global[f16, K, 128], C: Global[f32, M, 128]):
    for i in tw.tiles(tw.cdiv(M, 128){grid}):
        x = tw.load(X.tile((i * 128, 0), (128, 64)), via="tma")
        acc = tw.zeros(f32, (128, 128))
        for k in tw.pipeline(0, {end}, 64, stages=2, roles="split", consumers={consumers}{more}):
            a = tw.load(A.tile((k, 0), (64, 64)))
            b = tw.load(B.tile((k, 0), (64, 128)))
            h = tw.mma(x, a.T, tw.zeros(f32, (128, 64)))
            {between}
            acc = tw.mma(tw.maximum(h, 0.0).to(f16), b, acc)
        tw.store(C.tile((i * 128, 0), (128, 128)), acc)
"""


def layers(
    consumers: int = 2, between: str = "h = h * 0.5", end: str = "K", more: str = "", grid: str = ""
) -> ir.Kernel:
    return kernel(LAYERS.format(consumers=consumers, between=between, end=end, more=more, grid=grid))


def kernel(text: str) -> ir.Kernel:
    module = read(HEADER + text)
    assert not module.all_problems, module.all_problems
    found = module.units[0].kernel
    assert found is not None
    return found


def waits(source: str) -> list[str]:
    return [line.split("#")[0].strip() for line in source.splitlines() if "wgmma" in line]


def test_each_role_has_its_rows():
    source = kernel_source(expand_policies(layers()))
    assert "acc = tw.zeros(f32, (64, 128))" in source and "(128, 128)" not in source.split("with tw.role")[1]
    assert "X.tile((i * 128, 0), (64, 64)), x_tile, x_full[0]" in source
    assert "X.tile((i * 128 + 64, 0), (64, 64)), x_tile_2, x_full[1]" in source
    assert "if i * 128 + 64 < M:" in source


def test_first_products_of_an_iteration_are_issued_before_the_last_ones_of_the_one_before():
    role = kernel_source(expand_policies(layers())).split("with tw.role")[1]
    loop = role[role.index("for k in range(64, K, 64)") :]
    assert waits(loop) == [
        "h = tw.wgmma(x_tile, a_ring[(it + 1) % 2].T, tile_1)",
        "acc = tw.wgmma(operand, b_ring[it % 2], acc)",
        "tw.wgmma_wait(1)",
        "tw.wgmma_wait(0)",
        "acc = tw.wgmma(operand, b_ring[it % 2], acc)",
        "tw.wgmma_wait(0)",
    ]


def test_a_result_that_the_iteration_uses_keeps_products_in_order():
    text = LAYERS.format(consumers=1, between="h = h * 0.5", end="K", more="", grid="").replace(
        "b, acc)\n", "b, acc)\n            acc = acc * 0.5\n"
    )
    role = kernel_source(expand_policies(kernel(text))).split("with tw.role")[1]
    assert waits(role) == [
        "h = tw.wgmma(x_tile, a_ring[it % 2].T, tw.zeros(f32, (128, 64)))",
        "tw.wgmma_wait(0)",
        "acc = tw.wgmma(tile_1, b_ring[it % 2], acc)",
        "tw.wgmma_wait(0)",
    ]


@pytest.mark.parametrize("grid", ["", ", persistent=True"])
@pytest.mark.parametrize("more", ["", ", turns=True"])
@pytest.mark.parametrize("between", ["h = h * 0.5", "acc = acc + 1.0"])
@pytest.mark.parametrize(("rows", "depth", "end"), [(1, 1, "K"), (130, 200, "K"), (300, 64, "K"), (65, 130, "K // 2")])
def test_it_computes_what_it_says(rows: int, depth: int, end: str, between: str, more: str, grid: str):
    random = np.random.default_rng(0)
    x, a, b = (random.standard_normal(s).astype(np.float16) for s in ((rows, 64), (depth, 64), (depth, 128)))
    out = np.full((rows, 128), np.nan, np.float32)
    run(expand(layers(between=between, end=end, more=more, grid=grid)), [x, a, b, out])
    last = depth if end == "K" else depth // 2
    turns = -(-last // 64)
    # A tile reaches up to its end, whatever the end of the loop is.
    a, b = (t[: turns * 64].astype(np.float32) for t in (a, b))
    h = x.astype(np.float32) @ a.T * (0.5 if "h =" in between else 1.0)
    expected = np.maximum(h, 0.0).astype(np.float16).astype(np.float32) @ b
    expected += 0.0 if "h =" in between else turns
    np.testing.assert_allclose(out, expected, rtol=1e-2, atol=2e-2)


def test_nothing_is_guarded_where_there_is_an_iteration():
    assert "if 0 < K" not in kernel_source(expand_policies(layers()))
    assert "if 0 < K // 2:" in kernel_source(expand_policies(layers(end="K // 2")))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("h = h * 0.5", "h = h + tw.sum(h, axis=0, keep_dims=True)", "sum over the rows of 'h'"),
        ("h = h * 0.5", "h = tw.where(tw.arange(128)[:, None] < 3, h, 0.0) + tw.sum(x.to(f32), axis=0)", "sum over the rows"),
        ("h = h * 0.5", "h = tw.reshape(tw.reshape(h, (64, 128)), (128, 64))", "reshape"),
        ("consumers=2", "consumers=3", "128 rows"),
("b, acc)", "b, acc)\n            acc = tw.mma(x, x.T, acc)", "operand b"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_divided_are_refused(before: str, after: str, words: str):
    text = LAYERS.format(consumers=2, between="h = h * 0.5", end="K", more="", grid="")
    assert before in text
    with pytest.raises(ExpansionError, match=words):
        expand_policies(kernel(text.replace(before, after)))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ('roles="single", consumers=2', 'for roles="split"'),
        ('roles="split", consumers=4', "1 to 3 consumers, not 4"),
        ('roles="split", consumers=0', "1 to 3 consumers, not 0"),
        ('roles="split", turns=True', "turns=True is for consumers=2 or 3"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(argument: str, words: str):
    text = LAYERS.format(consumers=2, between="h = h * 0.5", end="K", more="", grid="")
    module = read(HEADER + text.replace('roles="split", consumers=2', argument))
    assert any(words in p.message for u in module.units for p in u.problems)


def test_turns_are_for_products_that_run_ahead():
    text = LAYERS.format(consumers=2, between="h = h * 0.5", end="K", more=", turns=True", grid="").replace(
        "b, acc)\n", "b, acc)\n            acc = acc * 0.5\n"
    )
    with pytest.raises(ExpansionError, match="turns=True"):
        expand_policies(kernel(text))


def test_a_tile_that_has_another_value_cannot_stay_in_shared_memory():
    text = LAYERS.format(consumers=1, between="h = h * 0.5", end="K", more="", grid="")
    again = text.replace("        acc = tw.zeros", "        x = x * 2.0\n        acc = tw.zeros", 1)
    with pytest.raises(ExpansionError, match="'x' is loaded into shared memory and has another value"):
        expand_policies(kernel(again))


def test_the_expansion_reads_back():
    explicit = expand_policies(layers(more=", turns=True", grid=", persistent=True"))
    module = read(module_source(explicit))
    assert not module.all_problems and module.units[0].kernel is not None


SINGLE = """
@tw.kernel(target="sm_80", warps=4)
def scaled(X: Global[f16, M, 64], B: Global[f16, K, 64], S: Global[f32, 1, 64], C: Global[f32, M, K]):
    tw.assume(K % 8 == 0)
    for i in tw.tiles(tw.cdiv(M, 64){grid}):
        x = tw.load(X.tile((i * 64, 0), (64, 64)), via="cp_async")
        s = tw.load(S.tile((0, 0), (1, 64)), via="cp_async")
        y = (x.to(f32) * s).to(f16)
        for k in tw.pipeline(0, K, 64, stages=3):
            b = tw.load(B.tile((k, 0), (64, 64)))
            tw.store(C.tile((i * 64, k), (64, 64)), tw.mma(y, b.T, tw.mma(x, b.T, tw.zeros(f32, (64, 64)))))
"""


@pytest.mark.parametrize("grid", ["", ", persistent=True"])
@pytest.mark.parametrize(("rows", "depth"), [(1, 8), (130, 72)])
def test_loads_before_a_single_role_pipeline_are_copies_ahead(rows: int, depth: int, grid: str):
    explicit = expand(kernel(SINGLE.format(grid=grid)))
    assert sum(isinstance(s, ir.CpAsync) and s.dst.buffer in ("x_tile", "s_tile") for s in ir.walk(explicit.body)) == 2
    random = np.random.default_rng(0)
    x, b = (random.standard_normal(s).astype(np.float16) for s in ((rows, 64), (depth, 64)))
    s = random.standard_normal((1, 64)).astype(np.float32)
    out = np.full((rows, depth), np.nan, np.float32)
    run(explicit, [x, b, s, out])
    y = (x.astype(np.float32) * s).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(out, (y + x.astype(np.float32)) @ b.T.astype(np.float32), rtol=1e-2, atol=1e-2)
