"""`roles="single"`: every warp issues cp.async copies ahead and computes from shared memory (mma_v2).

    prologue: copies of iterations 0 … stages-2, each its own group, empty groups past the end
    iteration i: wait until group i has landed; sync, which also ends everybody's reading of iteration i-1;
                 copy iteration i+stages-1 into the stage of iteration i-1; read stage i; compute
                 (with order="compute" the copy is last)
    epilogue: wait for all groups and sync, so that the stages are free again

Groups are committed also where nothing is copied, so the number of groups behind the one waited for is always stages-2.
"""

from __future__ import annotations

from tilewright.expand.names import Names
from tilewright.expand.staging import at_iteration, iteration_number, of_stages, stage_loads, stage_reads
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var


def expand_single(block: ir.Block, names: Names) -> tuple[ir.Block, ir.Block]:
    """Allocations, and `block` with each single-role pipeline replaced."""
    allocations: list[ir.Stmt] = []

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Pipeline) and stmt.roles == "single":
            return _pipeline(block, stmt, names, allocations)
        return None

    body = ir.rewrite(block, change)
    return tuple(allocations), body


def _pipeline(kernel: ir.Block, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt]) -> ir.Block:
    loads, rest = stage_loads(loop, names, "cp_async", allocations)
    reads, rest = stage_reads(loop, loads, rest, kernel)
    stages, ahead = loop.stages, loop.stages - 1
    number = iteration_number(loop)
    span = loop.span

    def copies(value: ir.Expr, stage: ir.Expr) -> ir.Block:
        guarded = tuple(
            ir.CpAsync(at_iteration(s.view, loop.var, value), ir.BufRef(s.ring, stage), span=s.load.span) for s in loads
        )
        inside = ex.less(value, loop.hi)
        if isinstance(inside, Int):
            return guarded if inside.value else ()
        return (ir.If(inside, guarded, span=span, note="only what the loop will use"),)

    out: list[ir.Stmt] = []
    for i in range(ahead):
        out.extend(copies(ex.add(loop.lo, Int(i * loop.step)), Int(i)))
        out.append(ir.CpCommit(span=span, note=f"group of iteration {i}"))
    later = (
        *copies(ex.add(Var(loop.var), Int(ahead * loop.step)), ex.mod(ex.add(number, Int(ahead)), Int(stages))),
        ir.CpCommit(span=span),
    )
    stage = ex.mod(number, Int(stages))
    compute = (*(r.load(stage) for r in reads), *of_stages(rest, loads, reads, stage, {r.dst for r in reads}))
    body = (
        ir.CpWait(stages - 2, span=span, note="the copies of this iteration have landed"),
        ir.Sync(span=span, note="… for all threads, and the previous iteration has been read"),
        *(later + compute if loop.order == "load" else compute + later),
    )
    out.append(ir.For(loop.var, loop.lo, loop.hi, loop.step, body, span=span))
    out.append(ir.CpWait(0, span=span, note="the rings are free again"))
    out.append(ir.Sync(span=span))
    return tuple(out)
