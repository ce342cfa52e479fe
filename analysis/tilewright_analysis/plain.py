"""A kernel as its author thinks of it: pipelines as loops, loads and stores that are done at once.

Checks of values that do not depend on the order of execution read it, where staging would only hide the coordinates
from them.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expand.grid import expand_tiles
from tilewright.expand.names import Names
from tilewright.ir import nodes as ir
from tilewright.targets import TARGETS


def plain(kernel: ir.Kernel) -> ir.Kernel:
    """`kernel` with its grid spelled out and every other policy replaced by what it means without staging."""
    names = Names(kernel.types, {p.name for p in kernel.params} | set(kernel.sizes) | {c.name for c in kernel.consts})
    body = ir.rewrite(expand_tiles(kernel.body, names, TARGETS[kernel.target]), _unstaged)
    return kernel.with_body(body, names.types)


def _unstaged(stmt: ir.Stmt) -> ir.Block | None:
    match stmt:
        case ir.Pipeline(var=var, lo=lo, hi=hi, step=step, body=body):
            return (ir.For(var, lo, hi, step, body, span=stmt.span),)
        case ir.Load(via=via, other=other) if via != "direct":
            # Staged copies give zeros past the edge.
            return (replace(stmt, via="direct", other=0.0 if other is None else other),)
        case ir.Store(via=via) if via != "direct":
            return (replace(stmt, via="direct"),)
        case _:
            return None
