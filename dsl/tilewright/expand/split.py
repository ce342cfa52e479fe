"""`roles="split"`: one warp loads by TMA, the others multiply with wgmma.

Two barriers a stage of what is loaded together: `full` ends a phase when the bytes have landed, `empty` when each role
that computes is done with it. `it` counts iterations over all tiles of a program; iteration `it` uses stage it mod
stages and waits for phase it div stages of its barriers.

    load:     wait until empty[it] has ended the phase before; announce the bytes; copy
    compute:  wait for full[it]; issue wgmma; wait until products are complete; release their stages

`plan` says how products of several iterations overlap, `rows` what each of several roles computes, and `resident` what
is loaded before a loop. On sm_100a, `split_tensor` takes the place of the compute role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.expand.consume import compute_loop
from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.resident import copies, references, resident_tiles, start, uses, without_transposes
from tilewright.expand.rings import load_loop, make_ring
from tilewright.expand.rows import PART
from tilewright.ir import nodes as ir
from tilewright.ir.bounds import least_values
from tilewright.ir.expr import Int
from tilewright.ir.substitution import substituted
from tilewright.ir.tagging import holders
from tilewright.targets import Target

LOAD_REGISTERS = 24
"""The smallest budget of setmaxnreg: the loading warp computes addresses only."""

_WARPGROUP = 4
_MOST_REGISTERS = 240  # of a thread, for setmaxnreg of roles that all want the same


def expand_split(kernel: ir.Kernel, block: ir.Block, names: Names, consumers: int, target: Target) -> ir.Block:
    """`block` (grid already explicit) as allocations, a role that loads and `consumers` roles that compute; unchanged
    when no pipeline is split.
    """
    if not split_pipelines(block):
        return block
    allocations: list[ir.Stmt] = []
    tiles = resident_tiles(block, names, consumers, allocations)
    block, turned = without_transposes(block, tiles)
    bounds = least_values(block)
    loops = split_pipelines(block)
    operands = frozenset(references(tiles, turned, 0))
    rings = {id(loop): make_ring(block, loop, names, allocations, operands) for loop in loops}
    begin = (
        *(
            ir.Assign(r.counter, Int(0), span=r.loop.span, note="iterations so far, over all tiles")
            for r in rings.values()
        ),
        *start(tiles),
    )
    span = loops[0].span

    def compute(part: int) -> ir.Role:
        refs = references(tiles, turned, part)
        body = replace_pipelines(block, lambda loop: compute_loop(rings[id(loop)].of_part(part), refs, bounds))
        body = begin + drained(uses(substituted(body, {PART: Int(part)}), tiles, part, names))
        name = "compute" if consumers == 1 else f"compute_{part}"
        return ir.Role(name, kernel.warps, _budget(target, kernel.warps, consumers) if part else None, body, span)

    load = copies(replace_pipelines(block, lambda loop: load_loop(rings[id(loop)], names)), tiles, names)
    roles = ir.Roles(
        (
            *(compute(part) for part in range(consumers)),
            ir.Role("load", 1, LOAD_REGISTERS, begin + only_control(load), span),
        ),
        span=span,
    )
    return (*allocations, roles)


def drained(block: ir.Block) -> ir.Block:
    """`block` of a thread of control with a wait for its bulk stores, if there are any, at its end."""
    issued = [s for s in ir.walk(block) if isinstance(s, ir.TmaStore)]
    if not issued or (isinstance(block[-1], ir.TmaStoreWait) and block[-1].pending == 0):
        return block
    note = "shared memory is read until the store is done"
    return (*block, ir.TmaStoreWait(0, span=issued[-1].span, note=note))


def _budget(target: Target, warps: int, consumers: int) -> int:
    """Registers of a thread of each role that computes but the first, which gets what is left: as many as all may have
    beside the warpgroup of the one that loads.
    """
    threads = target.warp_size * warps * consumers
    left = target.registers_per_sm - target.warp_size * _WARPGROUP * LOAD_REGISTERS
    return min(_MOST_REGISTERS, left // threads // 8 * 8)


def split_pipelines(block: ir.Block) -> list[ir.Pipeline]:
    """The pipelines with `roles="split"`. Raises ExpansionError when explicit roles stand beside them."""
    loops = [s for s in ir.walk(block) if isinstance(s, ir.Pipeline) and s.roles == "split"]
    if loops:
        for s in ir.walk(block):
            if isinstance(s, ir.Roles | ir.AllocShared | ir.AllocBarrier):
                raise ExpansionError(
                    "TW005", 'roles="split" makes its own roles; it cannot stand beside explicit ones', s.span
                )
    return loops


def replace_pipelines(block: ir.Block, make: Callable[[ir.Pipeline], ir.Block]) -> ir.Block:
    """`block` with every split pipeline replaced."""
    # Not `ir.rewrite`: loops are looked up by identity, which rewriting from the inside would lose.
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Pipeline(roles="split"):
                out.extend(make(stmt))
            case ir.For() | ir.Programs():
                out.append(replace(stmt, body=replace_pipelines(stmt.body, make)))
            case ir.If():
                out.append(
                    replace(stmt, then=replace_pipelines(stmt.then, make), orelse=replace_pipelines(stmt.orelse, make))
                )
            case _:
                out.append(stmt)
    return tuple(out)


def only_control(block: ir.Block) -> ir.Block:
    """What the loading role executes: grid, loops, scalars, barriers and copies; no tiles."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.Compute() | ir.Load() | ir.Store() | ir.Atomic() | ir.Mma() | ir.Gather() | ir.Scatter():
                return ()
            case ir.Tag() | ir.ExpectTags() if any(isinstance(h, str) for h in holders(stmt)):
                return ()
            case ir.For(body=()) | ir.While(body=()) | ir.If(then=(), orelse=()):
                return ()
            case _:
                return None

    return ir.rewrite(block, change)
