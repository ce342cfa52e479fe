"""Loads before a split pipeline: copied by TMA into shared memory once, where products of the pipeline read them.

    load:     wait until the tile before has been read, if there was one; announce the bytes; copy
    compute:  wait for the bytes before the first use; arrive after the last one

In a kernel whose programs have one tile each nothing is loaded twice, so nothing is waited for before the copy. Where
rows are divided, each role has its part and a barrier of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.plan import is_product
from tilewright.expand.rings import at_part
from tilewright.expand.rows import PART
from tilewright.expand.staging import check_zeros
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.dataflow import read_by
from tilewright.ir.expr import Int, Var
from tilewright.ir.tagging import holders, moved
from tilewright.ir.types import BarrierType, ScalarType, SharedType, TileType
from tilewright.layout import default_swizzle


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile in shared memory: `parts` are its buffers, one for each role where rows are divided. `again`: it is loaded
    more than once in a program, and `counter` says how often so far.
    """

    load: ir.Load
    parts: tuple[str, ...]
    full: str
    empty: str
    counter: str
    again: bool

    def slot(self, part: int) -> int:
        """The number of a role's buffer and barrier."""
        return part if len(self.parts) > 1 else 0

    def buffer(self, part: int) -> str:
        """The buffer that a role reads."""
        return self.parts[self.slot(part)]


Tiles = Mapping[str, Tile]


def resident_tiles(block: ir.Block, names: Names, consumers: int, allocations: list[ir.Stmt]) -> dict[str, Tile]:
    """The loads of `block` outside of split pipelines that go by TMA, allocated into `allocations`: those that say so,
    and those whose tile is an operand of a product in a split pipeline and that leave the way open.
    """
    wanted = _operands(block)
    found: dict[str, Tile] = {}

    def go(stmts: ir.Block, again: bool) -> None:
        for stmt in stmts:
            match stmt:
                case ir.Pipeline(roles="split") | ir.While():
                    pass
                case ir.Load() if stmt.via == "tma" or (stmt.via == "auto" and stmt.dst in wanted):
                    found[stmt.dst] = _tile(stmt, names, consumers, again, allocations)
                case ir.Programs():
                    go(stmt.body, again or stmt.persistent)
                case ir.For() | ir.While() | ir.Pipeline():
                    go(stmt.body, True)
                case _:
                    for inner in ir.children(stmt):
                        go(inner, again)

    go(block, False)
    for stmt in ir.walk(block):
        tile = found.get(str(getattr(stmt, "dst", "")))
        if tile is not None and stmt != tile.load:
            raise ExpansionError(
                "TW005",
                f"'{tile.load.dst}' is loaded into shared memory and has another value here; give one of them a name "
                "of its own",
                stmt.span,
            )
    return found


def _operands(block: ir.Block) -> set[str]:
    """Operands of products in split pipelines, also where these are transposed."""
    found: set[str] = set()
    for loop in ir.walk(block):
        if isinstance(loop, ir.Pipeline) and loop.roles == "split":
            for stmt in loop.body:
                if is_product(stmt):
                    assert isinstance(stmt, ir.Mma)
                    found |= {stmt.a, stmt.b}
    turned = {
        a.name for s in ir.walk(block) if isinstance(s, ir.Compute) and s.op == "transpose" and s.dst in found
        for a in s.args if isinstance(a, ir.TileRef)
    }  # fmt: skip
    return found | turned


def _tile(load: ir.Load, names: Names, consumers: int, again: bool, allocations: list[ir.Stmt]) -> Tile:
    check_zeros(load)
    tile = names.types[load.dst]
    assert isinstance(tile, TileType)
    parts: list[str] = []
    count = consumers if any(PART in ex.names(o) for o in load.view.origin) else 1
    bare = load.dst.lstrip("%")
    for part in range(count):
        layout = default_swizzle(tile.shape, tile.dtype.bits)
        parts.append(names.new(f"{bare}_tile", SharedType(tile.dtype, tile.shape, 1, False, layout)))
        note = f"'{bare}', loaded once for the pipeline" + (f": rows of role {part}" if count > 1 else "")
        allocations.append(ir.AllocShared(parts[-1], span=load.span, note=note))
    full = names.new(f"{bare}_full", BarrierType(count, 1))
    allocations.append(ir.AllocBarrier(full, span=load.span, note=f"'{bare}' is there"))
    empty = counter = ""
    if again:
        empty = names.new(f"{bare}_empty", BarrierType(count, consumers if count == 1 else 1))
        allocations.append(ir.AllocBarrier(empty, span=load.span, note=f"'{bare}' has been read"))
        counter = names.new(f"{bare}_loads", ScalarType())
    return Tile(load, tuple(parts), full, empty, counter, again)


