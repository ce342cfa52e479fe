"""Explicit kernels built by hand, without front end or expansion, for tests of what takes explicit IR.

Each statement gets a span of its own, in source order, so that findings can be told apart by place.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from tilewright.dtypes import DType, f16, f32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import add_backend_sync
from tilewright.ir.types import BarrierType, GlobalType, ScalarType, SharedType, TileType, Type
from tilewright.layout import SwizzledShared, default_swizzle
from tilewright.source import Span

SIZES = ("M", "N", "K")
_OPERATORS: dict[type[ast.AST], ex.Op] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
}  # fmt: skip


def x(text: str | int, sizes: Sequence[str] = SIZES) -> ex.Expr:
    """A scalar expression from its text; names in `sizes` are sizes, all others variables."""

    def go(node: ast.expr) -> ex.Expr:
        match node:
            case ast.Constant(value=int(value)):
                return ex.Int(value)
            case ast.Name(id=name):
                return ex.Size(name) if name in sizes else ex.Var(name)
            case ast.BinOp(left=left, op=op, right=right):
                return ex.binary(_OPERATORS[type(op)], go(left), go(right))
            case ast.Compare(left=left, ops=[ast.Gt()], comparators=[right]):
                return ex.less(go(right), go(left))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return ex.binary(_OPERATORS[type(op)], go(left), go(right))
            case ast.BoolOp(op=op, values=[left, right]):
                return ex.binary(_OPERATORS[type(op)], go(left), go(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ex.negate(go(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return ex.sub(ex.Int(0), go(operand))
            case ast.Call(func=ast.Name(id="cdiv" | "min" | "max" as op), args=[left, right]):
                return ex.binary(op, go(left), go(right))
            case _:
                raise ValueError(f"cannot read {ast.dump(node)}")

    return go(ast.parse(str(text).strip(), mode="eval").body)


def view(tensor: str, origin: Sequence[str | int], shape: Sequence[int]) -> ir.View:
    return ir.View(tensor, tuple(x(o) for o in origin), tuple(shape))


def buf(buffer: str, stage: str | int = 0) -> ir.BufRef:
    return ir.BufRef(buffer, x(stage))


def bar(barrier: str, slot: str | int = 0) -> ir.BarRef:
    return ir.BarRef(barrier, x(slot))


def tensor(name: str, dtype: DType, *shape: str) -> ir.Param:
    extents = tuple(x(s) for s in shape)
    strides: list[ex.Expr] = []
    for i in range(len(extents)):
        stride: ex.Expr = ex.Int(1)
        for extent in extents[i + 1 :]:
            stride = ex.mul(stride, extent)
        strides.append(stride)
    return ir.Param(name, GlobalType(dtype, extents, tuple(strides)))


def for_(var: str, lo: str | int, hi: str | int, step: int, *body: ir.Stmt) -> ir.For:
    return ir.For(var, x(lo), x(hi), step, body)


def if_(cond: str, *then: ir.Stmt, orelse: Sequence[ir.Stmt] = ()) -> ir.If:
    return ir.If(x(cond), then, tuple(orelse))


def programs(var: str, total: str, persistent: bool, *body: ir.Stmt) -> ir.Programs:
    return ir.Programs(var, x(total), persistent, body)


def let(name: str, value: str | int) -> ir.Assign:
    return ir.Assign(name, x(value))


def zeros(name: str) -> ir.Compute:
    return ir.Compute(name, "full", (0.0,))


def kernel(
    name: str,
    target: str,
    warps: int,
    params: Sequence[ir.Param],
    body: Sequence[ir.Stmt],
    types: Mapping[str, Type],
    assumptions: Sequence[str] = (),
) -> ir.Kernel:
    """An explicit kernel as `expand` returns it: automatic syncs in, a span of its own on each statement."""
    scalars: dict[str, Type] = {}
    for stmt in ir.walk(tuple(body)):
        match stmt:
            case ir.Assign(dst=var) | ir.For(var=var) | ir.Programs(var=var):
                scalars[var] = ScalarType()
            case _:
                pass
    used = {n for p in params for e in p.type.shape for n in ex.names(e)}
    result = ir.Kernel(
        name, target, warps, tuple(params), (), tuple(s for s in SIZES if s in used),
        tuple(ir.Assumption(x(a)) for a in assumptions), number(tuple(body)), {**scalars, **types},
    )  # fmt: skip
    return synced(result)


def number(block: ir.Block) -> ir.Block:
    """The block with a distinct span on each statement, in source order."""
    counter = count(1)

    def go(b: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in b:
            at = next(counter) * 10
            stmt = replace(stmt, span=Span(at, at + 9))
            match stmt:
                case ir.For() | ir.Programs():
                    stmt = replace(stmt, body=go(stmt.body))
                case ir.If():
                    stmt = replace(stmt, then=go(stmt.then), orelse=go(stmt.orelse))
                case ir.Roles():
                    stmt = replace(stmt, roles=tuple(replace(r, body=go(r.body)) for r in stmt.roles))
                case _:
                    pass
            out.append(stmt)
        return tuple(out)

    return go(block)


def synced(k: ir.Kernel) -> ir.Kernel:
    """The kernel with the back end's automatic syncs recomputed."""
    return k.with_body(add_backend_sync(k.body))


