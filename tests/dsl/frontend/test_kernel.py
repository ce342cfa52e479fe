"""Kernels: what each construct becomes, and what each mistake says."""

import pytest

from reading import HEADER, read
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.types import SharedType, TileType

PARAMS = "A: Global[f16, M, K], X: Global[f32, N], Y: Global[f32, N], *, B: Const = 128"


def elaborate(body: str, params: str = PARAMS, decorator: str = "@tw.kernel"):
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    module = read(f"{HEADER}\n\n{decorator}\ndef k({params}):\n{lines}\n")
    return module.units[0], module


def kernel(body: str, **kwargs) -> ir.Kernel:
    unit, module = elaborate(body, **kwargs)
    assert not [p for p in module.all_problems if p.severity == "error"], module.all_problems
    assert unit.kernel is not None
    return unit.kernel


STORE = "tw.store(Y.tile((0,), (128,)), x)"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("x = tw.load(X.tile((0,), (100,)))", "TW506", "such as 96 = 64 + 32, not 100; use 64 or 128"),
        ("x = tw.load(X.tile((0, 0), (128,)))", "TW003", "has 1 dimension"),
        ("x = tw.load(X)", "TW003", "not the tensor 'X'"),
        ("x = tw.load(X.tile((0,), (B,)), othr=0.0)", "TW005", "othr"),
        ("x = tw.zeros(f32, (B,))\ny = tw.zeros(f16, (B,))\nz = x + y", "TW004", "cast one side"),
        ("x = tw.zeros(f32, (64, 32))\ny = tw.zeros(f32, (32, 64))\nz = x + y", "TW003", "do not match"),
        ("x = tw.zeros(f32, (B,))\nif x:\n    pass", "TW005", "tw.where"),
        ("x = tw.zeros(f32, (B,))\ntw.store(Y.tile((0,), (64,)), x)", "TW003", "the view is [64], the tile [128]"),
        ("x = tw.zeros(f16, (B,))\ntw.store(Y.tile((0,), (B,)), x)", "TW004", ".to(f32)"),
        (
            "a = tw.zeros(f16, (64, 32))\nc = tw.zeros(f32, (64, 64))\nd = tw.mma(a, a, c)",
            "TW003",
            "32 columns of a meet 64 rows",
        ),
        ("a = tw.zeros(tw.f64, (64, 64))\nd = tw.mma(a, a, a)", "TW004", "not f64 and f64"),
        ("a = tw.zeros(f32, (64, 64))\nd = tw.mma(a, a, a)", "TW009", "say how f32 operands are multiplied"),
        ("while True:\n    pass", "TW005", "never ends"),
        ("while tw.zeros(f32, (B,)) > 0.0:\n    pass", "TW005", "scalar condition"),
        ("x = undefined", "TW002", "'undefined' is not defined"),
        ("for i in [1, 2]:\n    pass", "TW005", "a loop runs over"),
        ("for i in range(0, N, 0):\n    pass", "TW003", "not 0"),
        ("for i in tw.pipeline(0, N, -32):\n    pass", "TW003", "positive, not -32"),
        ("tw.assume(N)\nfor i in range(N):\n    tw.assume(i < N)", "TW005", "sizes, of scalar arguments"),
        ("for i in tw.pipeline(0, N, 32, stages=1):\n    pass", "TW009", "2 to 32 stages"),
        ("x = N / 2", "TW003", "tw.cdiv"),
        ("x = 5 // 0", "TW006", "division by zero"),
        ("with tw.role('load', warps=3):\n    pass", "TW603", "not 3"),
        ("bar = tw.barrier(2)\ntw.wait(bar[2], 0)", "TW003", "index 2 is outside 0 … 1"),
        ("s = tw.shared(f16, (2, 64, 64))\nx = tw.load_shared(s)", "TW003", "say which"),
        ("tw.wgmma_wait(-1)", "TW003", "not negative"),
        ("x = lambda: 3", "TW005", "lambda"),
        ("return 3", "TW005", "returns nothing"),
        ("for i in range(N):\n    x = tw.zeros(f32, (B,))\n" + STORE, "TW008", "only inside a loop"),
        ("if N < 3:\n    x = tw.zeros(f32, (B,))\n" + STORE, "TW008", "one side of a branch"),
        (
            "x = tw.zeros(f32, (B,))\nfor i in range(N):\n    x = x.to(f16)",
            "TW003",
            "changes its type".replace("changes its", "keeps its"),
        ),
    ],
)
def test_mistakes_are_explained(body, code, words):
    _, module = elaborate(body)
    found = [p for p in module.all_problems if p.severity == "error"]
    assert found and found[0].code == code and words in found[0].message, found


def test_one_mistake_gives_one_message():
    _, module = elaborate("x = tw.load(X.tile((0,), (100,)))\ny = x + 1.0\n" + STORE)
    assert [p.code for p in module.all_problems] == ["TW506"]


