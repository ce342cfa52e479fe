"""Contractions that stop early because the rest contributes nothing, as under a causal mask.

A loop over the keys that ends at the last key of its queries leaves out keys that the mask would take out anyway. Shown
by one more iteration that the kernel does not run, at any place from the end of the loop up to the extent of the
dimension: what it would multiply is zero in every lane. Then running up to the extent would add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from ...async_.model import AsyncResult
from ...context import KernelContext
from .axes import defined
from .flow import Flow, Tiles
from .lanes import Lanes

_CONTRACTED = 1  # of the left operand of a product


def contributes_nothing(context: KernelContext, result: AsyncResult, loop: ir.Stmt, extent: ex.Expr) -> bool:
    """True if the products over a dimension of that `extent` would add zero in iterations after the end of `loop`."""
    role = next((b for b in _roles(context.kernel.body) if any(s is loop for s in ir.walk(b))), None)
    if role is None or not isinstance(loop, ir.For):
        return False
    operands = _operands(context.kernel, role, extent)
    if not operands or not operands <= defined(loop.body):
        return False
    types = dict(context.kernel.types)
    marks: list[ir.Compute] = []
    for n, name in enumerate(sorted(operands)):
        types[f"%rest.{n}"] = types[name]
        marks.append(ir.Compute(f"%rest.{n}", "copy", (ir.TileRef(name),), span=loop.span))
    copies: dict[int, ir.Stmt] = {}
    # From the end of the loop on in steps of 1: more places than the loop would come to.
    beyond = ir.For(loop.var, loop.hi, extent, 1, (*_copied(loop.body, copies), *marks), span=loop.span)
    body = _followed(_without_bystanders(context.kernel.body, role), loop, beyond)
    longer = KernelContext(context.kernel.with_body(body, types), context.decider)
    longer.deadline = context.deadline
    places = {(id(copies[i]), b): axes for (i, b), axes in result.places.items() if i in copies}
    longer.exploration = replace(result, places={**result.places, **places})
    watched = _Watched(longer, marks)
    watched.run()
    return all(watched.is_zero(m) for m in marks)


class _Watched(Flow):
    """Remembers what marks saw last, when nothing changed any more."""

    def __init__(self, context: KernelContext, marks: Sequence[ir.Compute]) -> None:
        super().__init__(context)
        self._marks = {id(m) for m in marks}
        self._seen: dict[int, Lanes] = {}

    def is_zero(self, mark: ir.Compute) -> bool:
        """True if every lane of the tile was zero. Rows past the edge of their tensor are dropped, so do not count."""
        tile = self._seen.get(id(mark))
        return (
            tile is not None
            and not tile.lost
            and all(n.is_zero for past, n in tile.held.items() if all(e.axis == _CONTRACTED for e in past))
        )

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        super()._statement(stmt, tiles)
        if id(stmt) in self._marks and isinstance(stmt, ir.Compute):
            self._seen[id(stmt)] = tiles[stmt.dst]


def _roles(body: ir.Block) -> Iterator[ir.Block]:
    found = [r.body for s in body if isinstance(s, ir.Roles) for r in s.roles]
    yield from found or [body]


def _without_bystanders(body: ir.Block, role: ir.Block) -> ir.Block:
    """The kernel without the roles that put nothing into the shared memory that a role reads."""
    read = {ref.buffer for ref in _references(role)}

    def feeds(other: ir.Role) -> bool:
        filled = (
            s.dst for s in ir.walk(other.body) if isinstance(s, ir.TmaLoad | ir.CpAsync | ir.CpGather | ir.SharedStore)
        )
        return other.body is role or any(ref.buffer in read for ref in filled)

    return tuple(
        replace(s, roles=tuple(r for r in s.roles if feeds(r))) if isinstance(s, ir.Roles) else s for s in body
    )


def _references(block: ir.Block) -> Iterator[ir.BufRef]:
    return (v for s in ir.walk(block) for v in ir.operands(s) if isinstance(v, ir.BufRef))


def _operands(kernel: ir.Kernel, role: ir.Block, extent: ex.Expr) -> set[str]:
    """Left operands, in registers, of the role's products over a dimension of that extent; empty if not all are."""
    over = {b for b, axes in _extents(kernel).items() if extent in axes}
    sources = {
        s.dst: s.args[0].name
        for s in ir.walk(role)
        if isinstance(s, ir.Compute) and s.op == "convert_layout" and isinstance(s.args[0], ir.TileRef)
    }
    found: set[str] = set()
    for stmt in ir.walk(role):
        match stmt:
            case ir.Wgmma(a=ir.TileRef(name=name), b=b):
                if b.buffer in over:
                    found.add(sources.get(name, name))
            case ir.Wgmma(a=ir.BufRef(buffer=left, transposed=flipped)):
                axes = _extents(kernel).get(left, ())
                if not axes or axes[0 if flipped else -1] == extent:
                    return set()
            case ir.Mma() | ir.Tcgen05():
                return set()
            case _:
                pass
    return found


def _extents(kernel: ir.Kernel) -> dict[str, tuple[ex.Expr, ...]]:
    """By buffer, the extents of the tensor that its tiles are loaded from, along their axes."""
    found: dict[str, tuple[ex.Expr, ...]] = {}
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.TmaLoad(view=view, dst=ref) | ir.CpAsync(view=view, dst=ref):
                found[ref.buffer] = kernel.param(view.tensor).type.shape[view.lead :]
            case _:
                pass
    return found


def _copied(block: ir.Block, copies: dict[int, ir.Stmt]) -> ir.Block:
    """The block in statements of its own, by the ids of those they are copies of."""
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.For(body=body) | ir.While(body=body) | ir.Programs(body=body):
                new: ir.Stmt = replace(stmt, body=_copied(body, copies))
            case ir.If(then=then, orelse=orelse):
                new = replace(stmt, then=_copied(then, copies), orelse=_copied(orelse, copies))
            case _:
                new = replace(stmt)
        copies[id(stmt)] = new
        out.append(new)
    return tuple(out)


def _followed(block: ir.Block, loop: ir.For, after: ir.For) -> ir.Block:
    """The block with a statement put after a loop. All other simple statements stay the objects that they are."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if stmt is loop:
            out += (stmt, after)
            continue
        match stmt:
            case ir.For(body=body) | ir.While(body=body) | ir.Programs(body=body):
                stmt = replace(stmt, body=_followed(body, loop, after))
            case ir.If(then=then, orelse=orelse):
                stmt = replace(stmt, then=_followed(then, loop, after), orelse=_followed(orelse, loop, after))
            case ir.Roles(roles=roles):
                stmt = replace(stmt, roles=tuple(replace(r, body=_followed(r.body, loop, after)) for r in roles))
            case _:
                pass
        out.append(stmt)
    return tuple(out)