def _tile_map(bm: int, bn: int, group: int) -> tuple[ir.Stmt, ...]:
    return (
        let("first", f"t // ({group} * cdiv(N, {bn})) * {group}"),
        let("width", f"min({group}, cdiv(M, {bm}) - first)"),
        let("pm", f"first + t % ({group} * cdiv(N, {bn})) % width"),
        let("pn", f"t % ({group} * cdiv(N, {bn})) // width"),
    )


def split_gemm(
    stages: int = 3,
    bm: int = 128,
    bn: int = 256,
    bk: int = 64,
    group: int = 16,
    warps: int = 8,
    persistent: bool = True,
) -> ir.Kernel:
    """Warp-specialized GEMM: one role loads by TMA, the other multiplies by wgmma and stores by TMA."""
    s, tiles = stages, f"cdiv(M, {bm}) * cdiv(N, {bn})"
    stage, parity, last = f"it % {s}", f"it // {s} % 2", f"(it + {s - 1}) % {s}"
    a_box, b_box = (bm, bk), (bk, bn)
    compute = (
        let("it", 0),
        programs("t", tiles, persistent,
            *_tile_map(bm, bn, group),
            zeros("acc"),
            for_("k", 0, "K", bk,
                ir.BarrierWait(bar("full", stage), x(parity)),
                ir.Wgmma("acc", buf("a_ring", stage), buf("b_ring", stage), "acc"),
                ir.WgmmaWait(1),
                if_("0 < k", ir.BarrierArrive(bar("empty", last))),
                let("it", "it + 1"),
            ),
            ir.WgmmaWait(0),
            if_("0 < K", ir.BarrierArrive(bar("empty", last))),
            ir.Compute("c", "cast", (ir.TileRef("acc"),)),
            ir.TmaStoreWait(0),
            ir.SharedStore(buf("c_tile"), "c"),
            ir.FenceAsync(),
            ir.TmaStore(view("C", (f"pm * {bm}", f"pn * {bn}"), (bm, bn)), buf("c_tile")),
        ),
        ir.TmaStoreWait(0),
    )  # fmt: skip
    load = (
        let("it", 0),
        programs("t", tiles, persistent,
            *_tile_map(bm, bn, group),
            for_("k", 0, "K", bk,
                ir.BarrierWait(bar("empty", stage), x(f"{parity} ^ 1")),
                ir.BarrierExpect(bar("full", stage), x((bm * bk + bk * bn) * 2)),
                ir.TmaLoad(view("A", (f"pm * {bm}", "k"), a_box), buf("a_ring", stage), bar("full", stage)),
                ir.TmaLoad(view("B", ("k", f"pn * {bn}"), b_box), buf("b_ring", stage), bar("full", stage)),
                let("it", "it + 1"),
            ),
        ),
    )  # fmt: skip
    body = (
        ir.AllocShared("a_ring"),
        ir.AllocShared("b_ring"),
        ir.AllocShared("c_tile"),
        ir.AllocBarrier("full"),
        ir.AllocBarrier("empty"),
        ir.Roles((ir.Role("compute", warps, None, compute), ir.Role("load", 1, 24, load))),
    )
    types: dict[str, Type] = {
        "a_ring": SharedType(f16, (bm, bk), s, True, default_swizzle((bm, bk), 16)),
        "b_ring": SharedType(f16, (bk, bn), s, True, default_swizzle((bk, bn), 16)),
        "c_tile": SharedType(f16, (bm, bn), 1, False, default_swizzle((bm, bn), 16)),
        "full": BarrierType(s, 1),
        "empty": BarrierType(s, 1),
        "acc": TileType(f32, (bm, bn)),
        "c": TileType(f16, (bm, bn)),
    }
    params = (tensor("A", f16, "M", "K"), tensor("B", f16, "K", "N"), tensor("C", f16, "M", "N"))
    return kernel("gemm", "sm_90a", warps, params, body, types, ("K % 8 == 0", "N % 8 == 0"))


