"""The generated module: what it may contain, its names, its line map, and what lowering refuses."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

import pytest

from analysis.kernels import cp_async_gemm, fma, if_, kernel, let, programs, softmax, split_gemm, tensor, view, x
from dsl.lower.kernels import column_sums, math_functions
from tilewright.dtypes import f16, f32
from tilewright.infer import infer_layouts
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import Swizzled, SwizzledShared
from tilewright.lower import Lowered, LoweringError, lower
from tilewright.source import Span


def assume(k: ir.Kernel, *conditions: str) -> ir.Kernel:
    return replace(k, assumptions=(*k.assumptions, *(ir.Assumption(x(c)) for c in conditions)))


def aligned_gemm() -> ir.Kernel:
    return assume(cp_async_gemm(), "K % 8 == 0", "N % 8 == 0")


BUILDERS: list[Callable[[], ir.Kernel]] = [split_gemm, aligned_gemm, fma, softmax, column_sums, math_functions]


@pytest.fixture(params=BUILDERS, ids=lambda b: b.__name__)
def lowered(request: pytest.FixtureRequest) -> Lowered:
    return lower(infer_layouts(request.param()))


def test_the_module_imports_triton_and_only_inside_functions_torch(lowered: Lowered) -> None:
    tree = ast.parse(lowered.source)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                roots = {n.name.split(".")[0] for n in names}
                assert roots <= {"triton", "torch"} and ("torch" not in roots or node not in tree.body)
            case ast.ImportFrom(module=module):
                assert module is not None and module.split(".")[0] == "triton"
            case _:
                pass
    assert {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} >= {lowered.entry, "prepare", "launch"}


def test_every_name_the_module_uses_is_defined(lowered: Lowered) -> None:
    import builtins

    tree = ast.parse(lowered.source)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    stored |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) for a in n.args.args}
    stored |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    stored |= {
        a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
    }
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert used <= stored | set(dir(builtins))


def test_it_travels_as_json(lowered: Lowered) -> None:
    assert Lowered.from_json(lowered.to_json()) == lowered


def test_lines_know_the_statement_they_come_from() -> None:
    k = infer_layouts(split_gemm())
    spans = {type(s): s.span for s in ir.walk(k.body)}
    low = lower(k)
    for number, line in enumerate(low.source.splitlines(), 1):
        if "warpgroup_mma(" in line:
            assert low.span_of(number) == spans[ir.Wgmma]
        if "c_tile.store" in line:
            assert low.span_of(number) == spans[ir.SharedStore]
        if line.startswith(("import", "from", "def launch")):
            assert low.span_of(number) == Span(0, 0)


def test_the_launch_plan_says_what_the_kernel_takes() -> None:
    plan = lower(infer_layouts(split_gemm())).launch
    assert [(a.name, a.kind) for a in plan.arguments][:3] == [
        ("A_desc", "descriptor"), ("B_desc", "descriptor"), ("C_desc", "descriptor"),
    ]  # fmt: skip
    assert plan.arguments[0].block == (128, 64) and plan.arguments[0].type.startswith("tensordesc<fp16[128, 64],NVMMA")
    assert [(s.name, s.param, s.axis) for s in plan.sizes] == [("M", "A", 0), ("N", "B", 1), ("K", "A", 1)]
    assert (plan.num_warps, plan.total_warps, plan.maxnreg, plan.persistent) == (8, 12, 168, True)
    assert eval(plan.tiles, {}, {"M": 513, "N": 1000}) == 5 * 4
    assert [a.divisibility for a in plan.arguments[3:]] == [1, 8, 8]


def test_names_of_a_kernel_never_hide_those_of_the_module() -> None:
    names = {"X": "gl", "Y": "tma", "OUT": "launch"}
    k = infer_layouts(fma())

    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.Load | ir.Store):
            return (replace(s, view=replace(s.view, tensor=names[s.view.tensor])),)
        return None

    k = replace(
        k, name="prepare", body=ir.rewrite(k.body, change),
        params=tuple(replace(p, name=names[p.name]) for p in k.params),
    )  # fmt: skip
    low = lower(k)
    functions = [n for n in ast.parse(low.source).body if isinstance(n, ast.FunctionDef)]
    assert [f.name for f in functions] == ["prepare_2", "bind", "prepare", "launch"]
    assert [a.arg for a in functions[0].args.args] == ["gl_2", "tma_2", "launch_2", "N"]


def test_notes_and_source_text_stay_comments() -> None:
    k = fma()
    evil = "why\nimport os\r\x0bos.abort()"
    body = ir.rewrite(k.body, lambda s: (replace(s, note=evil),) if isinstance(s, ir.Compute) else None)
    text = '@tw.kernel\nx = 1  # """ "\\\n' * 40
    low = lower(infer_layouts(k.with_body(body)), text)
    assert not any(isinstance(n, ast.Import) and n.names[0].name == "os" for n in ast.walk(ast.parse(low.source)))
    assert "# why import os os.abort()" in low.source


