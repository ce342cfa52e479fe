"""Broken rules of memory and barriers in words.

Each method belongs to one rule of the machine. Issues of barriers and deadlocks end the path (they raise); all others
are noted once for each obligation, and exploration goes on.
"""

from __future__ import annotations

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Edit, Fix, Related
from tilewright.source import Span
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import said
from tilewright_analysis.async_.model import Issue
from tilewright_analysis.async_.reporter import Found, Reporter
from tilewright_analysis.async_.state import Access, Phase, Process, State
from tilewright_analysis.async_.words import at, describe, doing, sid, touched, words


class Findings(Reporter):
    """A reporter that knows the rules of memory and barriers."""

    # ------------------------------------------------------------------------------------------- memory

    def race(self, s: State, p: Process, o: c.Instr, place: c.Place, r: Access, write: bool) -> None:
        """Two accesses to one stage are not ordered."""
        for spoken in (o, r.instr):
            if isinstance(spoken, said.OverElements):
                # The warpgroups of a role come to what is said with what they wrote before it.
                own = s.processes[r.process].role is p.role and r.generic if spoken is o else r.process == p.index
                if not own:
                    self._said_of_any(p, o, spoken, place, r)
                return
        stage = int(place.stage(p.env))
        name = place.buffer.name
        what = f"buffer {name}" if place.buffer.stages == 1 else f"stage {stage} of {name}"
        mine, other = f"{doing(p, o)}", f"{describe(r.instr)}{words(r.iteration)}"
        if r.early:
            text = f"{what} is read by {other} before {mine} has completed"
        elif not r.write:
            text = f"{what} is overwritten by {mine} while {other} may still read it"
        elif not write:
            text = f"{what} is read by {mine} before {other} is known to be complete"
        else:
            text = f"{what} is overwritten by {mine} while {other} may still write it"
        height = place.buffer.shape[0] if place.buffer.shape else 1
        low = max(r.low - stage * height, 0)
        first = (low, *(0,) * (len(place.buffer.shape) - 1))
        values = {"stage": str(stage), "rows": f"{low}..{min(r.high - stage * height, height) - 1}"}
        related = [Related(r.instr.stmt.span, f"{other}{self._within(s.processes[r.process])}, is not ordered before")]
        fixes = self._stricter_wait(p, r, s)
        self.note(
            s, p, o, "TW401", name, text if fixes else f"{text}{self._order(p, r, s)}", related=related, values=values,
            element=first, touches=frozenset({name}), fixes=fixes,
        )  # fmt: skip

    def _order(self, p: Process, r: Access, s: State) -> str:
        """What would order an access with the one before it, where no stricter wait does."""
        before = s.processes[r.process]
        if before.role is not p.role:
            return f"; let {self._whose(before)} arrive on a barrier that {self._whose(p)} waits for in between"
        return "; put `tw.sync()` between them" if r.generic else ""

    def _said_of_any(self, p: Process, o: c.Instr, spoken: said.OverElements, place: c.Place, r: Access) -> None:
        """What is said of a stage holds of what it holds in some schedules only."""
        other = r.instr if spoken is o else o
        missing = (
            f"nothing orders {describe(other)} with what is said of {place.text}, which may hold another tile then"
        )
        # A tag that is given to who knows what makes all expectations doubtful.
        subject = sid(spoken) if isinstance(spoken, said.Expectation) else "*"
        issue = Issue("TW106", subject, missing, spoken.stmt.span, self.role(p), dict(at(p)), unknown=missing)
        self.found.setdefault(("TW106", subject), Found(issue, {}, None))

    def _name(self, process: int, s: State) -> str:
        return self.role(s.processes[process])

    def _stricter_wait(self, p: Process, r: Access, s: State) -> list[Fix]:
        """A smaller number of pending groups at the last wait of the reader, if its access is in a group."""
        reader = s.processes[r.process]
        kinds = {"wgmma": c.WgmmaWait, "copy": c.CpWait, "store": c.StoreWait}
        kind = kinds.get(r.queue)
        names = {"wgmma": "wgmma_wait", "copy": "cp_wait", "store": "tma_store_wait"}
        fixes: list[Fix] = []
        for o in reader.code:
            if kind is not None and isinstance(o, kind) and o.pending > 0 and _same_loop(reader, o, r.instr):
                text = f"tw.{names[r.queue]}({o.pending - 1})"
                fixes.append(Fix(f"wait until {o.pending - 1} are pending: {text}", (Edit(o.stmt.span, text),)))
        return fixes

    def unfenced(self, s: State, p: Process, o: c.Instr, place: c.Place, r: Access) -> None:
        """A generic write reaches the asynchronous proxy without a fence."""
        name = place.buffer.name
        text = (
            f"{doing(p, o)} goes through the asynchronous proxy, but {describe(r.instr)}"
            f"{words(r.iteration)} is an ordinary write that no fence has made visible to it; "
            "put `tw.fence_async()` after the write, before the threads synchronize"
        )
        # Before the sync that the text has between the two, if any; the back end puts its own right before the access.
        between = (
            i.stmt.span.start
            for i in p.code
            if isinstance(i.stmt, ir.Sync)
            and not i.stmt.auto
            and r.instr.stmt.span.start < i.stmt.span.start < o.stmt.span.start
        )
        start = min(between, default=o.stmt.span.start)
        insert = Edit(Span(start, start), "tw.fence_async()\n")
        related = [Related(r.instr.stmt.span, "the ordinary write")]
        self.note(
            s, p, o, "TW404", name, text, related=related, fixes=[Fix("insert tw.fence_async()", (insert,))],
            touches=frozenset({name}),
        )  # fmt: skip

    def uninitialized(self, s: State, p: Process, o: c.Instr, place: c.Place, stage: int) -> None:
        """A stage is read that nothing was written to."""
        what = place.buffer.name if place.buffer.stages == 1 else f"stage {stage} of {place.buffer.name}"
        text = f"{doing(p, o)} reads {what}, to which nothing has been written"
        self.note(s, p, o, "TW203", place.buffer.name, text, touches=frozenset({place.buffer.name}))

    def stale(self, s: State, p: Process, o: c.Instr, place: c.Place, stage: int) -> None:
        """A stage is read that holds a tile of a finished iteration."""
        what = place.buffer.name if place.buffer.stages == 1 else f"stage {stage} of {place.buffer.name}"
        text = f"{doing(p, o)} reads {what}, which still holds a tile of an earlier program iteration"
        # The tile may be kept on purpose; what it holds is not tracked past the end of its iteration.
        self.note(
            s, p, o, "TW204", place.buffer.name, text, touches=frozenset({place.buffer.name}),
            unknown=f"{what} is read in a later program iteration than the one that wrote it",
        )  # fmt: skip

    def bad_stage(self, s: State, p: Process, o: c.Instr, place: c.Place, i: int) -> None:
        """A stage outside of its buffer."""
        n = place.buffer.stages
        text = f"{doing(p, o)} uses stage {i} of {place.buffer.name}, which has stages 0 to {n - 1}"
        self.note(s, p, o, "TW401", place.buffer.name, text, fatal=True)

    def pending_tile(self, s: State, p: Process, o: c.Instr, name: str) -> None:
        """An accumulator is used while a wgmma may still write it."""
        text = (
            f"{name} is read{words(at(p))} before the wgmma that writes it is known to be complete; "
            f"put `tw.wgmma_wait(0)` before"
        )
        start = o.stmt.span.start
        fix = Fix("insert tw.wgmma_wait(0)", (Edit(Span(start, start), "tw.wgmma_wait(0)\n"),))
        self.note(s, p, o, "TW401", "registers", text, fixes=[fix], touches=frozenset({name, "*"}))

    def overwritten_operand(self, s: State, p: Process, o: c.Instr, name: str) -> None:
        """A register operand gets a new value while a wgmma may still read the old one."""
        text = (
            f"{name} gets a new value{words(at(p))} before the wgmma that reads its registers is known to be complete; "
            f"put `tw.wgmma_wait(0)` before"
        )
        start = o.stmt.span.start
        fix = Fix("insert tw.wgmma_wait(0)", (Edit(Span(start, start), "tw.wgmma_wait(0)\n"),))
        self.note(s, p, o, "TW401", "registers", text, fixes=[fix], touches=frozenset({name, "*"}))

    def pending_at_exit(self, s: State, p: Process) -> None:
        """A process ends with asynchronous work in flight."""
        kinds: tuple[tuple[list[object], tuple[type[c.Instr], ...], str, str], ...] = (
            (list(p.stores), (c.TmaStore,), "bulk store", "tma_store_wait"),
            (list(p.products), (c.Wgmma,), "wgmma", "wgmma_wait"),
            # Groups that hold no copy, committed to keep count, may stay.
            ([*filter(None, p.copies), *p.open], (c.CpAsync, c.CpCommit), "group of cp.async", "cp_wait"),
        )
        for queue, types, what, wait in kinds:
            if queue:
                last = next(i for i in reversed(p.code) if isinstance(i, types))
                n = len(queue)
                some = f"1 {what} that may still be" if n == 1 else f"{n} {_plural(what)} that may still be"
                text = f"{self._whose(p)} ends with {some} in flight; end it with `tw.{wait}(0)`"
                self.note(s, p, last, "TW406", "exit", text, touches=touched(last) | {"*"})

    def load_at_exit(self, s: State, r: Access) -> None:
        """The program ends, and nobody has waited for a load. A race with that load says it all."""
        if any(code == "TW401" and what in touched(r.instr) for code, what in self.found):
            return
        memory = "tensor" if isinstance(r.instr, c.TensorProduct) else "shared"
        text = (
            f"nothing waits for {describe(r.instr)}{words(r.iteration)} before the program ends, so it may still write "
            f"{memory} memory that belongs to another program by then"
        )
        self.note(s, s.processes[r.process], r.instr, "TW406", "exit", text)

    # ------------------------------------------------------------------------------------------- barriers

    def _slot(self, b: Phase, s: State) -> str:
        name = b.barrier.name
        return name if b.barrier.slots == 1 else f"{name}[{s.phases.index(b) - b.barrier.first}]"

    def bad_slot(self, s: State, p: Process, o: c.Instr, slot: c.Slot, i: int) -> None:
        """A slot outside of its array."""
        text = f"{doing(p, o)} uses slot {i} of {slot.barrier.name}, which has slots 0 to {slot.barrier.slots - 1}"
        self.note(s, p, o, "TW402", slot.barrier.name, text, fatal=True)

    def unordered_arrival(self, s: State, p: Process, o: c.Instr, b: Phase, *, delivery: bool) -> None:
        """Rule A."""
        name, k = self._slot(b, s), b.completed
        if delivery and b.pending == b.arrivals:
            self._bytes(
                s, p, o, b, f"{doing(p, o)} delivers bytes to {name} after its phase {k - 1} has ended: "
                "fewer bytes are announced than the loads deliver",
            )  # fmt: skip
        text = (
            f"{doing(p, o)} is meant for phase {k} of {name}, but nothing orders it after the end of phase "
            f"{k - 1}: it may be counted in phase {k - 1}"
        )
        self.note(s, p, o, "TW402", b.barrier.name, text, fatal=True, touches=frozenset({b.barrier.name}))

    def early_wait(self, s: State, p: Process, o: c.Wait, b: Phase) -> None:
        """Rule L."""
        name, k = self._slot(b, s), b.completed
        text = (
            f"{doing(p, o)}, parity {int(o.parity(p.env)) & 1}, is meant for phase {k - 1} of {name}, but may "
            f"pass on phase {k - 3} already: this role does not know that phase {k - 2} has ended"
        )
        self.note(s, p, o, "TW402", b.barrier.name, text, fatal=True, touches=frozenset({b.barrier.name}))

    def missed_phase(self, s: State, p: Process, o: c.Instr, b: Phase, process: int) -> None:
        """Rule U."""
        name, k = self._slot(b, s), b.completed
        wait = f"its wait for phase {k - 1}" if k else "its first wait, which passes before any phase ends"
        text = (
            f"{doing(p, o)} can end phase {k} of {name} before role {self._name(process, s)} has returned "
            f"from {wait}: that wait may miss its phase and block until the next of the same parity"
        )
        self.note(s, p, o, "TW402", b.barrier.name, text, fatal=True, touches=frozenset({b.barrier.name}))

    def too_many_arrivals(self, s: State, p: Process, o: c.Instr, b: Phase) -> None:
        """More arrivals than the barrier counts."""
        text = (
            f"{doing(p, o)} is arrival {b.arrivals + 1} in phase {b.completed} of {self._slot(b, s)}, which "
            f"counts {b.arrivals}"
        )
        self.note(s, p, o, "TW407", b.barrier.name, text, fatal=True, touches=frozenset({b.barrier.name}))

    def too_many_bytes(self, s: State, p: Process, o: c.Instr, b: Phase) -> None:
        """More bytes delivered than announced."""
        text = f"{doing(p, o)} delivers {-b.tx} bytes more to {self._slot(b, s)} than phase {b.completed} announces"
        self._bytes(s, p, o, b, text)

    def _bytes(self, s: State, p: Process, o: c.Instr, b: Phase, text: str) -> None:
        expect, total, announced = self._announced(b.barrier.name)
        fixes: list[Fix] = []
        related: list[Related] = []
        values: dict[str, str] = {}
        if expect is not None and isinstance(expect.stmt, ir.BarrierExpect) and total != announced:
            ref = expect.stmt.bar
            slot = b.barrier.name if b.barrier.slots == 1 else f"{b.barrier.name}[{ex.show(ref.slot)}]"
            new = f"tw.expect({slot}, {total})"
            fixes = [Fix(f"announce {total} bytes", (Edit(expect.stmt.span, new),))]
            related = [Related(expect.stmt.span, f"announces {announced} bytes; the loads that follow deliver {total}")]
            values = {"announced": str(announced), "delivered": str(total)}
            o = expect
        self.note(
            s, p, o, "TW405", b.barrier.name, text, fatal=True, fixes=fixes, related=related, values=values,
            touches=frozenset({b.barrier.name}),
        )  # fmt: skip

    def _announced(self, barrier: str) -> tuple[c.Expect | None, int, int]:
        """An announcement on the barrier whose constant does not match the loads that follow it, with both numbers."""
        best: tuple[c.Expect | None, int, int] = (None, 0, 0)
        for role in self.program.roles:
            expect: c.Expect | None = None
            total = 0
            for o in (*role.code, None):
                new = o if isinstance(o, c.Expect) and o.bar.barrier.name == barrier else None
                if expect is not None and (new is not None or o is None):
                    size = expect.stmt.bytes if isinstance(expect.stmt, ir.BarrierExpect) else None
                    if isinstance(size, ex.Int) and (total != size.value or best[0] is None):
                        best = (expect, total, size.value)
                if new is not None:
                    expect, total = new, 0
                if isinstance(o, c.TmaLoad) and o.bar.barrier.name == barrier:
                    total += o.dst.buffer.bytes
        return best

    def deadlock(self, s: State) -> None:
        """No process can move."""
        waiting: list[tuple[Process, c.Instr]] = [(p, p.code[p.pc]) for p in s.processes if not p.done]
        for p, o in waiting:
            if not isinstance(o, c.Wait):
                continue
            b = s.phases[o.bar.barrier.first + int(o.bar.index(p.env))]
            name = self._slot(b, s)
            if b.pending == 0 and b.tx > 0:
                text = f"{doing(p, o)} never returns: {b.tx} of the bytes announced on {name} are never delivered"
                self._bytes(s, p, o, b, text)
            if 0 < b.pending < b.arrivals:
                text = (
                    f"{doing(p, o)} never returns: phase {b.completed} of {name} counts {b.arrivals} arrivals and "
                    f"gets {b.arrivals - b.pending}"
                )
                self.note(s, p, o, "TW407", b.barrier.name, text, fatal=True, touches=frozenset({b.barrier.name}))
        p, o = waiting[0]
        where = "; ".join(f"{self._whose(q)} stands at {describe(i)}{words(at(q))}" for q, i in waiting)
        related = [Related(i.stmt.span, f"{self._whose(q)} waits here") for q, i in waiting[1:]]
        reason = ""
        if isinstance(o, c.Wait):
            b = s.phases[o.bar.barrier.first + int(o.bar.index(p.env))]
            parity = int(o.parity(p.env)) & 1
            phases = f"{b.completed} phase{'s' if b.completed != 1 else ''}"
            reason = (
                f"; {self._slot(b, s)} has completed {phases}, and the wait for parity {parity} needs one more, which "
                f"nobody ends"
            )
        touches = frozenset[str]().union(*(touched(i) for _, i in waiting))
        self.note(
            s, p, o, "TW403", "kernel", f"deadlock: {where}{reason}", fatal=True, related=related, touches=touches
        )


def _plural(what: str) -> str:
    head, of, rest = what.partition(" of ")
    return f"{head}{'' if head.endswith('a') else 's'}{of}{rest}"


def _same_loop(p: Process, a: c.Instr, b: c.Instr) -> bool:
    def loop(o: c.Instr) -> int:
        return max((lp.start for lp in p.role.loops if lp.start < o.number < lp.end), default=-1)

    return loop(a) == loop(b)
