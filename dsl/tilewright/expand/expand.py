"""From policies to instructions.

`expand` replaces grid and pipeline policies, routes loads and stores, infers layouts and makes the back end's own
synchronization explicit. What it produces can be printed (`tilewright.printer`) and read back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from tilewright.expand.elements import read_elements
from tilewright.expand.errors import ExpansionError
from tilewright.expand.grid import expand_tiles
from tilewright.expand.names import Names
from tilewright.expand.pieces import split_tiles
from tilewright.expand.registers import expand_registers
from tilewright.expand.rows import consumers_of, divide_rows
from tilewright.expand.single import expand_single
from tilewright.expand.split import drained, expand_split
from tilewright.expand.split_tensor import expand_split_tensor
from tilewright.infer import infer_layouts
from tilewright.ir import nodes as ir
from tilewright.ir.backend_sync import add_backend_sync
from tilewright.ir.expr import Int
from tilewright.ir.tagging import holders
from tilewright.ir.types import GIVEN, SharedType, TileType, Type
from tilewright.layout import default_swizzle
from tilewright.targets import TARGETS, Target


def expand(kernel: ir.Kernel) -> ir.Kernel:
    """The explicit form of `kernel`, with layouts and automatic syncs; explicit kernels keep their statements.

    Raises ExpansionError when a policy cannot be carried out, and InferenceError when no layout fits; both have the
    place and the reason.
    """
    expanded = expand_policies(kernel)
    inferred = infer_layouts(expanded)
    return inferred.with_body(add_backend_sync(inferred.body))


def expand_policies(kernel: ir.Kernel) -> ir.Kernel:
    """The explicit form without layouts and automatic syncs: what a person would have written."""
    names = Names(kernel.types, {p.name for p in kernel.params} | set(kernel.sizes) | {c.name for c in kernel.consts})
    target = TARGETS[kernel.target]
    _check_target(kernel.body, target)
    consumers = consumers_of(kernel.body)
    block = divide_rows(kernel, names, consumers)
    block = expand_tiles(split_tiles(block, names), names, target)
    if target.has("tcgen05"):
        block = expand_split_tensor(kernel, block, names)
    else:
        block = expand_split(kernel, block, names, consumers, target)
    allocations, block = (expand_single if target.has("cp_async") else expand_registers)(block, names)
    block = allocations + read_elements(block, names)
    block = ir.rewrite(block, lambda stmt: _route(stmt, target))
    block = _expand_stores(block, names)
    if kernel.registers is not None and any(isinstance(s, ir.Roles) for s in block):
        raise ExpansionError(
            "TW602",
            f"registers={kernel.registers} of a kernel with roles: each role has a budget of its own, and the first "
            "gets what the others leave (tw.role(…, registers=)); leave registers= out",
            kernel.span,
        )
    _check_layouts(kernel, block)
    return kernel.with_body(block, _used(block, names))


def _check_layouts(kernel: ir.Kernel, block: ir.Block) -> None:
    """Refuses layouts of tiles that never come into registers."""
    made = {getattr(stmt, "dst", None) for stmt in ir.walk(block)}
    for stmt in ir.walk(kernel.body):
        name = getattr(stmt, "dst", None)
        type_ = kernel.types.get(name) if isinstance(name, str) else None
        if isinstance(type_, TileType) and type_.why == GIVEN and name not in made:
            raise ExpansionError(
                "TW505",
                f"'{name}' has no layout of registers: the matrix instruction reads it from shared memory; leave "
                "convert_layout out",
                stmt.span,
            )


def _check_target(block: ir.Block, target: Target) -> None:
    """Refuses policies that ask for instructions which the target has no replacement for."""
    for stmt in ir.walk(block):
        match stmt:
            case ir.Pipeline(roles="split") if not target.has("mbarrier"):
                raise ExpansionError(
                    "TW009",
                    f'roles="split" needs bulk copies (TMA) and barriers, which {target.name} does not have; '
                    'use roles="single"',
                    stmt.span,
                )
            case ir.Pipeline(consumers=consumers) if consumers > 1 and not target.has("wgmma"):
                raise ExpansionError(
                    "TW009",
                    f"consumers={consumers} divides the rows of wgmma, which {target.name} does not have; leave it out",
                    stmt.span,
                )
            case ir.Load(via="tma") | ir.Store(via="tma") if target.backend != "cuda":
                raise ExpansionError("TW009", f'{target.name} has no TMA; leave via="tma" out', stmt.span)
            case ir.Load(via="buffer") | ir.Store(via="buffer") if not target.has("buffer_load"):
                having = ", ".join(t.name for t in TARGETS.values() if t.has("buffer_load"))
                raise ExpansionError(
                    "TW009", f"{target.name} has no buffer loads and stores; targets with them: {having}", stmt.span
                )
            case _:
                pass


def _route(stmt: ir.Stmt, target: Target) -> ir.Block | None:
    """Loads and products outside of pipelines become plain ones."""
    match stmt:
        case ir.Load(via="auto"):
            return (replace(stmt, via="direct"),)
        case ir.Load(via="tma" | "cp_async"):
            raise ExpansionError(
                "TW009",
                f'via="{stmt.via}" needs a tw.pipeline loop around it'
                + (', or one with roles="split" after it' if stmt.via == "tma" else "")
                + '; use via="direct" here',
                stmt.span,
            )
        case ir.Gather(via="cp_async"):
            raise ExpansionError(
                "TW009",
                'via="cp_async" needs a tw.pipeline loop with roles="single" around it, and a place at the top of its '
                'body; use via="direct" here',
                stmt.span,
            )
        case ir.Store(via="auto"):
            return (replace(stmt, via="direct"),)
        case ir.Mma(instr="auto"):
            return (replace(stmt, instr="mfma" if target.has("mfma") else "mma_v2"),)
        case _:
            return None


def _expand_stores(block: ir.Block, names: Names) -> ir.Block:
    """Bulk stores of each thread of control."""
    if not any(isinstance(s, ir.Roles) for s in block):
        allocations, body = _bulk_stores(block, names)
        return allocations + body
    added: ir.Block = ()
    out: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.Roles):
            roles: list[ir.Role] = []
            for role in stmt.roles:
                allocations, body = _bulk_stores(role.body, names)
                added += allocations
                roles.append(replace(role, body=body))
            stmt = replace(stmt, roles=tuple(roles))
        out.append(stmt)
    return (*added, *out)


def _bulk_stores(block: ir.Block, names: Names) -> tuple[ir.Block, ir.Block]:
    """Allocations, and `block` with its stores.

    `via="tma"`: through a tile of shared memory, which the bulk copy reads while the role goes on. Before the tile is
    written again, and before the role ends, the copy must have read it. Stores that follow each other in one block have
    a tile each and may be in flight together.
    """
    pending = _in_flight(block, names)
    buffers: dict[tuple[str, TileType], str] = {}
    allocations: list[ir.Stmt] = []

    def store(stmt: ir.Store) -> ir.Block:
        tile = names.types[stmt.src]
        assert isinstance(tile, TileType)
        plain = TileType(tile.dtype, tile.shape)
        buffer = buffers.get((stmt.view.tensor, plain))
        if buffer is None:
            layout = default_swizzle(tile.shape, tile.dtype.bits)
            buffer = names.new(f"{stmt.view.tensor.lower()}_tile", SharedType(tile.dtype, tile.shape, 1, False, layout))
            buffers[stmt.view.tensor, plain] = buffer
            allocations.append(ir.AllocShared(buffer, span=stmt.span, note=f"on the way to '{stmt.view.tensor}'"))
        ref, span = ir.BufRef(buffer, Int(0)), stmt.span
        return (
            ir.TmaStoreWait(pending, span=span, note="the last store of this tile has read the buffer"),
            ir.SharedStore(ref, stmt.src, span=span),
            ir.FenceAsync(span=span, note="show the tile to the asynchronous proxy"),
            ir.TmaStore(stmt.view, ref, span=span),
        )

    def change(stmt: ir.Stmt) -> ir.Block | None:
        return store(stmt) if _is_bulk(stmt) else None

    block = ir.rewrite(block, change)
    return tuple(allocations), drained(block) if buffers else block


def _in_flight(block: ir.Block, names: Names) -> int:
    """How many bulk stores may still read their tiles when one is due: all others of the kernel, if each has a tile of
    its own and they follow each other in one block, and else none.
    """
    stores = [s for s in ir.walk(block) if _is_bulk(s)]
    tiles = {(s.view.tensor, names.types[s.src]) for s in stores}
    siblings = any(sum(map(_is_bulk, inner)) == len(stores) for inner in _blocks(block))
    return len(stores) - 1 if siblings and len(tiles) == len(stores) else 0


def _is_bulk(stmt: ir.Stmt) -> TypeGuard[ir.Store]:
    return isinstance(stmt, ir.Store) and stmt.via == "tma"


def _blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for stmt in ir.walk(block):
        yield from ir.children(stmt)


def _used(block: ir.Block, names: Names) -> dict[str, Type]:
    """Types of the names that occur in `block`."""
    used: set[str] = set()
    for stmt in ir.walk(block):
        if isinstance(stmt, ir.Tag | ir.ExpectTags):
            used.update(of for of in holders(stmt) if isinstance(of, str))
        for value in ir.operands(stmt):
            match value:
                case str():
                    used.add(value)
                case ir.TileRef(name=name):
                    used.add(name)
                case ir.BufRef(buffer=name) | ir.BarRef(barrier=name):
                    used.add(name)
                case _:
                    pass
    return {n: t for n, t in names.types.items() if n in used}


__all__ = ["ExpansionError", "expand", "expand_policies"]
