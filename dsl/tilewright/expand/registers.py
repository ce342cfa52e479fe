"""`roles="single"` where there is no cp.async (AMD): loads ahead go into registers, then to shared memory.

    prologue: load iteration 0 into registers
    iteration i: store the registers into stage i mod 2; sync; load iteration i+1 into registers; read stage i mod 2;
                 compute
    epilogue: sync, so that the stages are free again

The loads of iteration i+1 are in flight while iteration i computes. Two stages are enough, whatever `stages` says: the
store of iteration i+2 into the stage of iteration i comes after the sync of iteration i+1, which everybody reaches
only when done with iteration i. More stages would hold tiles longer without loading them any earlier.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expand.names import Names
from tilewright.expand.staging import StagedLoad, at_iteration, iteration_number, of_stages, stage_loads, stage_reads
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var

STAGES = 2


def expand_registers(block: ir.Block, names: Names) -> tuple[ir.Block, ir.Block]:
    """Allocations, and `block` with each single-role pipeline replaced."""
    allocations: list[ir.Stmt] = []

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Pipeline) and stmt.roles == "single":
            return _pipeline(block, replace(stmt, stages=STAGES), names, allocations)
        return None

    body = ir.rewrite(block, change)
    return tuple(allocations), body


def _pipeline(kernel: ir.Block, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt]) -> ir.Block:
    loads, rest = stage_loads(kernel, loop, names, "cp_async", allocations, ("buffer",))
    reads, rest = stage_reads(loop, loads, rest, kernel)
    ahead = {s.load.dst: names.new(f"{s.load.dst.lstrip('%')}_next", names.types[s.load.dst]) for s in loads}
    stage, span = ex.mod(iteration_number(loop), Int(STAGES)), loop.span
    # Behind the last iteration a tile lies past the edge and reads as zeros, unless it moves backwards.
    guarded = not _moves_on(loop, loads)

    def fetch(value: ir.Expr) -> ir.Block:
        work, there = at_iteration(loads, loop.var, value, names)
        into_registers = (*work, *(_fetch(load, ahead[load.dst]) for load in there))
        inside = ex.less(value, loop.hi)
        if not guarded or inside == Int(1):
            return into_registers
        return (ir.If(inside, into_registers, span=span, note="only what the loop will use"),)

    out: list[ir.Stmt] = []
    if guarded and ex.less(loop.lo, loop.hi) != Int(1):
        out.extend(
            ir.Compute(ahead[s.load.dst], "full", (0.0,), span=s.load.span, note="has a value without an iteration")
            for s in loads
        )
    out.extend(fetch(loop.lo))
    later = fetch(ex.add(Var(loop.var), Int(loop.step)))
    compute = (*(r.load(stage) for r in reads), *of_stages(rest, loads, reads, stage, {r.dst for r in reads}))
    body = (
        *(
            ir.SharedStore(ir.BufRef(s.ring, stage), ahead[s.load.dst], span=s.load.span, note="what was loaded ahead")
            for s in loads
        ),
        ir.Sync(span=span, note="the stage is filled, and the previous iteration has been read"),
        *(later + compute if loop.order == "load" else compute + later),
    )
    out.append(ir.For(loop.var, loop.lo, loop.hi, loop.step, body, span=span))
    out.append(ir.Sync(span=span, note="the rings are free again"))
    return tuple(out)


def _fetch(load: ir.Load | ir.Gather, dst: str) -> ir.Stmt:
    if isinstance(load, ir.Gather):
        return replace(load, dst=dst, other=None if load.mask is None else 0.0, via="direct")
    return ir.Load(dst, load.view, 0.0, "buffer" if load.via == "buffer" else "direct", span=load.span)


def _moves_on(loop: ir.Pipeline, loads: tuple[StagedLoad, ...]) -> bool:
    """Whether no coordinate of a load falls as the loop goes on, which begins at a constant."""
    # Where a gather goes in an iteration that is not there is not known.
    return isinstance(loop.lo, Int) and all(
        isinstance(s.load, ir.Load) and _rises(e, loop.var) for s in loads for e in _origin(s)
    )


def _origin(staged: StagedLoad) -> tuple[ir.Expr, ...]:
    return staged.view.origin if isinstance(staged.load, ir.Load) else (Int(0),)


def _rises(e: ir.Expr, variable: str) -> bool:
    match e:
        case _ if variable not in ex.names(e):
            return True
        case Var():
            return True
        case ex.Bin("+" | "min" | "max", lhs, rhs):
            return _rises(lhs, variable) and _rises(rhs, variable)
        case ex.Bin("-", lhs, rhs):
            return _rises(lhs, variable) and variable not in ex.names(rhs)
        case ex.Bin("*", other, Int(value)) | ex.Bin("*", Int(value), other):
            return value >= 0 and _rises(other, variable)
        case ex.Bin("//" | "cdiv", lhs, Int(value)):
            return value > 0 and _rises(lhs, variable)
        case _:
            return False
