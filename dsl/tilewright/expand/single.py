"""`roles="single"`: every warp issues cp.async copies ahead and computes from shared memory (mma_v2).

    prologue: copies of iterations 0 … stages-2, each its own group, empty groups past the end
    iteration i: wait until group i has landed; sync, which also ends everybody's reading of iteration i-1;
                 copy iteration i+stages-1 into the stage of iteration i-1; read stage i; compute
                 (with order="compute" the copy is last)
    epilogue: wait for all groups and sync, so that the stages are free again

Groups are committed also where nothing is copied, so the number of groups behind the one waited for is always stages-2.

A load by cp.async before the loop is a group of its own, older than those of the prologue, and read when it has landed.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expand.names import Names
from tilewright.expand.staging import (
    at_iteration,
    check_zeros,
    iteration_number,
    ldmatrix_swizzle,
    of_stages,
    stage_loads,
    stage_reads,
)
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.dataflow import read_by
from tilewright.ir.expr import Int, Var
from tilewright.ir.tagging import holders
from tilewright.ir.types import SharedType, TileType


def expand_single(block: ir.Block, names: Names) -> tuple[ir.Block, ir.Block]:
    """Allocations, and `block` with each single-role pipeline replaced."""
    allocations: list[ir.Stmt] = []
    body = _expanded(block, block, names, allocations) if _pipelines(block) else block
    return tuple(allocations), body


def _pipelines(block: ir.Block) -> bool:
    return any(isinstance(s, ir.Pipeline) and s.roles == "single" for s in ir.walk(block))


def _expanded(
    kernel: ir.Block, block: ir.Block, names: Names, allocations: list[ir.Stmt], *, staged: bool = False
) -> ir.Block:
    """`block` expanded; with `staged` it is the body of a pipeline, whose loads are its own."""
    out: list[ir.Stmt] = []
    waiting: dict[str, ir.SharedLoad] = {}
    said: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.Load) and stmt.via == "cp_async" and not staged:
            copy, waiting[stmt.dst] = _copy(stmt, names, allocations)
            out += copy
            continue
        if isinstance(stmt, ir.Tag | ir.ExpectTags) and waiting.keys() & set(holders(stmt)):
            said.append(stmt)
            continue
        reads = [waiting.pop(n) for n in sorted(waiting.keys() & read_by(stmt))]
        match stmt:
            case ir.Pipeline(roles="single"):
                body = _expanded(kernel, stmt.body, names, allocations, staged=True) if _pipelines(stmt.body) else None
                loop = stmt if body is None else replace(stmt, body=body)
                before = (*_landed(loop.stages - 1, reads), *said) if reads else ()
                out += _pipeline(kernel, loop, names, allocations, before)
                said = [] if reads else said
                continue
            case ir.For() | ir.While() | ir.Programs() | ir.Pipeline():
                stmt = replace(stmt, body=_expanded(kernel, stmt.body, names, allocations))
            case ir.If():
                then, orelse = (_expanded(kernel, b, names, allocations) for b in (stmt.then, stmt.orelse))
                stmt = replace(stmt, then=then, orelse=orelse)
            case _:
                pass
        if reads:
            out += [*_landed(0, reads), *said, ir.Sync(span=stmt.span, note="… and has been read by all")]
            said = []
        out.append(stmt)
    if waiting:
        out += [*_landed(0, list(waiting.values())), *said, ir.Sync(span=out[-1].span)]
    return tuple(out)


def _copy(load: ir.Load, names: Names, allocations: list[ir.Stmt]) -> tuple[list[ir.Stmt], ir.SharedLoad]:
    """The copy of a load before a loop as a group, and what reads it."""
    check_zeros(load)
    tile = names.types[load.dst]
    assert isinstance(tile, TileType)
    bare = load.dst.lstrip("%")
    buffer = names.new(f"{bare}_tile", SharedType(tile.dtype, tile.shape, 1, False, ldmatrix_swizzle(tile)))
    allocations.append(ir.AllocShared(buffer, span=load.span, note=f"'{bare}' on its way"))
    ref = ir.BufRef(buffer, Int(0))
    copy = ir.CpAsync(load.view, ref, span=load.span)
    return [copy, ir.CpCommit(span=load.span, note=f"group of '{bare}'")], ir.SharedLoad(load.dst, ref, span=load.span)


def _landed(later: int, reads: list[ir.SharedLoad]) -> tuple[ir.Stmt, ...]:
    """Reads of copies that are older than `later` groups."""
    span = reads[0].span
    return (
        ir.CpWait(later, span=span, note="what is loaded before the loop has landed"),
        ir.Sync(span=span, note="… for all threads"),
        *reads,
    )


def _pipeline(
    kernel: ir.Block, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt], before: ir.Block
) -> ir.Block:
    loads, rest = stage_loads(kernel, loop, names, "cp_async", allocations)
    reads, rest = stage_reads(loop, loads, rest, kernel)
    stages, ahead = loop.stages, loop.stages - 1
    number = iteration_number(loop)
    span = loop.span

    def copies(value: ir.Expr, stage: ir.Expr) -> ir.Block:
        work, ahead = at_iteration(loads, loop.var, value, names)
        guarded = (*work, *(_staged(load, ir.BufRef(s.ring, stage)) for s, load in zip(loads, ahead, strict=True)))
        inside = ex.less(value, loop.hi)
        if isinstance(inside, Int):
            return guarded if inside.value else ()
        return (ir.If(inside, guarded, span=span, note="only what the loop will use"),)

    out: list[ir.Stmt] = []
    for i in range(ahead):
        out.extend(copies(ex.add(loop.lo, Int(i * loop.step)), Int(i)))
        out.append(ir.CpCommit(span=span, note=f"group of iteration {i}"))
    out.extend(before)
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


def _staged(load: ir.Load | ir.Gather, stage: ir.BufRef) -> ir.Stmt:
    if isinstance(load, ir.Load):
        return ir.CpAsync(load.view, stage, span=load.span)
    return ir.CpGather(stage, load.tensor, load.index, load.mask, span=load.span)
