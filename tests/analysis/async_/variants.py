"""Other ways to write a correct kernel that the engine must also decide."""

from __future__ import annotations

from dataclasses import replace

from analysis import kernels
from analysis.async_.faults import edit
from analysis.kernels import bar, buf, if_, let, synced, x
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import remove_backend_sync


def stage_and_phase(stages: int = 3) -> ir.Kernel:
    """The split GEMM with a stage and a phase that wrap by a branch, instead of one counter."""
    s = stages

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.Assign(dst="it", value=ex.Int(0)):
                return let("stage", 0), let("phase", 0), let("before", 0)
            case ir.Assign(dst="it"):
                return (
                    let("before", "stage"),
                    let("stage", "stage + 1"),
                    if_(f"stage == {s}", let("stage", 0), let("phase", "phase ^ 1")),
                )
            case ir.BarrierWait(bar=ref):
                parity = "phase" if ref.barrier == "full" else "phase ^ 1"
                return (replace(stmt, bar=bar(ref.barrier, "stage"), parity=x(parity)),)
            case ir.BarrierArrive():
                return (replace(stmt, bar=bar("empty", "before")),)
            case ir.BarrierExpect():
                return (replace(stmt, bar=bar("full", "stage")),)
            case ir.TmaLoad():
                return (replace(stmt, dst=buf(stmt.dst.buffer, "stage"), bar=bar("full", "stage")),)
            case ir.Wgmma():
                return (replace(stmt, a=buf("a_ring", "stage"), b=buf("b_ring", "stage")),)
            case _:
                return None

    return edit(kernels.split_gemm(s), change)


def counted_steps() -> ir.Kernel:
    """The loader counts steps, the other role walks along K."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Roles):
            compute, load = stmt.roles

            def steps(s: ir.Stmt) -> ir.Block | None:
                match s:
                    case ir.For():
                        return (replace(s, hi=x("cdiv(K, 64)"), step=1),)
                    case ir.TmaLoad(view=view):
                        origin = tuple(ex.substitute(e, {"k": x("k * 64")}) for e in view.origin)
                        return (replace(s, view=replace(view, origin=origin)),)
                    case _:
                        return None

            return (replace(stmt, roles=(compute, replace(load, body=ir.rewrite(load.body, steps)))),)
        return None

    return edit(kernels.split_gemm(), change)


def drained() -> ir.Kernel:
    """Each product is waited for at once, and its own stage released."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.WgmmaWait():
                return (replace(stmt, pending=0),)
            case ir.If(cond=cond) if cond == x("0 < k"):
                return (ir.BarrierArrive(bar("empty", "it % 3"), span=stmt.span),)
            case ir.If(cond=cond) if cond == x("0 < K"):
                return ()
            case _:
                return None

    return edit(kernels.split_gemm(), change)


def reversed_roles(kernel: ir.Kernel) -> ir.Kernel:
    """The same kernel with the other scheduling priority."""
    body = tuple(replace(s, roles=s.roles[::-1]) if isinstance(s, ir.Roles) else s for s in kernel.body)
    return kernel.with_body(body)


def rows_in_a_loop() -> ir.Kernel:
    """The cp.async GEMM whose programs walk over the row tiles in a loop of their own."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.Programs():
                body = tuple(s for s in stmt.body if not isinstance(s, ir.Assign))
                inner = ir.For("m", x(0), x("M"), 128, body, span=stmt.span)
                return (replace(stmt, var="pn", count=x("cdiv(N, 128)"), body=(inner,)),)
            case ir.CpAsync(view=view):
                return (replace(stmt, view=rows(view)),)
            case ir.Store(view=view):
                return (replace(stmt, view=rows(view)),)
            case _:
                return None

    def rows(view: ir.View) -> ir.View:
        return replace(view, origin=tuple(ex.substitute(e, {"pm": x("m // 128")}) for e in view.origin))

    return edit(kernels.cp_async_gemm(), change)


def with_size(kernel: ir.Kernel, condition: str) -> ir.Kernel:
    """The kernel under one more assumption."""
    return replace(kernel, assumptions=(*kernel.assumptions, ir.Assumption(x(condition))))


def floor_of_whole_steps() -> ir.Kernel:
    """The loop ends at the last whole step, which is K, because K is a multiple."""
    from analysis.async_.faults import floor_trip_count

    return with_size(floor_trip_count(), "K % 64 == 0")


def unguarded_release_of_work() -> ir.Kernel:
    """Without the guard for K = 0, which no launch has."""

    def change(s: ir.Stmt) -> ir.Block | None:
        return s.then if isinstance(s, ir.If) and s.cond == x("0 < K") else None

    return edit(kernels.split_gemm(), change)


def without_sync(kernel: ir.Kernel) -> ir.Kernel:
    """What a person wrote: automatic syncs removed and put back."""
    return synced(kernel.with_body(remove_backend_sync(kernel.body)))
