"""Which temporaries of nested expressions need names when a kernel is printed."""

from __future__ import annotations

from collections import Counter

from tilewright.ir import nodes as ir
from tilewright.ir.tagging import holders


def names_of_temporaries(kernel: ir.Kernel) -> dict[str, str]:
    """Names for temporaries that cannot stand inside the expression that uses them.

    One can if it is used once, in the same block, and only temporaries of the same expression are computed between.
    """
    uses = Counter(n for s in ir.walk(kernel.body) for n in _tiles_read(s))
    named: dict[str, str] = {}

    def name(temporary: str) -> None:
        number = len(named) + 1
        while (wanted := f"tile_{number}") in kernel.types or wanted in named.values():
            number += 1
        named.setdefault(temporary, wanted)

    def go(block: ir.Block) -> None:
        waiting: list[str] = []
        for stmt in block:
            if isinstance(stmt, ir.Tag | ir.ExpectTags):
                continue
            read = set(_tiles_read(stmt))
            waiting = [t for t in waiting if t not in read]
            dst = getattr(stmt, "dst", None)
            inline = isinstance(dst, str) and dst.startswith("%") and uses[dst] == 1 and not isinstance(stmt, ir.Assign)
            if inline:
                waiting.append(str(dst))
                continue
            for temporary in waiting:
                name(temporary)
            waiting = []
            if isinstance(dst, str) and dst.startswith("%"):
                name(dst)
            for inner in ir.children(stmt):
                go(inner)
        for temporary in waiting:
            name(temporary)

    go(kernel.body)
    return named


def _tiles_read(stmt: ir.Stmt) -> list[str]:
    """Register tiles that a statement reads."""
    match stmt:
        case ir.Compute(args=args):
            return [a.name for a in args if isinstance(a, ir.TileRef)]
        case ir.Store(src=src) | ir.SharedStore(src=src):
            return [src]
        case ir.Gather(index=index, mask=mask) | ir.CpGather(index=index, mask=mask):
            return [i.name for i in (*index, mask) if isinstance(i, ir.TileRef)]
        case ir.Scatter(index=index, mask=mask, src=src):
            return [*(i.name for i in (*index, mask) if isinstance(i, ir.TileRef)), src]
        case ir.Atomic(src=src, mask=mask):
            return [src] if mask is None else [src, mask]
        case ir.Mma(a=a, b=b, acc=acc):
            return [a, b, acc]
        case ir.Wgmma(a=ir.TileRef(name=a), acc=acc):
            return [a, acc]
        case ir.Wgmma(acc=acc):
            return [acc]
        case ir.Tag() | ir.ExpectTags():
            return [h for h in holders(stmt) if isinstance(h, str)] * 2
        case _:
            return []