def test_comments_quote_the_line_of_the_kernel() -> None:
    text = "\n".join(f"statement {i}" for i in range(40))
    low = lower(infer_layouts(fma()), text)
    assert "# 2: statement 1" in low.source


def test_syncs_that_the_back_end_adds_by_itself_are_not_written() -> None:
    k = infer_layouts(split_gemm())
    assert any(isinstance(s, ir.Sync) and s.auto for s in ir.walk(k.body))
    # The one barrier is that of the initialized mbarriers.
    assert lower(k).source.count("thread_barrier()") == 1


def test_waits_for_wgmma_carry_every_accumulator_that_exists() -> None:
    k = split_gemm()
    both = {**k.types, "acc2": k.types["acc"]}

    def change(s: ir.Stmt) -> ir.Block | None:
        if isinstance(s, ir.Wgmma):
            return (s, replace(s, dst="acc2", acc="acc2"))
        if isinstance(s, ir.Compute) and s.op == "full":
            return (s, replace(s, dst="acc2"))
        return None

    source = lower(infer_layouts(k.with_body(ir.rewrite(k.body, change), both))).source
    assert "acc, acc2 = warpgroup_mma_wait(num_outstanding=1, deps=(acc, acc2))" in source


def test_a_branch_that_only_arrives_becomes_a_predicate() -> None:
    source = lower(infer_layouts(split_gemm())).source
    assert "mbarrier.arrive(empty.index((it + 2) % 3), count=1, pred=0 < k)" in source


# ---------------------------------------------------------------------------------------------- refusals


def with_types(k: ir.Kernel, **types: object) -> ir.Kernel:
    return k.with_body(k.body, {**k.types, **types})  # pyright: ignore[reportArgumentType]


def shared(k: ir.Kernel, name: str) -> SharedType:
    type_ = k.types[name]
    assert isinstance(type_, SharedType)
    return type_


def unaligned_cp_async() -> ir.Kernel:
    return infer_layouts(cp_async_gemm())


def wgmma_from_unswizzled() -> ir.Kernel:
    k = split_gemm()
    return infer_layouts(with_types(k, a_ring=replace(shared(k, "a_ring"), layout=SwizzledShared(8, 1, 8))))


def swizzle_wider_than_the_row() -> ir.Kernel:
    return infer_layouts(with_types(split_gemm(bk=32), a_ring=SharedType(f16, (128, 32), 3, True, Swizzled(128, 16))))


def odd_tile() -> ir.Kernel:
    return with_types(infer_layouts(fma()), x=TileType(f32, (1000,)))


def layout_of_other_warps() -> ir.Kernel:
    return replace(infer_layouts(fma()), warps=8)


def grid_from_a_variable() -> ir.Kernel:
    body = (let("n", "N"), programs("t", "n", False, let("a", 1)))
    return kernel("f", "sm_80", 4, (tensor("X", f32, "N"),), body, {})


def size_of_no_tensor() -> ir.Kernel:
    return replace(infer_layouts(fma()), sizes=("N", "K"))


def without_wgmma_waits(kept: int) -> ir.Kernel:
    """The split GEMM with only the waits that leave `kept` groups in flight."""
    k = infer_layouts(split_gemm())

    def change(s: ir.Stmt) -> ir.Block | None:
        return () if isinstance(s, ir.WgmmaWait) and s.pending != kept else None

    return k.with_body(ir.rewrite(k.body, change))


def read_in_flight() -> ir.Kernel:
    k = infer_layouts(split_gemm())

    def change(s: ir.Stmt) -> ir.Block | None:
        return s.body if isinstance(s, ir.For) else () if isinstance(s, ir.WgmmaWait) else None

    return k.with_body(ir.rewrite(k.body, change))


