"""Explicit kernels with tensor memory, built by hand."""

from __future__ import annotations

from analysis.kernels import bar, buf, for_, kernel, let, programs, tensor, view, x
from tilewright.dtypes import f16, f32
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType, TileType, Type
from tilewright.layout import default_swizzle


def tensor_gemm(
    stages: int = 3, accumulators: int = 2, bm: int = 128, bn: int = 128, bk: int = 64, warps: int = 4,
    persistent: bool = True,
) -> ir.Kernel:  # fmt: skip
    """GEMM on sm_100a: a role that loads by TMA, one that issues products, and one that stores accumulators."""
    s, d, tiles = stages, accumulators, f"cdiv(M, {bm}) * cdiv(N, {bn})"
    stage, parity = f"it % {s}", f"it // {s} % 2"
    slot, round_ = f"n % {d}", f"n // {d} % 2"
    place = (let("pm", f"t // cdiv(N, {bn})"), let("pn", f"t % cdiv(N, {bn})"))
    compute = (
        let("n", 0),
        programs("t", tiles, persistent,
            *place,
            ir.BarrierWait(bar("done", slot), x(round_)),
            ir.TensorLoad("acc", buf("acc_ring", slot)),
            ir.BarrierArrive(bar("drained", slot)),
            let("n", "n + 1"),
            ir.Compute("c", "cast", (ir.TileRef("acc"),)),
            ir.Store(view("C", (f"pm * {bm}", f"pn * {bn}"), (bm, bn)), "c", "direct"),
        ),
    )  # fmt: skip
    load = (
        let("it", 0),
        programs("t", tiles, persistent,
            *place,
            for_("k", 0, "K", bk,
                ir.BarrierWait(bar("empty", stage), x(f"{parity} ^ 1")),
                ir.BarrierExpect(bar("full", stage), x((bm * bk + bk * bn) * 2)),
                ir.TmaLoad(view("A", (f"pm * {bm}", "k"), (bm, bk)), buf("a_ring", stage), bar("full", stage)),
                ir.TmaLoad(view("B", ("k", f"pn * {bn}"), (bk, bn)), buf("b_ring", stage), bar("full", stage)),
                let("it", "it + 1"),
            ),
        ),
    )  # fmt: skip
    multiply = (
        let("it", 0),
        let("n", 0),
        programs("t", tiles, persistent,
            ir.BarrierWait(bar("drained", slot), x(f"{round_} ^ 1")),
            for_("k", 0, "K", bk,
                ir.BarrierWait(bar("full", stage), x(parity)),
                ir.Tcgen05(
                    buf("acc_ring", slot), buf("a_ring", stage), buf("b_ring", stage), x("0 < k"), bar("empty", stage)
                ),
                let("it", "it + 1"),
            ),
            ir.Tcgen05Commit(bar("done", slot)),
            let("n", "n + 1"),
        ),
    )  # fmt: skip
    body = (
        ir.AllocShared("a_ring"),
        ir.AllocShared("b_ring"),
        ir.AllocTensor("acc_ring"),
        *(ir.AllocBarrier(name) for name in ("full", "empty", "done", "drained")),
        ir.Roles(
            (
                ir.Role("compute", warps, None, compute),
                ir.Role("load", 1, 24, load),
                ir.Role("multiply", 1, 24, multiply),
            )
        ),
    )
    types: dict[str, Type] = {
        "a_ring": SharedType(f16, (bm, bk), s, True, default_swizzle((bm, bk), 16)),
        "b_ring": SharedType(f16, (bk, bn), s, True, default_swizzle((bk, bn), 16)),
        "acc_ring": TensorMemoryType(f32, (bm, bn), d, True),
        "full": BarrierType(s, 1),
        "empty": BarrierType(s, 1),
        "done": BarrierType(d, 1),
        "drained": BarrierType(d, 1),
        "acc": TileType(f32, (bm, bn)),
        "c": TileType(f16, (bm, bn)),
    }
    params = (tensor("A", f16, "M", "K"), tensor("B", f16, "K", "N"), tensor("C", f16, "M", "N"))
    return kernel("gemm", "sm_100a", warps, params, body, types, ("K % 8 == 0", "N % 8 == 0"))