def cp_async_gemm(
    stages: int = 3,
    bm: int = 128,
    bn: int = 128,
    bk: int = 32,
    group: int = 8,
    warps: int = 4,
    persistent: bool = False,
) -> ir.Kernel:
    """Single-role GEMM: every warp copies by cp.async and multiplies by mma_v2."""
    s = stages

    def copies(k: str, stage: str) -> tuple[ir.Stmt, ...]:
        return (
            ir.CpAsync(view("A", (f"pm * {bm}", k), (bm, bk)), buf("a_ring", stage)),
            ir.CpAsync(view("B", (k, f"pn * {bn}"), (bk, bn)), buf("b_ring", stage)),
        )

    prologue: list[ir.Stmt] = []
    for i in range(s - 1):
        prologue += [if_(f"{i * bk} < K", *copies(str(i * bk), str(i))), ir.CpCommit()]
    ahead = (s - 1) * bk
    body = (
        ir.AllocShared("a_ring"),
        ir.AllocShared("b_ring"),
        programs("t", f"cdiv(M, {bm}) * cdiv(N, {bn})", persistent,
            *_tile_map(bm, bn, group),
            zeros("acc"),
            *prologue,
            for_("k", 0, "K", bk,
                ir.CpWait(s - 2),
                ir.Sync(),
                ir.SharedLoad("a", buf("a_ring", f"k // {bk} % {s}")),
                ir.SharedLoad("b", buf("b_ring", f"k // {bk} % {s}")),
                ir.Mma("acc", "a", "b", "acc", "mma_v2"),
                if_(f"k + {ahead} < K", *copies(f"k + {ahead}", f"(k // {bk} + {s - 1}) % {s}")),
                ir.CpCommit(),
            ),
            ir.CpWait(0),
            ir.Sync(),
            ir.Compute("c", "cast", (ir.TileRef("acc"),)),
            ir.Store(view("C", (f"pm * {bm}", f"pn * {bn}"), (bm, bn)), "c", "direct"),
        ),
    )  # fmt: skip
    shared = SwizzledShared(8, 2, 4)
    types: dict[str, Type] = {
        "a_ring": SharedType(f16, (bm, bk), s, True, shared),
        "b_ring": SharedType(f16, (bk, bn), s, True, shared),
        "a": TileType(f16, (bm, bk)),
        "b": TileType(f16, (bk, bn)),
        "acc": TileType(f32, (bm, bn)),
        "c": TileType(f16, (bm, bn)),
    }
    params = (tensor("A", f16, "M", "K"), tensor("B", f16, "K", "N"), tensor("C", f16, "M", "N"))
    return kernel("gemm_sm80", "sm_80", warps, params, body, types)


