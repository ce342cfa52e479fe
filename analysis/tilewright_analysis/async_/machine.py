"""Executes flat code: one canonical schedule, one rule for each operation.

Rules A, L and U on barriers make the schedule representative: if every arrival is ordered after the end of the phase
before (A), every wait knows the phase before the one it waits for (L), and no phase can end before the waits matched to
the phase before have returned (U), then every schedule has the same happens-before, so this one decides for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import placement
from tilewright_analysis.async_.branches import either
from tilewright_analysis.async_.findings import Findings
from tilewright_analysis.async_.named import transposed
from tilewright_analysis.async_.state import Access, Phase, Process, State
from tilewright_analysis.async_.tags import OLD, Value
from tilewright_analysis.async_.words import at

Moved = Literal["moved", "blocked", "stuck"]
STEPS_BETWEEN_LOOKS = 5000


class Interrupted(Exception):
    """Raised in the middle of a run when `interrupted` says so."""


class Machine:
    """Runs states of one program. `reporter` receives what goes wrong; it raises for what ends a path.

    `interrupted` is asked now and then, with the number of steps so far, whether to give up.
    """

    def __init__(self, program: c.Program, reporter: Findings, interrupted: Callable[[int], bool]) -> None:
        self.program = program
        self.interrupted = interrupted
        self._next_look = STEPS_BETWEEN_LOOKS
        self.report = reporter
        self.steps = 0
        self.tags = placement.Placement(program, reporter)
        self.met: set[c.Guess] = set()
        self.wrong: set[c.Guess] = set()
        self._rules: dict[type[c.Instr], Callable[..., bool]] = {
            c.SetScalar: self._set, c.Wait: self._wait, c.Arrive: self._arrive, c.Expect: self._expect,
            c.TmaLoad: self._tma_load, c.TmaStore: self._tma_store, c.StoreWait: self._store_wait,
            c.CpAsync: self._cp_async, c.CpCommit: self._cp_commit, c.CpWait: self._cp_wait,
            c.SharedLoad: self._shared_load, c.SharedStore: self._shared_store, c.Wgmma: self._wgmma,
            c.WgmmaWait: self._wgmma_wait, c.Mma: self._mma, c.Fence: self._fence, c.RoleSync: self._sync,
            c.Compute: self._compute, c.Choice: self._choice, c.Load: self._load, c.Gather: self._gather,
            c.Store: self._store,
        }  # fmt: skip

    def run(self, s: State) -> tuple[int, int, int] | None:
        """Run every process until it blocks.

        Returns the undecided comparison `v < N` as (oracle, outer, v), or None at the end.
        """
        while True:
            moved = False
            for p in s.processes:
                while not p.done:
                    outcome = self._step(s, p)
                    if outcome != "moved":
                        break
                    moved = True
            if not moved:
                break
        stuck = [p.stuck for p in s.processes if p.stuck is not None and not p.done]
        if stuck:
            oracle, outer, _ = stuck[0]
            return oracle, outer, min(v for o, i, v in stuck if (o, i) == (oracle, outer))
        if any(not p.done for p in s.processes):
            self.report.deadlock(s)
        self._loads_at_exit(s)
        return None

    # ------------------------------------------------------------------------------------------- control

    def _step(self, s: State, p: Process) -> Moved:
        if p.pc >= len(p.code):
            self._exit(s, p)
            return "moved"
        self.steps += 1
        instr = p.code[p.pc]
        kind = type(instr)
        rule = self._rules.get(kind)
        if rule is not None:
            if instr.elect and p.groups:
                p.pc += 1
                return "moved"
            if self.report.tracing:
                self.report.before(s, p, instr)
            if rule(s, p, instr):
                p.pc += 1
                return "moved"
            return "blocked"
        match instr:
            case c.LoopHead(loop=loop):
                p.env[loop.slot] = 0
                return self._iterate(s, p, loop, 0)
            case c.LoopBack(loop=loop):
                return self._iterate(s, p, loop, p.env[loop.slot] + 1)
            case c.Branch(value=value, oracle=oracle, target=target):
                if oracle is None:
                    holds = bool(value(p.env))
                else:
                    decided = self._less(s, p, value(p.env), oracle)
                    if decided is None:
                        return "stuck"
                    holds = decided
                p.pc = p.pc + 1 if holds else target
            case c.Jump(target=target):
                p.pc = target
            case _:
                raise AssertionError(kind)
        return "moved"

    def _iterate(self, s: State, p: Process, loop: c.Loop, i: int) -> Moved:
        # Loops of constant length run without coming back to the search.
        if self.steps > self._next_look:
            self._next_look = self.steps + STEPS_BETWEEN_LOOKS
            if self.interrupted(self.steps):
                raise Interrupted
        if loop.oracle is None:
            assert loop.bound is not None
            more = i < loop.bound(p.env)
        else:
            decided = self._less(s, p, i - loop.offset, loop.oracle)
            if decided is None:
                return "stuck"
            more = decided
        if more:
            p.env[loop.slot] = i
            p.pc = loop.start + 1
        else:
            p.pc = loop.end
        if loop.level == 0 and loop.oracle is not None:
            p.outer = i if more else 0
        return "moved"

    def _less(self, s: State, p: Process, v: int, oracle: int) -> bool | None:
        o = self.program.oracles[oracle]
        outer = p.outer if o.outer is not None else 0
        low, high = s.oracles.get((oracle, outer), (o.minimum, o.maximum))
        if v < low:
            p.stuck = None
            return True
        if v >= high:
            p.stuck = None
            return False
        p.stuck = (oracle, outer, v)
        return None

    def _exit(self, s: State, p: Process) -> None:
        if p.products or p.stores or any(p.copies) or p.open:
            self.report.pending_at_exit(s, p)
        p.done = True

    def _loads_at_exit(self, s: State) -> None:
        known = set[int]().union(*(p.known | p.local for p in s.processes))
        for rows in s.accesses.values():
            for r in rows:
                if r.write and not r.generic and r.token not in known:
                    self.report.load_at_exit(s, r)

    def _set(self, s: State, p: Process, o: c.SetScalar) -> bool:
        p.env[o.slot] = o.value(p.env)
        return True

    # ------------------------------------------------------------------------------------------- barriers

    def _phase(self, s: State, p: Process, o: c.Instr, slot: c.Slot) -> Phase:
        i = int(slot.index(p.env))
        if not 0 <= i < slot.barrier.slots:
            self.report.bad_slot(s, p, o, slot, i)
        return s.phases[slot.barrier.first + i]

    def _count(self, s: State, p: Process, o: c.Instr, slot: c.Slot, brings: set[int], arrivals: int, tx: int) -> None:
        """An arrival, an announcement of bytes, or a delivery of bytes (negative `tx`)."""
        b = self._phase(s, p, o, slot)
        if b.end is not None and b.end not in brings:
            self.report.unordered_arrival(s, p, o, b, delivery=arrivals == 0)
        b.pending -= arrivals
        b.tx += tx
        b.bringing |= brings
        if b.pending < 0:
            self.report.too_many_arrivals(s, p, o, b)
        if b.pending == 0 and b.tx < 0:
            self.report.too_many_bytes(s, p, o, b)
        if b.pending == 0 and b.tx == 0:
            for process, token in b.waits:
                if token not in b.bringing:
                    self.report.missed_phase(s, p, o, b, process)
            b.completed += 1
            b.end_before, b.end = b.end, self._token(s)
            b.handed = frozenset(b.bringing | {b.end})
            b.bringing = set()
            b.pending = b.arrivals
            b.waits = ()

    def _wait(self, s: State, p: Process, o: c.Wait) -> bool:
        b = self._phase(s, p, o, o.bar)
        if b.completed % 2 == (int(o.parity(p.env)) & 1):
            return False
        if b.end_before is not None and b.end_before not in p.known:
            self.report.early_wait(s, p, o, b)
        token = self._token(s)
        p.known |= b.handed
        p.known.add(token)
        b.waits = (*(w for w in b.waits if w[0] != p.index), (p.index, token))
        return True

    def _arrive(self, s: State, p: Process, o: c.Arrive) -> bool:
        self._count(s, p, o, o.bar, p.known, 1, 0)
        return True

    def _expect(self, s: State, p: Process, o: c.Expect) -> bool:
        self._count(s, p, o, o.bar, p.known, 1, int(o.bytes(p.env)))
        return True

    # ------------------------------------------------------------------------------------------- memory

    def _token(self, s: State) -> int:
        s.tokens += 1
        return s.tokens

    def _stage(self, s: State, p: Process, o: c.Instr, place: c.Place) -> int:
        i = int(place.stage(p.env))
        if not 0 <= i < place.buffer.stages:
            self.report.bad_stage(s, p, o, place, i)
        return i

    def _access(
        self, s: State, p: Process, o: c.Instr, place: c.Place, stage: int, *, write: bool, generic: bool, queue: str,
        token: int, rows: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Check an access against the ones it must be ordered after, and record it."""
        height = place.buffer.shape[0] if place.buffer.shape else 1
        low, high = stage * height, (stage + 1) * height
        if rows is not None:
            low, high = stage * height + rows[0], stage * height + rows[1]
        records = s.accesses[place.buffer.name]
        kept: list[Access] = []
        if generic and write:
            p.turn += 1
        for r in records:
            if r.low >= high or low >= r.high:
                kept.append(r)
                continue
            same = False
            if write or r.write:
                # Warpgroups that execute one statement together touch elements of their own.
                same = generic and r.instr is o and r.process != p.index and r.turn == p.turn and r.generic
                if r.token not in p.known and not same:
                    self.report.race(s, p, o, place, r, write)
                if r.generic and r.write and not generic and r.fence is not None and r.fence not in p.known:
                    self.report.unfenced(s, p, o, place, r)
            if not same and low <= r.low and r.high <= high:
                if write:
                    continue
                if not r.write and r.process == p.index and r.queue == queue:
                    continue
            kept.append(r)
        fence = self._token(s) if generic and write else None
        turn = p.turn if generic and p.role.groups > 1 else 0
        early = not write and (place.buffer.name, stage) not in s.content
        kept.append(Access(low, high, write, generic, token, fence, p.index, queue, turn, o, at(p), early))
        s.accesses[place.buffer.name] = kept

    def _tile(self, s: State, p: Process, o: c.Instr, place: c.Place, stage: int) -> Value:
        """What a stage holds when it is read."""
        value = s.content.get((place.buffer.name, stage))
        if value is None:
            self.report.uninitialized(s, p, o, place, stage)
            return self.tags.unknown(len(place.buffer.shape))
        if value is OLD:
            self.report.stale(s, p, o, place, stage)
            return self.tags.unknown(len(place.buffer.shape))
        for guess in o.guesses:
            if guess.buffer == place.buffer.name and guess not in self.wrong:
                self.met.add(guess)
                if not self.tags.starts_at(s, p, value.axes[guess.axis], guess.at):
                    self.wrong.add(guess)
        return transposed(value) if place.transposed else value

    def _register(self, s: State, p: Process, o: c.Instr, name: str) -> Value:
        value = p.tiles.get(name)
        if value is None:
            return self.tags.unknown(0)
        if value.pending is not None and value.pending not in p.known:
            self.report.pending_tile(s, p, o, name)
        return value if value.reader is None else replace(value, reader=None)

    def _assign(self, s: State, p: Process, o: c.Instr, name: str, value: Value) -> None:
        """Give a register tile a value, which no wgmma in flight may be reading."""
        before = p.tiles.get(name)
        if before is not None and before.reader is not None and before.reader not in p.known:
            self.report.overwritten_operand(s, p, o, name)
        p.tiles[name] = value

    def _tma_load(self, s: State, p: Process, o: c.TmaLoad) -> bool:
        stage, token = self._stage(s, p, o, o.dst), self._token(s)
        self._access(s, p, o, o.dst, stage, write=True, generic=False, queue="tma", token=token)
        s.content[o.dst.buffer.name, stage] = self.tags.loaded(p, o.box)
        self._count(s, p, o, o.bar, p.known | {token}, 0, -o.dst.buffer.bytes)
        return True

    def _tma_store(self, s: State, p: Process, o: c.TmaStore) -> bool:
        stage, token = self._stage(s, p, o, o.src), self._token(s)
        self._access(s, p, o, o.src, stage, write=False, generic=False, queue="store", token=token)
        p.stores.append(token)
        self.tags.placed(s, p, o, o.box, self._tile(s, p, o, o.src, stage))
        return True

    def _store_wait(self, s: State, p: Process, o: c.StoreWait) -> bool:
        ended = max(0, len(p.stores) - o.pending)
        p.known.update(p.stores[:ended])
        del p.stores[:ended]
        return True

    def _cp_async(self, s: State, p: Process, o: c.CpAsync) -> bool:
        stage, token = self._stage(s, p, o, o.dst), self._token(s)
        self._access(s, p, o, o.dst, stage, write=True, generic=True, queue="copy", token=token)
        p.open.append(token)
        s.content[o.dst.buffer.name, stage] = self.tags.gathered(p, o)
        return True

    def _cp_commit(self, s: State, p: Process, o: c.CpCommit) -> bool:
        p.copies.append(tuple(p.open))
        p.open = []
        return True

    def _cp_wait(self, s: State, p: Process, o: c.CpWait) -> bool:
        ended = max(0, len(p.copies) - o.pending)
        for group in p.copies[:ended]:
            p.local.update(group)
        del p.copies[:ended]
        return True

    def _shared_load(self, s: State, p: Process, o: c.SharedLoad) -> bool:
        stage, token = self._stage(s, p, o, o.src), self._token(s)
        self._access(s, p, o, o.src, stage, write=False, generic=True, queue="load", token=token)
        p.local.add(token)
        self._assign(s, p, o, o.dst, self._tile(s, p, o, o.src, stage))
        return True

    def _shared_store(self, s: State, p: Process, o: c.SharedStore) -> bool:
        value = self._register(s, p, o, o.src)
        stage, token = self._stage(s, p, o, o.dst), self._token(s)
        self._access(s, p, o, o.dst, stage, write=True, generic=True, queue="write", token=token)
        p.local.add(token)
        s.content[o.dst.buffer.name, stage] = self.tags.closed(s, p, o, value)
        return True

    # ------------------------------------------------------------------------------------------- computation

    def _wgmma(self, s: State, p: Process, o: c.Wgmma) -> bool:
        token = self._token(s)
        stage_b = self._stage(s, p, o, o.b)
        if isinstance(o.a, str):
            a = self._register(s, p, o, o.a)
            for name in (o.a, *self.program.same.get(o.a, ())):
                if (held := p.tiles.get(name)) is not None:
                    p.tiles[name] = replace(held, reader=token)
        else:
            stage_a, rows = self._stage(s, p, o, o.a), None
            if o.split:
                height = o.a.buffer.shape[0] // p.role.groups
                rows = (p.groups * height, (p.groups + 1) * height)
            self._access(s, p, o, o.a, stage_a, write=False, generic=False, queue="wgmma", token=token, rows=rows)
            a = self._tile(s, p, o, o.a, stage_a)
        self._access(s, p, o, o.b, stage_b, write=False, generic=False, queue="wgmma", token=token)
        b = self._tile(s, p, o, o.b, stage_b)
        # The accumulator may still be in flight: wgmma of one warpgroup execute in order.
        acc = p.tiles.get(o.acc)
        p.products.append(token)
        self._assign(s, p, o, o.dst, self.tags.product(s, p, o, a, b, acc, o.b.shape[0], token))
        return True

    def _wgmma_wait(self, s: State, p: Process, o: c.WgmmaWait) -> bool:
        ended = max(0, len(p.products) - o.pending)
        p.known.update(p.products[:ended])
        del p.products[:ended]
        return True

    def _mma(self, s: State, p: Process, o: c.Mma) -> bool:
        a, b, acc = (self._register(s, p, o, n) for n in (o.a, o.b, o.acc))
        self._assign(s, p, o, o.dst, self.tags.product(s, p, o, a, b, acc, self.tags.depth(o.a), None))
        return True

    def _compute(self, s: State, p: Process, o: c.Compute) -> bool:
        args = [(self._register(s, p, o, n), shape) for n, shape in zip(o.reads, o.shapes, strict=True)]
        assert o.writes is not None
        self._assign(s, p, o, o.writes, self.tags.compute(s, p, o, args))
        return True

    def _choice(self, s: State, p: Process, o: c.Choice) -> bool:
        before = dict(p.tiles)
        ends: list[dict[str, Value]] = []
        for part in (o.then, o.orelse):
            p.tiles = dict(before)
            for compute in part:
                compute.number = o.number
                self._compute(s, p, compute)
            ends.append(p.tiles)
        p.tiles = either(p, o, *ends)
        return True

    def _load(self, s: State, p: Process, o: c.Load) -> bool:
        self._assign(s, p, o, o.dst, self.tags.loaded(p, o.box))
        return True

    def _gather(self, s: State, p: Process, o: c.Gather) -> bool:
        self._assign(s, p, o, o.dst, self.tags.gathered(p, o))
        return True

    def _store(self, s: State, p: Process, o: c.Store) -> bool:
        self.tags.placed(s, p, o, o.box, self._register(s, p, o, o.src))
        return True

    # ------------------------------------------------------------------------------------------- fences

    def _fence(self, s: State, p: Process, o: c.Fence) -> bool:
        for rows in s.accesses.values():
            for r in rows:
                if r.fence is not None and (r.token in p.known or (r.token in p.local and r.process == p.index)):
                    p.local.add(r.fence)
        return True

    def _sync(self, s: State, p: Process, o: c.RoleSync) -> bool:
        p.at_sync = True
        mates = [q for q in s.processes if q.role is p.role]
        if not all(q.at_sync for q in mates):
            return False
        union: set[int] = set()
        for q in mates:
            union |= q.known
            union |= q.local
        for q in mates:
            q.known = set(union)
            q.local = set()
            q.at_sync = False
            q.turn = 0
            if q is not p:
                q.pc += 1
        return True