def test_several_mistakes_are_all_reported():
    _, module = elaborate("a = tw.foo(1)\nb = 1 // 0\nc = nothing")
    assert [p.code for p in module.all_problems] == ["TW002", "TW006", "TW002"]


def test_a_kernel_that_stores_nothing_is_a_warning():
    unit, module = elaborate("x = tw.load(X.tile((0,), (B,)))")
    assert [p.severity for p in module.all_problems] == ["warning"] and unit.kernel is not None


def test_scalars_assigned_once_fold_and_counters_stay_variables():
    body = "half = B // 2\nit = 0\nfor i in range(N):\n    it += 1\nx = tw.zeros(f32, (half,))\ntw.store(Y.tile((it,), (half,)), x)"
    k = kernel(body)
    assert isinstance(k.types["x"], TileType) and k.types["x"].shape == (64,)
    assert next(s.value for s in ir.walk(k.body) if isinstance(s, ir.Assign)) == Int(0)
    store = next(s for s in ir.walk(k.body) if isinstance(s, ir.Store))
    assert store.view.origin == (Var("it"),)


def test_static_loops_and_compile_time_branches_leave_no_trace():
    k = kernel("x = tw.zeros(f32, (B,))\nfor i in tw.static_range(3):\n    if i != 1:\n        x = x + 1.0\n" + STORE)
    assert [type(s).__name__ for s in k.body] == ["Compute", "Compute", "Compute", "Store"]


def test_a_name_may_change_its_type_outside_of_loops():
    k = kernel("x = tw.load(X.tile((0,), (B,)))\nx = x.to(f16)\nx = x.to(f32)\n" + STORE)
    assert next(s for s in k.body if isinstance(s, ir.Store)).src == "x"
    assert {str(t) for t in k.types.values()} == {"f32[128]", "f16[128]"}


def test_min_and_max_serve_scalars_and_tiles():
    k = kernel("x = tw.load(X.tile((min(N, 3),), (B,)))\ny = tw.max(x, axis=0, keep_dims=True)\nx = x - y\n" + STORE)
    assert any(isinstance(s, ir.Compute) and s.op == "max" and s.keep for s in k.body)


def test_helpers_are_inlined_with_names_of_their_own():
    _unit, module = elaborate("pass")
    text = (
        HEADER
        + """
@tw.func
def scale(x, by=2.0):
    y = x * by
    return y

@tw.kernel
def k(X: Global[f32, N], Y: Global[f32, N]):
    y = tw.load(X.tile((0,), (128,)))
    z = scale(y)
    tw.store(Y.tile((0,), (128,)), z + y)
"""
    )
    module = read(text)
    assert module.all_problems == ()
    assert module.units[0].kernel is not None
    assert {"y", "z", "scale_y"} <= set(module.units[0].kernel.types)


def test_shared_memory_and_roles():
    body = """
ring = tw.shared(f16, (3, 64, 32))
full = tw.barrier(3)
with tw.role("load", warps=1, registers=24):
    for i in tw.programs(N, persistent=True):
        tw.expect(full[i % 3], 64 * 32 * 2)
        tw.tma_load(A.tile((0, i * 32), (64, 32)), ring[i % 3], full[i % 3])
with tw.role("use", warps=4):
    for i in tw.programs(N, persistent=True):
        tw.wait(full[i % 3], i // 3 % 2)
"""
    k = kernel(body, decorator='@tw.kernel(target="sm_90a", warps=4)')
    ring = k.types["ring"]
    assert isinstance(ring, SharedType) and (ring.stages, ring.shape, ring.ring) == (3, (64, 32), True)
    (roles,) = [s for s in k.body if isinstance(s, ir.Roles)]
    assert [(r.name, r.warps, r.registers) for r in roles.roles] == [("load", 1, 24), ("use", 4, None)]


def test_options_of_the_decorator_are_checked():
    for option, word in [
        ('target="sm_1"', "unknown target"),
        ("warps=3", "warps, not 3"),
        ("speed=9", "no option 'speed'"),
        ("cluster=2", "clusters are not supported"),
    ]:
        _, module = elaborate("pass", decorator=f"@tw.kernel({option})")
        assert any(word in p.message for p in module.all_problems)


def test_a_size_that_occurs_only_in_arithmetic_has_no_value():
    _, module = elaborate(
        "x = tw.load(X.tile((0,), (128,)), other=0.0)\n" + STORE, params="X: Global[f32, M * 2], Y: Global[f32, N]"
    )
    assert [p.code for p in module.all_problems] == ["TW008"] and "by itself" in module.all_problems[0].message


def test_a_size_without_a_tensor_has_no_value():
    _, module = elaborate("x = tw.load(X.tile((K,), (128,)))\n" + STORE, params="X: Global[f32, N], Y: Global[f32, N]")
    assert [p.code for p in module.all_problems] == ["TW008"]
