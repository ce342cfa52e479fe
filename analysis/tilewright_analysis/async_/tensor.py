"""Rules of tensor memory: products that one thread issues, their completion on barriers, and loads of accumulators.

PTX ISA, "Memory Consistency Model for 5th generation of TensorCore operations": products of one thread into one
accumulator, of one shape and kind, are pipelined, that is, execute in order; other products of the thread may execute
in any order. "tcgen05.commit": one arrival when all products that the thread issued before are complete.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.findings import Findings
from tilewright_analysis.async_.state import Process, State
from tilewright_analysis.async_.tag_machine import TagMachine


class TensorMachine(TagMachine):
    """A machine that also knows tensor memory."""

    def __init__(self, program: c.Program, reporter: Findings, interrupted: Callable[[int], bool]) -> None:
        super().__init__(program, reporter, interrupted)
        self._rules |= {
            c.TensorProduct: self._tensor_product,
            c.TensorCommit: self._tensor_commit,
            c.TensorLoad: self._tensor_load,
        }

    def _tensor_product(self, s: State, p: Process, o: c.TensorProduct) -> bool:
        token = self._token(s)
        stage_a, stage_b = self._stage(s, p, o, o.a), self._stage(s, p, o, o.b)
        stage = self._stage(s, p, o, o.acc)
        # What completes in order: a later product into the same accumulator also says that the earlier ones are done.
        queue = f"tcgen05 {o.kind} {o.acc.buffer.name}[{stage}]"
        self._access(s, p, o, o.a, stage_a, write=False, generic=False, queue=queue, token=token)
        self._access(s, p, o, o.b, stage_b, write=False, generic=False, queue=queue, token=token)
        a, b = self._tile(s, p, o, o.a, stage_a), self._tile(s, p, o, o.b, stage_b)
        held = self._tile(s, p, o, o.acc, stage) if o.accumulate else None
        before = p.known
        own = {r.token for r in s.accesses[o.acc.buffer.name] if r.process == p.index and r.queue == queue}
        p.known = before | own
        self._access(s, p, o, o.acc, stage, write=True, generic=False, queue=queue, token=token)
        p.known = before
        p.tensor.add(token)
        value = self.tags.product(s, p, o, a, b, held, o.a.shape[-1], None)
        s.content[o.acc.buffer.name, stage] = self.tags.made(p, value)
        return True

    def _tensor_commit(self, s: State, p: Process, o: c.TensorCommit) -> bool:
        # The arrival is no release by the thread for its ordinary writes, and for those that it knows of: a waiter
        # learns of them only what another barrier says.
        written = {r.token for rows in s.accesses.values() for r in rows if r.write and r.generic}
        self._count(s, p, o, o.bar, (p.known - written) | p.tensor, 1, 0)
        return True

    def _tensor_load(self, s: State, p: Process, o: c.TensorLoad) -> bool:
        stage, token = self._stage(s, p, o, o.src), self._token(s)
        self._access(s, p, o, o.src, stage, write=False, generic=False, queue="tensor load", token=token)
        p.local.add(token)
        p.tiles[o.dst] = self.tags.closed(s, p, o, self._tile(s, p, o, o.src, stage))
        return True