def without_transposes(block: ir.Block, tiles: Tiles) -> tuple[ir.Block, dict[str, str]]:
    """`block` without transposes of these tiles that only products read, and the tile that each name is then."""
    turned: dict[str, str] = {}
    for stmt in ir.walk(block):
        if isinstance(stmt, ir.Compute) and stmt.op == "transpose" and isinstance(of := stmt.args[0], ir.TileRef):
            users = [s for s in ir.walk(block) if stmt.dst in read_by(s) and not ir.children(s)]
            if of.name in tiles and users and all(map(is_product, users)):
                turned[stmt.dst] = of.name
    if not turned:
        return block, turned
    return ir.rewrite(block, lambda s: () if getattr(s, "dst", None) in turned else None), turned


def references(tiles: Tiles, turned: Mapping[str, str], part: int) -> dict[str, ir.BufRef]:
    """Operands in shared memory by the name of a tile, as a role reads them."""
    refs = {name: ir.BufRef(tile.buffer(part), Int(0)) for name, tile in tiles.items()}
    return refs | {dst: replace(refs[of], transposed=True) for dst, of in turned.items()}


def start(tiles: Tiles) -> ir.Block:
    """The counters, before the grid."""
    return tuple(
        ir.Assign(t.counter, Int(0), span=t.load.span, note="loaded so far, over all tiles")
        for t in tiles.values() if t.again
    )  # fmt: skip


