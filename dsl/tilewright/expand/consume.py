"""The loop of a role that computes: the body of a split pipeline in the order that `plan` found."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expand.ahead import ahead
from tilewright.expand.operands import Resident, decided, reads_of, tiles_of, wgmma
from tilewright.expand.plan import is_product
from tilewright.expand.rings import Ring
from tilewright.expand.staging import of_stages
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.bounds import Bounds
from tilewright.ir.dataflow import read_by, written_by
from tilewright.ir.expr import Var
from tilewright.source import Span


def compute_loop(ring: Ring, resident: Resident, bounds: Bounds) -> ir.Block:
    """The loop, and what comes before and after it; `bounds` are least values of scalars."""
    match ring.plan.kind:
        case "flight":
            return _in_flight(ring, resident)
        case "ahead":
            return ahead(ring, resident, bounds)
        case "order":
            return _in_order(ring, resident)


def _in_flight(ring: Ring, resident: Resident) -> ir.Block:
    """Products of one iteration stay in flight over the back edge, so the stage of the one before is given back."""
    loop, span = ring.loop, ring.loop.span
    (group,) = ring.groups
    body: list[ir.Stmt] = [ring.filled(group)]
    for stmt in ring.rest:
        if is_product(stmt):
            body.append(wgmma(stmt, ring, resident))
        else:
            body += of_stages((stmt,), ring.loads, ring.reads, ring.stage(), frozenset[str]())
    count = sum(map(is_product, ring.rest))
    what = "product is" if count == 1 else "products are"
    back = loop.stages - 1
    body += [
        ir.WgmmaWait(count, span=span, note=f"of the previous iteration the {what} complete"),
        ir.If(ex.less(loop.lo, Var(loop.var)), (ring.free(group, back, "its stage is free"),), span=span),
        ring.count,
    ]
    return (
        ir.For(loop.var, loop.lo, loop.hi, loop.step, tuple(body), span=span),
        ir.WgmmaWait(0, span=span),
        *decided(ex.less(loop.lo, loop.hi), (ring.free(group, back, "the last stage is free"),), span),
    )


def _in_order(ring: Ring, resident: Resident) -> ir.Block:
    """The body as written. Stages are given back at its end."""
    loop, span = ring.loop, ring.loop.span
    waited: set[str] = set()
    read: set[str] = set()
    body: list[ir.Stmt] = []
    said: list[ir.Stmt] = []

    def wait(names: frozenset[str]) -> None:
        for group in ring.groups:
            if group.full not in waited and (not body or {c.load.dst for c in group.copies} & _loads(ring, names)):
                waited.add(group.full)
                body.append(ring.filled(group))

    wait(frozenset())
    for stmt in ring.rest:
        if isinstance(stmt, ir.Tag | ir.ExpectTags):
            said.append(stmt)
        else:
            wait(read_by(stmt))
        ready = [s for s in said if _loads(ring, tiles_of(s)) <= _filled(ring, waited)]
        said = [s for s in said if s not in ready]
        body += of_stages(tuple(ready), ring.loads, ring.reads, ring.stage(), frozenset(read))
        if is_product(stmt):
            body.append(wgmma(stmt, ring, resident))
        elif not isinstance(stmt, ir.Tag | ir.ExpectTags):
            body += reads_of(ring, stmt, read)
            body.append(stmt)
    for group in ring.groups:
        if group.full not in waited:
            body.append(ring.filled(group))
    body += of_stages(tuple(said), ring.loads, ring.reads, ring.stage(), frozenset(read))
    body = awaited(body)
    body += [*(ring.free(g) for g in ring.groups), ring.count]
    return (ir.For(loop.var, loop.lo, loop.hi, loop.step, tuple(body), span=span),)


def _loads(ring: Ring, names: frozenset[str]) -> set[str]:
    """The loads that tiles of these names are read from."""
    return {r.staged.load.dst for r in ring.reads if r.dst in names or r.staged.load.dst in names}


def _filled(ring: Ring, waited: set[str]) -> set[str]:
    return {c.load.dst for g in ring.groups if g.full in waited for c in g.copies}


def awaited(body: Sequence[ir.Stmt]) -> list[ir.Stmt]:
    """`body` with a wait before what uses the result of a product or changes its operands, and at the end."""
    out: list[ir.Stmt] = []
    flying: list[ir.Wgmma] = []

    def wait(last: int, span: Span) -> None:
        """Until product number `last` of those in flight is complete."""
        nonlocal flying
        pending = len(flying) - 1 - last
        note = "the product is complete" if last == 0 else "the products are complete"
        out.append(ir.WgmmaWait(pending, span=span, note=note))
        flying = flying[last + 1 :]

    for stmt in body:
        reads, writes = read_by(stmt), written_by(stmt)
        if isinstance(stmt, ir.Wgmma):
            reads = frozenset({stmt.a.name}) if isinstance(stmt.a, ir.TileRef) else frozenset[str]()
            writes -= {stmt.acc}
        late = [
            i for i, w in enumerate(flying)
            if w.dst in reads | writes or (isinstance(w.a, ir.TileRef) and w.a.name in writes)
        ]  # fmt: skip
        if late:
            wait(late[-1], flying[late[-1]].span)
        out.append(stmt)
        if isinstance(stmt, ir.Wgmma):
            flying.append(stmt)
    if flying:
        wait(len(flying) - 1, flying[-1].span)
    return out
