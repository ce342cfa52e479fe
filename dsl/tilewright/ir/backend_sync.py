"""Synchronization that the back end adds by itself, made explicit so that the verifier sees what will run.

Measured in the PTX that Gluon 3.6 emits for sm_90a: a `bar.sync` over the role stands before every elected
`mbarrier.arrive`, and after every wait for bulk-store groups. Triton's membar pass puts a barrier between ordinary
(generic-proxy) accesses of one role to the same shared buffer that conflict, and between an ordinary write and the bulk
store that reads the buffer; it does not order asynchronous copies otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import nodes as ir


def add_backend_sync(block: ir.Block) -> ir.Block:
    """`block` with an automatic `Sync` wherever the back end is known to put one; idempotent."""
    block = remove_backend_sync(block)

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.BarrierArrive():
                return (
                    ir.Sync(auto=True, span=stmt.span, note="the back end syncs the role before an elected arrive"),
                    stmt,
                )
            case ir.TmaStoreWait():
                return (stmt, ir.Sync(auto=True, span=stmt.span, note="the back end syncs the role after a store wait"))
            case _:
                return None

    return _membar(ir.rewrite(block, change))


def remove_backend_sync(block: ir.Block) -> ir.Block:
    """`block` without automatic syncs: what a person writes."""
    return ir.rewrite(block, lambda s: () if isinstance(s, ir.Sync) and s.auto else None)


def _membar(block: ir.Block) -> ir.Block:
    """A sync before each generic-proxy access that conflicts with an earlier one of the same role since the last sync.

    Loop bodies are entered with everything that any statement of the loop leaves pending (the back edge).
    """

    def go(b: ir.Block, reads: set[str], writes: set[str]) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in b:
            match stmt:
                case ir.Sync():
                    reads.clear()
                    writes.clear()
                case ir.SharedLoad(src=ref) | ir.TmaStore(src=ref):
                    if ref.buffer in writes:
                        out.append(_auto(stmt))
                        reads.clear()
                        writes.clear()
                    reads.add(ref.buffer)
                case ir.SharedStore(dst=ref):
                    if ref.buffer in writes or ref.buffer in reads:
                        out.append(_auto(stmt))
                        reads.clear()
                        writes.clear()
                    writes.add(ref.buffer)
                case ir.If():
                    r1, w1, r2, w2 = set(reads), set(writes), set(reads), set(writes)
                    stmt = ir.If(
                        stmt.cond, go(stmt.then, r1, w1), go(stmt.orelse, r2, w2), span=stmt.span, note=stmt.note
                    )
                    reads.clear()
                    writes.clear()
                    reads |= r1 | r2
                    writes |= w1 | w2
                case ir.Roles():
                    stmt = ir.Roles(
                        tuple(
                            ir.Role(r.name, r.warps, r.registers, go(r.body, set(), set()), r.span) for r in stmt.roles
                        ),
                        span=stmt.span,
                        note=stmt.note,
                    )
                case ir.For() | ir.While() | ir.Programs():
                    # Twice: the second pass starts from what the first leaves pending at the back edge.
                    r1, w1 = set(reads), set(writes)
                    go(stmt.body, r1, w1)
                    reads |= r1
                    writes |= w1
                    body = go(stmt.body, reads, writes)
                    stmt = replace(stmt, body=body)
                case _:
                    pass
            out.append(stmt)
        return tuple(out)

    return go(block, set(), set())


def _auto(stmt: ir.Stmt) -> ir.Sync:
    return ir.Sync(auto=True, span=stmt.span, note="the back end orders ordinary shared-memory accesses of one role")