def attention(bm: int = 64, bn: int = 64, d: int = 64, warps: int = 4) -> ir.Kernel:
    """Online-softmax attention of one head: keys and values copied one step ahead by cp.async, mma_v2."""
    ref = ir.TileRef

    def copies(at: str, stage: str) -> tuple[ir.Stmt, ...]:
        return (
            ir.CpAsync(view("K", (at, 0), (bn, d)), buf("k_ring", stage)),
            ir.CpAsync(view("V", (at, 0), (bn, d)), buf("v_ring", stage)),
        )

    body = (
        ir.AllocShared("q_tile"),
        ir.AllocShared("k_ring"),
        ir.AllocShared("v_ring"),
        programs("i", f"cdiv(M, {bm})", False,
            ir.CpAsync(view("Q", (f"i * {bm}", 0), (bm, d)), buf("q_tile")),
            if_("0 < N", *copies("0", "0")),
            ir.CpCommit(),
            ir.Compute("m", "full", (float("-inf"),)),
            ir.Compute("l", "full", (0.0,)),
            zeros("acc"),
            for_("j", 0, "N", bn,
                if_(f"j + {bn} < N", *copies(f"j + {bn}", f"(j // {bn} + 1) % 2")),
                ir.CpCommit(),
                ir.CpWait(1),
                ir.Sync(),
                ir.SharedLoad("q", buf("q_tile")),
                ir.SharedLoad("k", buf("k_ring", f"j // {bn} % 2")),
                ir.Compute("kt", "transpose", (ref("k"),)),
                zeros("z"),
                ir.Mma("s", "q", "kt", "z", "mma_v2"),
                ir.Compute("top", "max", (ref("s"),), axis=1, keep=True),
                ir.Compute("new", "maximum", (ref("m"), ref("top"))),
                ir.Compute("e", "sub", (ref("s"), ref("new"))),
                ir.Compute("p", "exp", (ref("e"),)),
                ir.Compute("g", "sub", (ref("m"), ref("new"))),
                ir.Compute("alpha", "exp", (ref("g"),)),
                ir.Compute("l", "mul", (ref("l"), ref("alpha"))),
                ir.Compute("row", "sum", (ref("p"),), axis=1, keep=True),
                ir.Compute("l", "add", (ref("l"), ref("row"))),
                ir.Compute("acc", "mul", (ref("acc"), ref("alpha"))),
                ir.SharedLoad("v", buf("v_ring", f"j // {bn} % 2")),
                ir.Compute("h", "cast", (ref("p"),)),
                ir.Mma("acc", "h", "v", "acc", "mma_v2"),
                ir.Compute("m", "copy", (ref("new"),)),
                ir.Sync(),
            ),
            ir.CpWait(0),
            ir.Compute("o", "div", (ref("acc"), ref("l"))),
            ir.Store(view("O", (f"i * {bm}", 0), (bm, d)), "o", "direct"),
        ),
    )  # fmt: skip
    shared = SwizzledShared(8, 2, 4)
    types: dict[str, Type] = {
        "q_tile": SharedType(f16, (bm, d), 1, False, shared),
        "k_ring": SharedType(f16, (bn, d), 2, True, shared),
        "v_ring": SharedType(f16, (bn, d), 2, True, shared),
    }
    types |= {n: TileType(f32, (bm, 1)) for n in ("m", "l", "top", "new", "g", "alpha", "row")}
    types |= {n: TileType(f32, (bm, bn)) for n in ("z", "s", "e", "p")}
    types |= {n: TileType(f32, (bm, d)) for n in ("acc", "o")}
    types |= {"q": TileType(f16, (bm, d)), "k": TileType(f16, (bn, d)), "kt": TileType(f16, (d, bn))}
    types |= {"v": TileType(f16, (bn, d)), "h": TileType(f16, (bm, bn))}
    params = tuple(tensor(n, f16, size, str(d)) for n, size in (("Q", "M"), ("K", "N"), ("V", "N"), ("O", "M")))
    return kernel("attention", "sm_80", warps, params, body, types)


