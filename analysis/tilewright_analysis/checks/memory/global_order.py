"""TW206: a tensor that the kernel both reads and writes.

Nothing orders accesses to global memory between programs, and between the threads of a program only a barrier does,
which ordinary code has no reason to put there. One pattern needs no order: a tile that is loaded, computed on and
stored back to its place, by the one program that owns it. Everything else is left open.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import nodes as ir
from tilewright.problem import Related

from ...context import KernelContext, Site, view_span
from ...report import Obligation
from ..outcome import proved, unknown

_ADVICE = "read from one tensor and write to another, or launch two kernels"


def check(context: KernelContext) -> Iterable[Obligation]:
    """One obligation for each tensor that is loaded and stored."""
    loads: dict[str, list[tuple[Site, ir.View]]] = {}
    stores: dict[str, list[tuple[Site, ir.View]]] = {}
    for site, view in context.views():
        into = stores if isinstance(site.stmt, ir.Store | ir.TmaStore | ir.Atomic) else loads
        into.setdefault(view.tensor, []).append((site, view))
    points = [s for s in context.sites if isinstance(s.stmt, ir.Gather | ir.CpGather | ir.Scatter)]
    for tensor in sorted({s.stmt.tensor for s in points if isinstance(s.stmt, ir.Gather | ir.CpGather | ir.Scatter)}):
        mine = [
            s for s in points if isinstance(s.stmt, ir.Gather | ir.CpGather | ir.Scatter) and s.stmt.tensor == tensor
        ]
        reads = tensor in loads or any(isinstance(s.stmt, ir.Gather | ir.CpGather) for s in mine)
        writes = tensor in stores or any(isinstance(s.stmt, ir.Scatter) for s in mine)
        if reads and writes:
            what = f"no load of {tensor} meets a store to it in another order than the text says"
            missing = f"the kernel reads and writes {tensor}, by index tiles. To be safe, {_ADVICE}"
            yield unknown(context, "TW206", "memory", what, mine[0].stmt.span, missing)
            loads.pop(tensor, None)
    for tensor in sorted(loads.keys() & stores.keys()):
        yield _tensor(context, tensor, loads[tensor], stores[tensor])


def _tensor(
    context: KernelContext, tensor: str, loads: list[tuple[Site, ir.View]], stores: list[tuple[Site, ir.View]]
) -> Obligation:
    what = f"no load of {tensor} meets a store to it in another order than the text says"
    for load, source in loads:
        for store, target in stores:
            reason = _why_not_in_place(context, load, source, store, target)
            if reason:
                related = (Related(view_span(store.stmt, target), f"{tensor} is stored here"),)
                missing = f"the kernel reads and writes {tensor}, and {reason}. To be safe, {_ADVICE}"
                return unknown(context, "TW206", "memory", what, view_span(load.stmt, source), missing, related=related)
    return proved("TW206", "memory", what, view_span(loads[0][0].stmt, loads[0][1]), "each tile goes back to its place")


def _why_not_in_place(context: KernelContext, load: Site, source: ir.View, store: Site, target: ir.View) -> str:
    """Empty if the store puts back to its place what is computed from the loaded tile; else what is in the way."""
    if isinstance(store.stmt, ir.Atomic):
        return "an atomic update of it is ordered with nothing else"
    if not isinstance(load.stmt, ir.Load) or not isinstance(store.stmt, ir.Store):
        return "an asynchronous copy of it is ordered with nothing else"
    if load.role != store.role:
        return "two roles do so at the same time"
    if load.binders != store.binders or load.conditions != store.conditions:
        return "the load and the store do not run together, each once an iteration"
    here = tuple(load.value(o) for o in source.origin)
    there = tuple(store.value(o) for o in target.origin)
    if here != there or source.shape != target.shape:
        return "the tile that is loaded is not known to be the one that is stored"
    if not _feeds(context, load, store):
        return "the stored value does not depend on the loaded one, so threads may store before others have loaded"
    return ""


def _feeds(context: KernelContext, load: Site, store: Site) -> bool:
    """True when `store` comes after `load` and writes a value computed from its result on every path between them."""
    assert isinstance(load.stmt, ir.Load) and isinstance(store.stmt, ir.Store)
    reached: set[str] = set()
    for site in context.sites:
        if site.stmt is load.stmt:
            reached = {load.stmt.dst}
        elif site.stmt is store.stmt:
            return store.stmt.src in reached
        else:
            written = getattr(site.stmt, "dst", None)
            if isinstance(written, str):
                always = site.binders == load.binders and site.conditions == load.conditions
                if always and reached.intersection(_read(site.stmt)):
                    reached.add(written)
                else:
                    reached.discard(written)
    return False


def _read(stmt: ir.Stmt) -> set[str]:
    match stmt:
        case ir.Compute(args=args):
            return {a.name for a in args if isinstance(a, ir.TileRef)}
        case ir.Mma(a=a, b=b, acc=acc):
            return {a, b, acc}
        case _:
            return set()
