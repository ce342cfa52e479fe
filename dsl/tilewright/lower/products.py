"""Which accumulators of wgmma are in flight while a function is written, and which of them a wait must pass on.

Gluon's `warpgroup_mma_wait` returns the accumulators that are given to it; the compiler can use an accumulator before
it is complete unless it comes out of the wait that completes it. Passing one that stays in flight touches its
registers, which serializes the products; one that is complete and no longer used would be kept alive.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes as ir
from tilewright.lower.errors import LoweringError
from tilewright.source import Span


class Products:
    """The products of one function, in the order of issue."""

    def __init__(self) -> None:
        # Not known to be complete, and of those what no wait has returned yet: the compiler has no value for it.
        self.flying: dict[str, Span] = {}
        self.unreturned: dict[str, Span] = {}

    def issue(self, name: str, span: Span) -> None:
        """A wgmma into an accumulator."""
        for queue in (self.flying, self.unreturned):
            queue.pop(name, None)
            queue[name] = span

    def wait(self, pending: int, rest: ir.Block) -> list[str]:
        """The accumulators that a wait passes on; `rest` are the statements after it in its block.

        What goes on and is taken up by a later wait stays out.
        """
        names = list(self.flying)
        later = names[max(0, len(names) - pending) :] if pending else []
        kept = {n for n in later if n in self.unreturned and _waited_for(n, rest)}
        self.flying = {n: self.flying[n] for n in later}
        self.unreturned = {n: span for n, span in self.unreturned.items() if n in kept}
        return [n for n in names if n not in kept]

    def enter(self, body: ir.Block, defined: set[str]) -> None:
        """The start of a loop: what an iteration leaves in flight is so at the start of the next."""
        if any(isinstance(s, ir.WgmmaWait) and s.pending for s in ir.walk(body)):
            for stmt in ir.walk(body):
                if isinstance(stmt, ir.Wgmma) and stmt.dst in defined:
                    self.flying.setdefault(stmt.dst, stmt.span)

    def leave(self, defined: set[str]) -> None:
        """The end of an iteration. Raises LoweringError if the next needs an accumulator that no wait has returned."""
        for name, span in self.unreturned.items():
            if name in defined:
                raise LoweringError(
                    f"an iteration ends without a tw.wgmma_wait after this wgmma into '{name}', which the next needs",
                    span,
                )

    def copy(self) -> Products:
        """The same, apart from what happens next."""
        other = Products()
        other.flying, other.unreturned = dict(self.flying), dict(self.unreturned)
        return other

    def join(self, other: Products) -> None:
        """After a branch: what may be in flight on either side."""
        self.flying |= other.flying
        self.unreturned |= other.unreturned

    def check(self, stmt: ir.Stmt) -> None:
        """LoweringError where a result of wgmma is read before any wait."""
        for name in _read(stmt):
            if name in self.unreturned:
                raise LoweringError(
                    f"'{name}' is read while a wgmma may still write it; put a tw.wgmma_wait before", stmt.span
                )


def _read(stmt: ir.Stmt) -> Sequence[str]:
    match stmt:
        case ir.Compute(args=args):
            return [a.name for a in args if isinstance(a, ir.TileRef)]
        case ir.Store(src=name) | ir.SharedStore(src=name) | ir.Scatter(src=name) | ir.Atomic(src=name):
            return [name]
        case ir.Wgmma(a=ir.TileRef(name=name)):
            return [name]
        case _:
            return []


def _waited_for(name: str, rest: ir.Block) -> bool:
    """Whether another wait of the block comes before anything that uses the accumulator."""
    for stmt in rest:
        if isinstance(stmt, ir.WgmmaWait):
            return True
        if any(value in (name, ir.TileRef(name)) for s in ir.walk((stmt,)) for value in ir.operands(s)):
            return False
    return False