def two_passes(rows: int = 16, bn: int = 64, warps: int = 4) -> ir.Kernel:
    """Row maxima in a first loop, subtracted in a second one."""
    ref = ir.TileRef
    body = (
        programs("i", f"cdiv(M, {rows})", True,
            ir.Compute("m", "full", (float("-inf"),)),
            for_("k", 0, "N", bn,
                ir.Load("x", view("X", (f"i * {rows}", "k"), (rows, bn)), float("-inf"), "direct"),
                ir.Compute("top", "max", (ref("x"),), axis=1, keep=True),
                ir.Compute("m", "maximum", (ref("m"), ref("top"))),
            ),
            for_("k", 0, "N", bn,
                ir.Load("x", view("X", (f"i * {rows}", "k"), (rows, bn)), 0.0, "direct"),
                ir.Compute("y", "sub", (ref("x"), ref("m"))),
                ir.Store(view("OUT", (f"i * {rows}", "k"), (rows, bn)), "y", "direct"),
            ),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {n: TileType(f32, (rows, bn)) for n in ("x", "y")}
    types |= {n: TileType(f32, (rows, 1)) for n in ("m", "top")}
    params = (tensor("X", f32, "M", "N"), tensor("OUT", f32, "M", "N"))
    return kernel("two_passes", "sm_80", warps, params, body, types)


def fma(block: int = 1024, warps: int = 4) -> ir.Kernel:
    """OUT = X * Y + X, elementwise."""
    at = ("i * " + str(block),)
    body = (
        programs("i", f"cdiv(N, {block})", False,
            ir.Load("x", view("X", at, (block,)), 0.0, "direct"),
            ir.Load("y", view("Y", at, (block,)), 0.0, "direct"),
            ir.Compute("p", "mul", (ir.TileRef("x"), ir.TileRef("y"))),
            ir.Compute("z", "add", (ir.TileRef("p"), ir.TileRef("x"))),
            ir.Store(view("OUT", at, (block,)), "z", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {n: TileType(f32, (block,)) for n in ("x", "y", "p", "z")}
    params = (tensor("X", f32, "N"), tensor("Y", f32, "N"), tensor("OUT", f32, "N"))
    return kernel("fused_multiply_add", "sm_80", warps, params, body, types)


def softmax(rows: int = 1, bn: int = 1024, warps: int = 4) -> ir.Kernel:
    """Row softmax of rows that fit one tile."""
    at = (f"i * {rows}", 0)
    ref = ir.TileRef
    body = (
        programs("i", f"cdiv(M, {rows})", False,
            ir.Load("x", view("X", at, (rows, bn)), float("-inf"), "direct"),
            ir.Compute("m", "max", (ref("x"),), axis=1, keep=True),
            ir.Compute("d", "sub", (ref("x"), ref("m"))),
            ir.Compute("e", "exp", (ref("d"),)),
            ir.Compute("s", "sum", (ref("e"),), axis=1, keep=True),
            ir.Compute("y", "div", (ref("e"), ref("s"))),
            ir.Store(view("OUT", at, (rows, bn)), "y", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {n: TileType(f32, (rows, bn)) for n in ("x", "d", "e", "y")}
    types |= {n: TileType(f32, (rows, 1)) for n in ("m", "s")}
    params = (tensor("X", f32, "M", "N"), tensor("OUT", f32, "M", "N"))
    return kernel("softmax", "sm_80", warps, params, body, types, (f"N <= {bn}",))
