"""Operations and places in words, for messages."""

from __future__ import annotations

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.state import Iteration, Process


def sid(o: c.Instr) -> str:
    """The name of a statement among the obligations of its kernel object."""
    return f"statement {id(o.stmt)}"


def at(p: Process) -> Iteration:
    """Loop variables around the current place by name; that of a persistent grid counts the program's own tiles."""
    return tuple(
        (loop.var, p.env[loop.slot] if loop.first is None else loop.first + loop.step * p.env[loop.slot])
        for loop in p.role.loops
        if loop.start < p.pc < loop.end
    )


def words(iteration: Iteration) -> str:
    """An iteration in words, with a leading space; empty outside of loops."""
    return f" at {', '.join(f'{n} = {v}' for n, v in iteration)}" if iteration else ""


def describe(o: c.Instr) -> str:
    """An operation in a few words."""
    match o:
        case c.TmaLoad(box=box, dst=dst):
            return f"the load of {box.tensor} into {dst.text}"
        case c.CpAsync(box=box, dst=dst):
            return f"the copy of {box.tensor} into {dst.text}"
        case c.TmaStore(box=box, src=src):
            return f"the store of {src.text} to {box.tensor}"
        case c.Gather(box=box):
            return f"the load of {box.tensor}"
        case c.Store(box=box):
            return f"the store to {box.tensor}"
        case c.Wgmma(a=a, b=b):
            return f"the wgmma of {a if isinstance(a, str) else a.text} and {b.text}"
        case c.SharedLoad(src=src):
            return f"the read of {src.text}"
        case c.TensorProduct(a=a, b=b, acc=acc):
            return f"the product of {a.text} and {b.text} into {acc.text}"
        case c.TensorCommit(bar=bar):
            return f"the completion of products on {bar.text}"
        case c.TensorLoad(src=src):
            return f"the load of {src.text}"
        case c.SharedStore(dst=dst):
            return f"the write of {dst.text}"
        case c.Wait(bar=bar):
            return f"the wait on {bar.text}"
        case c.Arrive(bar=bar):
            return f"the arrival on {bar.text}"
        case c.Expect(bar=bar):
            return f"the announcement on {bar.text}"
        case c.WgmmaWait(pending=n):
            return f"wgmma_wait({n})"
        case c.CpWait(pending=n):
            return f"cp_wait({n})"
        case c.StoreWait(pending=n):
            return f"tma_store_wait({n})"
        case c.Mma():
            return "the mma"
        case c.Fence():
            return "the proxy fence"
        case _:
            return type(o.stmt).__name__.lower()


def doing(p: Process, o: c.Instr) -> str:
    """The operation that a process stands at, with its iteration."""
    return describe(o) + words(at(p))


def touched(o: c.Instr) -> frozenset[str]:
    """Buffers and barriers of an operation; the sentinel `*` marks waits and fences that concern all."""
    match o:
        case c.TmaLoad(dst=dst, bar=bar):
            return frozenset({dst.buffer.name, bar.barrier.name})
        case c.CpAsync(dst=place) | c.TmaStore(src=place) | c.SharedLoad(src=place) | c.SharedStore(dst=place):
            return frozenset({place.buffer.name})
        case c.Wgmma(a=a, b=b):
            return frozenset({a if isinstance(a, str) else a.buffer.name, b.buffer.name, o.dst})
        case c.TensorProduct(a=a, b=b, acc=acc):
            return frozenset({a.buffer.name, b.buffer.name, acc.buffer.name})
        case c.TensorLoad(src=place):
            return frozenset({place.buffer.name})
        case c.Wait(bar=bar) | c.Arrive(bar=bar) | c.Expect(bar=bar) | c.TensorCommit(bar=bar):
            return frozenset({bar.barrier.name})
        case c.WgmmaWait() | c.CpWait() | c.StoreWait() | c.Fence():
            return frozenset({"*"})
        case _:
            return frozenset()
