"""What has to be shown about an explicit kernel, read off its statements."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import nodes as ir
from tilewright.ir.tagging import shown
from tilewright.source import Span


@dataclass(frozen=True, slots=True)
class Obligation:
    """One obligation: `subject` is a buffer, a barrier, a statement (`statement <id>`), or the kernel."""

    code: str
    subject: str
    what: str
    span: Span


def obligations(kernel: ir.Kernel) -> tuple[Obligation, ...]:
    """All obligations of the engine for a kernel."""
    out: list[Obligation] = []
    stmts = list(ir.walk(kernel.body))
    products = [s for s in stmts if isinstance(s, ir.Mma | ir.Wgmma | ir.Tcgen05)]
    for s in products:
        out.append(Obligation("TW101", _id(s), "multiplied elements carry equal coordinates", s.span))
    contracted = _contracted(stmts)
    for s in stmts:
        match s:
            case ir.Store(src=name, view=view) | ir.Atomic(src=name, view=view):
                pass
            case ir.TmaStore(src=ref, view=view):
                name = ref.buffer
            case ir.ExpectTags():
                out.append(Obligation("TW106", _id(s), shown(s, s.cond), s.span))
                continue
            case ir.Scatter(src=name):
                view = None
            case _:
                continue
        tensor = s.tensor if isinstance(s, ir.Scatter) else view.tensor if view is not None else ""
        if name in contracted:
            what = f"the value stored to {tensor} is contracted exactly once over all of its dimension"
            out.append(Obligation("TW102", _id(s), what, s.span))
        what = f"elements stored to {tensor} carry its coordinates"
        out.append(Obligation("TW103", _id(s), what, s.span))
    out += _memory(stmts)
    out += _barriers(kernel, stmts)
    return tuple(out)


def _id(s: ir.Stmt) -> str:
    return f"statement {id(s)}"


def _memory(stmts: list[ir.Stmt]) -> list[Obligation]:
    reads: set[str] = set()
    generic: set[str] = set()
    proxied: set[str] = set()
    for s in stmts:
        match s:
            case ir.TmaLoad(dst=ref):
                proxied.add(ref.buffer)
            case ir.CpAsync(dst=ref) | ir.CpGather(dst=ref) | ir.SharedStore(dst=ref):
                generic.add(ref.buffer)
            case ir.TmaStore(src=ref):
                reads.add(ref.buffer)
                proxied.add(ref.buffer)
            case ir.SharedLoad(src=ref):
                reads.add(ref.buffer)
            case ir.TensorLoad(src=ref):
                reads.add(ref.buffer)
            case ir.Wgmma(a=a, b=b) | ir.Tcgen05(a=a, b=b):
                shared = {ref.buffer for ref in (a, b) if isinstance(ref, ir.BufRef)}
                reads |= shared
                proxied |= shared
            case _:
                pass
    out: list[Obligation] = []
    for s in stmts:
        if not isinstance(s, ir.AllocShared | ir.AllocTensor):
            continue
        n = s.dst
        out.append(Obligation("TW401", n, f"accesses to {n} are ordered", s.span))
        if n in reads:
            out.append(Obligation("TW203", n, f"{n} is written before it is read", s.span))
            out.append(Obligation("TW204", n, f"reads of {n} see the tile of their own iteration", s.span))
        if n in generic & proxied:
            out.append(Obligation("TW404", n, f"ordinary writes to {n} are fenced for the asynchronous proxy", s.span))
    products = [s for s in stmts if isinstance(s, ir.Wgmma)]
    if products:
        what = "accumulators are read after their wgmma is complete"
        if any(isinstance(s.a, ir.TileRef) for s in products):
            what += ", and register operands keep their value until then"
        out.append(Obligation("TW401", "registers", what, products[0].span))
    return out


def _barriers(kernel: ir.Kernel, stmts: list[ir.Stmt]) -> list[Obligation]:
    out: list[Obligation] = []
    announced = {s.bar.barrier for s in stmts if isinstance(s, ir.BarrierExpect | ir.TmaLoad)}
    for s in stmts:
        if not isinstance(s, ir.AllocBarrier):
            continue
        n = s.dst
        out.append(Obligation("TW402", n, f"arrivals and waits on {n} meet the phases they are meant for", s.span))
        if n in announced:
            out.append(Obligation("TW405", n, f"the bytes announced on {n} are the bytes delivered", s.span))
        out.append(Obligation("TW407", n, f"each phase of {n} gets the arrivals it counts", s.span))
    if any(isinstance(s, ir.BarrierWait | ir.Sync) for s in stmts):
        out.append(Obligation("TW403", "kernel", "no schedule blocks forever", kernel.span))
    copies = ir.TmaStore | ir.TmaLoad | ir.CpAsync | ir.CpGather
    if any(isinstance(s, ir.Wgmma | ir.Tcgen05 | copies) for s in stmts):
        out.append(Obligation("TW406", "exit", "no asynchronous work is pending at the end", kernel.span))
    return out


def _contracted(stmts: list[ir.Stmt]) -> frozenset[str]:
    """Tiles and buffers whose value comes from a product."""
    names: set[str] = set()
    while True:
        before = len(names)
        for s in stmts:
            match s:
                case ir.Mma(dst=dst) | ir.Wgmma(dst=dst):
                    names.add(dst)
                case ir.Tcgen05(acc=ref):
                    names.add(ref.buffer)
                case ir.Compute(dst=dst, args=args):
                    if any(isinstance(a, ir.TileRef) and a.name in names for a in args):
                        names.add(dst)
                case ir.SharedStore(dst=ref, src=src):
                    if src in names:
                        names.add(ref.buffer)
                case ir.SharedLoad(dst=dst, src=ref) | ir.TensorLoad(dst=dst, src=ref):
                    if ref.buffer in names:
                        names.add(dst)
                case _:
                    pass
        if len(names) == before:
            return frozenset(names)