def nested_allocation() -> ir.Kernel:
    body = (programs("t", "N", False, if_("t < 3", ir.AllocShared("s"))),)
    return kernel(
        "f",
        "sm_80",
        4,
        (tensor("X", f32, "N"),),
        body,
        {"s": SharedType(f32, (32,), 1, False, SwizzledShared(1, 1, 1, (0,)))},
    )


REFUSALS: list[tuple[Callable[[], ir.Kernel], str, type[ir.Stmt] | None]] = [
    (lambda: replace(infer_layouts(split_gemm()), target="sm_80"), "sm_80 has no roles", ir.Roles),
    (lambda: replace(infer_layouts(split_gemm()), target="sm_100a"), "sm_100a has no wgmma; targets with them: sm_90a", ir.Wgmma),
    (lambda: replace(infer_layouts(fma()), target="gfx942"), "warps of 32 lanes", None),
    (lambda: replace(infer_layouts(fma()), target="sm_70"), "unknown target 'sm_70'", None),
    (lambda: infer_layouts(split_gemm(stages=5)), "take 311392 bytes of shared memory; sm_90a has 232448", None),
    (unaligned_cp_async, "multiple of 8 \\(16 bytes", ir.CpAsync),
    (wgmma_from_unswizzled, "one of the swizzles of TMA", ir.Wgmma),
    (swizzle_wider_than_the_row, "fewer than the 128", ir.AllocShared),
    (odd_tile, "extent 1000 is not a power of two", ir.Load),
    (layout_of_other_warps, "a layout for 4 warps .* but 8 warps run this", ir.Load),
    (grid_from_a_variable, "may depend on sizes and scalar arguments only, not on n", ir.Programs),
    (size_of_no_tensor, "the size 'K' is no extent or stride of any tensor", None),
    (lambda: without_wgmma_waits(0), "ends without a tw.wgmma_wait", ir.Wgmma),
    (read_in_flight, "'acc' is read while a wgmma may still write it", ir.Compute),
    (nested_allocation, "allocated at the top", None),
    (lambda: fma(), "no layout; run `infer_layouts`", ir.Load),
    (lambda: replace(infer_layouts(fma()), name="a b"), "'a b' is no identifier", None),
    (lambda: replace(infer_layouts(fma()), warps=3), "power of two", None),
    (lambda: infer_layouts(assume(cp_async_gemm(bk=8), "K % 8 == 0", "N % 8 == 0")), "K equal and a multiple of 16", ir.Mma),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message", "statement"), REFUSALS, ids=[m[:30] for _, m, _ in REFUSALS])
def test_what_a_target_cannot_do_is_refused_before_the_compiler_sees_it(
    build: Callable[[], ir.Kernel], message: str, statement: type[ir.Stmt] | None
) -> None:
    k = build()
    with pytest.raises(LoweringError, match=message) as caught:
        lower(k)
    if statement is not None:
        assert caught.value.span in [s.span for s in ir.walk(k.body) if isinstance(s, statement)]


def test_policy_statements_are_refused() -> None:
    k = fma()
    body = ir.rewrite(k.body, lambda s: (replace(s, via="auto"),) if isinstance(s, ir.Load) else None)
    with pytest.raises(LoweringError, match="expand the kernel"):
        lower(k.with_body(body))


def test_a_bulk_copy_of_another_shape_than_its_buffer_is_refused() -> None:
    k = infer_layouts(split_gemm())
    half = view("C", ("pm * 128", "pn * 256"), (128, 128))
    body = ir.rewrite(k.body, lambda s: (replace(s, view=half),) if isinstance(s, ir.TmaStore) else None)
    with pytest.raises(LoweringError, match="moves a tile as it is"):
        lower(k.with_body(body))


def test_views_of_another_shape_than_the_tile_are_refused() -> None:
    k = infer_layouts(fma())
    body = ir.rewrite(
        k.body, lambda s: (replace(s, view=view("OUT", ("i * 512",), (512,))),) if isinstance(s, ir.Store) else None
    )
    with pytest.raises(LoweringError, match="the view has shape \\[512\\]"):
        lower(k.with_body(body))


def test_a_tile_of_the_wrong_rank_is_refused() -> None:
    k = infer_layouts(softmax())
    body = (programs("i", "M", False, ir.Load("x", view("X", ("i",), (1024,)), 0.0, "direct")),)
    k = k.with_body(body, {**k.types, "x": TileType(f32, (1024,))})
    with pytest.raises(LoweringError, match="'X', which has rank 2"):
        lower(infer_layouts(k))