def copies(block: ir.Block, tiles: Tiles, names: Names) -> ir.Block:
    """`block` of the loading role with its copies."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        tile = tiles.get(stmt.dst) if isinstance(stmt, ir.Load) else None
        if tile is None:
            return None
        out: list[ir.Stmt] = []
        for part, buffer in enumerate(tile.parts):
            type_, slot = names.types[buffer], Int(part)
            assert isinstance(type_, SharedType)
            full, span = ir.BarRef(tile.full, slot), stmt.span
            if tile.again:
                free = ex.binary("^", ex.mod(Var(tile.counter), Int(2)), Int(1))
                out.append(
                    ir.BarrierWait(
                        ir.BarRef(tile.empty, slot),
                        free,
                        span=span,
                        note="the one before has been read",
                    )
                )
            out.append(ir.BarrierExpect(full, Int(type_.stage_bytes), span=span))
            out.append(ir.TmaLoad(at_part(tile.load.view, part), ir.BufRef(buffer, Int(0)), full, span=span))
        return (*out, *_count(tile))

    return ir.rewrite(block, change)


def _count(tile: Tile) -> ir.Block:
    if not tile.again:
        return ()
    return (ir.Assign(tile.counter, ex.add(Var(tile.counter), Int(1)), span=tile.load.span),)


def uses(block: ir.Block, tiles: Tiles, part: int, names: Names) -> ir.Block:
    """`block` of a role that computes, pipelines already replaced: each load becomes the waits and reads around what
    uses its tile in the same block.

    A bulk store of a tile alike that comes after goes through the same memory, if the program has one tile only.
    """
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.For() | ir.While() | ir.Programs():
                out.append(replace(stmt, body=uses(stmt.body, tiles, part, names)))
            case ir.If():
                out.append(
                    replace(
                        stmt, then=uses(stmt.then, tiles, part, names), orelse=uses(stmt.orelse, tiles, part, names)
                    )
                )
            case _:
                out.append(stmt)
    for stmt in [s for s in out if isinstance(s, ir.Load) and s.dst in tiles]:
        out = _around(out, out.index(stmt), tiles[stmt.dst], part, names)
    return tuple(out)


def _around(block: list[ir.Stmt], at: int, tile: Tile, part: int, names: Names) -> list[ir.Stmt]:
    """`block` with the load at position `at` replaced."""
    before, after = block[:at], block[at + 1 :]
    name, buffer, span = tile.load.dst, tile.buffer(part), tile.load.span
    bare = name.lstrip("%")
    ref = ir.BufRef(buffer, Int(0))
    in_registers = next((i for i, s in enumerate(after) if name in read_by(s)), None)
    # What is said of its tags is said of the tile in shared memory, unless it is in registers by then.
    for i, stmt in enumerate(after):
        if in_registers is None or i < in_registers:
            (after[i],) = ir.rewrite((stmt,), lambda s: _said_of(s, name, ref))
    said = [s for s in after if _speaks_of_it_alone(s, ref)]
    after = [s for s in after if s not in said]
    users = [i for i, s in enumerate(after) if name in read_by(s) or _reads_buffer(s, buffer)]
    slot = Int(tile.slot(part))
    parity = ex.mod(Var(tile.counter), Int(2)) if tile.again else Int(0)
    wait = ir.BarrierWait(ir.BarRef(tile.full, slot), parity, span=span, note=f"'{bare}' is there")
    if tile.again:
        end = _complete(after, users[-1]) + 1 if users else len(after)
        arrive = ir.BarrierArrive(ir.BarRef(tile.empty, slot), span=span, note=f"'{bare}' has been read")
        after[end:end] = [arrive, *_count(tile)]
    elif users:
        end = _complete(after, users[-1]) + 1
        after[end:] = _stored_through(tuple(after[end:]), ref, names)
    first = users[0] if users else len(after) - 2 * tile.again
    read = next((i for i, s in enumerate(after) if name in read_by(s)), None)
    if read is not None:
        after.insert(read, ir.SharedLoad(name, ref, span=span))
    after[first:first] = [wait, *said]
    return [*before, *after]


def _stored_through(block: ir.Block, ref: ir.BufRef, names: Names) -> ir.Block:
    """`block` with its first bulk store of a tile as the buffer holds one done through that, outside of loops."""
    buffer = names.types[ref.buffer]
    assert isinstance(buffer, SharedType)
    for i, stmt in enumerate(block):
        match stmt:
            case ir.Store(via="tma", view=view, src=src):
                tile = names.types[src]
                if isinstance(tile, TileType) and (tile.dtype, tile.shape) == (buffer.dtype, buffer.shape):
                    stored = ir.SharedStore(ref, src, span=stmt.span, note="nobody reads it any more")
                    fence = ir.FenceAsync(span=stmt.span, note="show the tile to the asynchronous proxy")
                    return (*block[:i], stored, fence, ir.TmaStore(view, ref, span=stmt.span), *block[i + 1 :])
            case ir.If(then=then, orelse=()) if (inner := _stored_through(then, ref, names)) != then:
                return (*block[:i], replace(stmt, then=inner), *block[i + 1 :])
            case _:
                pass
    return block


def _said_of(stmt: ir.Stmt, name: str, ref: ir.BufRef) -> ir.Block:
    if isinstance(stmt, ir.Tag | ir.ExpectTags):
        return (moved(stmt, lambda of: ref if of == name else of),)
    return (stmt,)


def _reads_buffer(stmt: ir.Stmt, buffer: str) -> bool:
    return any(
        isinstance(v, ir.BufRef) and v.buffer == buffer
        for s in ir.walk((stmt,)) if not isinstance(s, ir.Tag | ir.ExpectTags) for v in ir.operands(s)
    )  # fmt: skip


def _speaks_of_it_alone(stmt: ir.Stmt, ref: ir.BufRef) -> bool:
    return isinstance(stmt, ir.Tag | ir.ExpectTags) and set(holders(stmt)) == {ref}


def _complete(block: list[ir.Stmt], last: int) -> int:
    """The position from `last` on where all products issued by then are complete."""
    flying = False
    for stmt in ir.walk(tuple(block[: last + 1])):
        if isinstance(stmt, ir.Wgmma):
            flying = True
        elif isinstance(stmt, ir.WgmmaWait) and stmt.pending == 0:
            flying = False
    if not flying:
        return last
    for i, stmt in enumerate(block):
        if i > last and isinstance(stmt, ir.WgmmaWait) and stmt.pending == 0:
            return i
    return last
