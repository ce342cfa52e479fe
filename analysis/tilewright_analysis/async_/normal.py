"""The normal form of a state: equal for states that differ by a shift of whole periods, so that finitely many remain.

Every number that may grow is taken relative to something that grows along with it:
- positions in a loop relative to the first process in that loop instance, and modulo the period of their uses;
- trip counts relative to the same position; exactly as long as some process has yet to enter the loop;
- coordinates minus slope times that position; program iterations relative to the first process in the grid loop;
- tokens renamed in the order in which they are met.
Known-token sets are kept apart: control never depends on them, so states are compared by inclusion there.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_.motion import Motion
from tilewright_analysis.async_.state import INF, Instance, Process, State
from tilewright_analysis.async_.tags import OLD, Axis, Cover, Fixed, Func, Slopes, Tag, Value
from tilewright_analysis.async_.turned import Turned

Key = tuple[Hashable, ...]


class Normalizer:
    """Normal forms of the states of one program. `remember`: keep what is forgotten, for counterexamples."""

    def __init__(self, program: c.Program, *, remember: bool = False) -> None:
        self.program = program
        self.remember = remember
        self.motion = Motion(program)
        self._tied: dict[tuple[int, int], list[c.Loop]] = {}  # (oracle, role) -> loops whose position meets it
        self._outer: dict[tuple[int, int], c.Loop] = {}  # (oracle, role) -> the loop around
        self._around_loop: dict[tuple[int, int], c.Loop] = {}  # (oracle of an outer loop, role) -> that loop
        for role in program.roles:
            for i, oracle in enumerate(program.oracles):
                if oracle.is_programs:
                    self._around_loop.update({(i, id(role)): lp for lp in role.loops if lp.oracle == i})
                self._tied[i, id(role)] = [lp for lp in role.loops if lp.oracle in program.ties[i]]
                for lp in role.loops:
                    if oracle.outer is not None and lp.oracle == oracle.outer:
                        self._outer[i, id(role)] = lp
                        self._around_loop[oracle.outer, id(role)] = lp
        self._pending = {id(r): _most_pending(r) for r in program.roles}
        # As long as tiles that were read ahead of a loop may still be in a ring, and a little longer.
        self._held_up_to = 4 + 2 * max((b.stages for b in program.buffers.values()), default=1)
        self._grid = {i for i, o in enumerate(program.oracles) if o.is_programs}

    def key(self, s: State) -> tuple[Key, list[int], list[int]]:
        """(key, knowledge, tokens): knowledge sets as bit masks over the list of live tokens, in a fixed order.

        Forgets, in `s`, what no process can meet any more.
        """
        self._forget(s)
        base = self._bases(s)
        grid = next((v for (o, _), v in base.items() if o in self._grid and self._inside_grid(s)), 0)
        ids: dict[int, int] = {}

        def token(t: int | None) -> int:
            return -1 if t is None else ids.setdefault(t, len(ids))

        turned = self._turned(s)
        out: list[Hashable] = []
        for name, rows in s.accesses.items():
            ordered = sorted(
                ((turned.rows(name, r.low), r.high - r.low, r.write, r.generic, r.process, turned.queue(r.queue)), i)
                for i, r in enumerate(rows)
            )
            out.append(
                tuple(
                    (*where, token(r.token), token(r.fence), r.turn, r.instr.number if r.generic else -1)
                    for where, i in ordered for r in (rows[i],)
                )
            )  # fmt: skip
        for b, more in turned.phases(s):
            waits = tuple((process, token(t)) for process, t in sorted(b.waits))
            out.append(((b.completed + more) % 2, b.pending, b.tx, token(b.end), token(b.end_before), waits))

        mixed = self.program.mixed
        ways: dict[tuple[int, int], set[Slopes]] = {}  # how the live coordinates of each mixed dimension move

        def meet(dim: int, symbol: int, slopes: Slopes) -> Hashable:
            if (dim, symbol) not in mixed:
                return ()
            ways.setdefault((dim, symbol), set()).add(slopes)
            return tuple((oracle, factor) for oracle, _, factor in slopes)

        def around(oracle: int, outer: int) -> int:
            return self._around(oracle, outer, base)

        def relative(instance: Instance) -> Hashable:
            return instance[0], instance[1] - base.get((instance[0], 0), 0)

        def moved(const: int, slopes: Slopes) -> int:
            for oracle, outer, factor in slopes:
                const -= factor * base.get((oracle, outer), 0)
            return const

        def axis(a: Axis) -> Hashable:
            if isinstance(a, Tag):
                return (
                    a.dim,
                    meet(a.dim, a.symbol, a.slopes),
                    a.symbol,
                    a.outer - grid if a.outer >= 0 else None,
                    moved(a.const, a.slopes),
                    self.motion.early(a),
                    a.link,
                )
            return None if a is None else id(a.stmt)

        def fixed(places: tuple[Fixed, ...]) -> Hashable:
            return tuple((f.dim, tuple(map(axis, f.at)), id(f.lost) if f.lost else 0) for f in places)

        def cover(v: Cover) -> Hashable:
            way = meet(v.dim, v.symbol, v.intervals[-1].high_slopes) if v.intervals else ()
            # The start is a constant of the kernel (contraction never goes back behind it); all else moves along.
            parts = tuple(
                (moved(i.low, i.low_slopes) if n else i.low, moved(i.high, i.high_slopes))
                for n, i in enumerate(v.intervals)
            )
            return (
                v.dim,
                way,
                v.symbol,
                v.outer - grid if v.outer >= 0 else None,
                relative(v.inner),
                v.source,
                v.complete,
                parts,
                fixed(v.fixed),
            )

        def value(v: Value) -> Hashable:
            if v is OLD:
                return "old"
            return (
                tuple(map(axis, v.axes)), tuple(map(cover, v.covers)), token(v.pending), token(v.reader),
                relative(v.made), fixed(v.fixed), v.source, v.neutral, v.loaded,
                tuple((n, (t.element, axis(t.base)) if isinstance(t, Func) else id(t.stmt)) for n, t in v.named),
            )  # fmt: skip

        for p in s.processes:
            out.append((p.pc, p.done, p.at_sync, p.turn if p.role.groups > 1 else 0))
            if p.done:
                continue
            out.append((
                tuple(map(token, p.products)), tuple(map(token, p.stores)),
                tuple(tuple(map(token, g)) for g in p.copies), tuple(map(token, p.open)),
            ))  # fmt: skip
            live = p.role.live_tiles[p.pc]
            out.append(tuple((n, value(p.tiles[n])) for n in live if n in p.tiles))
            out.append(tuple((n, token(v.reader)) for n, v in sorted(p.tiles.items()) if n not in live))
            out.append(self._scalars(p, base, turned))
        for place, v in sorted(((turned.place(*at), v) for at, v in s.content.items()), key=lambda entry: entry[0]):
            out.append((place, value(v)))
        for instance, (low, high) in sorted(s.oracles.items()):
            out.append(self._oracle(s, instance, low, high, base))

        s.exact = any(() in different or len(different) > 1 for different in ways.values())
        s.far = self._far(s, base)
        if s.exact:
            # Coordinates that move differently are compared: their distance depends on the positions themselves.
            movers = self.program.movers
            positions = sorted((o, around(o, outer), at) for (o, outer), at in base.items() if o in movers)
            # Far into a loop they are not compared any more, or it stays open.
            s.exact = all(at <= self._held_up_to for _, _, at in positions)
            out.append(tuple(positions) if s.exact else "far")
        tokens = list(ids)
        return tuple(out), self._knowledge(s, ids, turned), tokens

    def _far(self, s: State, base: dict[Instance, int]) -> frozenset[Instance]:
        """Instances whose base is neither the position, held as it is, of a process that is in the loop, nor a trip
        count that is held as it is.
        """
        held = {(o, outer) for (o, outer), (low, high) in s.oracles.items() if low == high < self.program.limits[o]}
        far: set[Instance] = set()
        for p in s.processes:
            for loop in p.role.loops if not p.done else ():
                if loop.oracle is not None and loop.start < p.pc < loop.end:
                    mode = p.role.modes[loop.slot]
                    outer = p.outer if self.program.oracles[loop.oracle].outer is not None else 0
                    exact = mode is None or p.env[loop.slot] < mode[1]
                    (held if exact else far).add((loop.oracle, outer))
        return frozenset(base.keys() - (held - far))

    def beside(self, s: State, oracle: int, outer: int) -> frozenset[int]:
        """Oracles of the same family whose counts the normal form holds relative to the same position only."""
        family = self.program.families[oracle]
        if len(family) == 1:
            return frozenset()
        base = self._bases(s)
        positions = {k for k in self.program.ties[oracle] if (k, outer) in base}
        return frozenset(j for j in family if positions & self.program.ties[j] and not self._awaited(s, (j, outer)))

    def narrow(self, s: State, knowledge: list[int], tokens: list[int]) -> None:
        """Replace the knowledge sets of `s`."""
        sets = iter(knowledge)

        def unpack() -> set[int]:
            mask = next(sets)
            return {t for i, t in enumerate(tokens) if mask >> i & 1}

        for b, _ in self._turned(s).phases(s):
            b.bringing = unpack()
            b.handed = frozenset(unpack())
        for p in s.processes:
            p.known, p.local, p.tensor = unpack(), unpack(), unpack()

    # ------------------------------------------------------------------------------------------- parts

    def _turned(self, s: State) -> Turned:
        return Turned(self.program, s)

    def _knowledge(self, s: State, ids: dict[int, int], turned: Turned) -> list[int]:
        """The knowledge sets as masks; tokens that nothing refers to are dropped from the state."""
        live = ids.keys()

        def mask(tokens: set[int]) -> int:
            bits = 0
            for t in tokens:
                bits |= 1 << ids[t]
            return bits

        result: list[int] = []
        for b, _ in turned.phases(s):
            b.bringing &= live
            b.handed = b.handed & live
            result.append(mask(b.bringing))
            result.append(mask(set(b.handed)))
        for p in s.processes:
            p.known &= live
            p.local &= live
            p.tensor &= live
            result.append(mask(p.known))
            result.append(mask(p.local))
            result.append(mask(p.tensor))
        return result

    def _scalars(self, p: Process, base: dict[Instance, int], turned: Turned) -> Hashable:
        out: list[Hashable] = []
        modes = p.role.modes
        for loop in p.role.loops:
            if not loop.start < p.pc < loop.end:
                continue
            i = p.env[loop.slot]
            mode = modes[loop.slot]
            reduced = i if mode is None else (i % mode[0], min(i, mode[1]))
            relative = 0
            if loop.oracle is not None:
                outer = p.outer if self.program.oracles[loop.oracle].outer is not None else 0
                relative = i - loop.offset - base[loop.oracle, outer]
            out.append((relative, reduced))
        for slot in p.role.live_slots[p.pc]:
            v, mode = p.env[slot] + turned.counter(p.role, slot), modes[slot]
            out.append(v if mode is None else (v % mode[0], min(v, mode[1])))
        return tuple(out)

    def _inside_grid(self, s: State) -> bool:
        return any(
            loop.oracle in self._grid and loop.start < p.pc < loop.end
            for p in s.processes
            if not p.done
            for loop in p.role.loops
        )

    def _bases(self, s: State) -> dict[Instance, int]:
        """For each loop instance, the position (as compared with the trip count) of the first process in it."""
        base: dict[Instance, int] = {}
        for p in s.processes:
            if p.done:
                continue
            for loop in p.role.loops:
                if loop.oracle is not None and loop.start < p.pc < loop.end:
                    outer = p.outer if self.program.oracles[loop.oracle].outer is not None else 0
                    base.setdefault((loop.oracle, outer), p.env[loop.slot] - loop.offset)
        for instance, (low, high) in s.oracles.items():
            if low == high:
                base.setdefault(instance, int(low))
        return base

    def _oracle(self, s: State, instance: Instance, low: float, high: float, base: dict[Instance, int]) -> Hashable:
        number, outer = instance
        around = self._around(number, outer, base)
        limit = self.program.limits[number]
        relative = tuple(
            (k, low - base[k, outer], high - base[k, outer] if high < INF else INF)
            for k in sorted(self.program.ties[number])
            if (k, outer) in base
        )
        exact = (low, high) if not relative or self._awaited(s, instance) else None
        return (number, around, relative, min(low, limit), min(high, limit), exact)

    def _around(self, oracle: int, outer: int, base: dict[Instance, int]) -> int:
        """The outer iteration of an oracle's instance, relative to the first process in the outer loop."""
        loop = self.program.oracles[oracle].outer
        return 0 if loop is None else outer - base.get((loop, 0), 0)

    def _awaited(self, s: State, instance: Instance) -> bool:
        """True when some process has yet to enter a loop whose position meets this trip count."""
        number, outer = instance
        for p in s.processes:
            if p.done:
                continue
            tied = self._tied[number, id(p.role)]
            if not tied:
                continue
            around = self._outer.get((number, id(p.role)))
            if around is not None and self.program.oracles[number].outer is not None:
                if p.pc <= around.start or (p.pc < around.end and p.outer < outer):
                    return True
                if p.pc >= around.end or p.outer > outer:
                    continue
            if any(p.pc <= loop.start for loop in tied):
                return True
        return False

    def _forget(self, s: State) -> None:
        """Drop trip counts of iterations that every process has left, what stages hold from then, old groups, and
        register tiles.
        """
        for p in s.processes:
            _drop_tiles(p)
        self._shorten(s)
        gone: set[Instance] = set()
        for instance in s.oracles:
            number, outer = instance
            if self.program.oracles[number].outer is None:
                continue
            if all(self._left(p, number, outer) for p in s.processes):
                gone.add(instance)
        for instance in gone:
            interval = s.oracles.pop(instance)
            if self.remember:
                s.past[instance] = interval
        if self.remember:
            return
        for place, v in s.content.items():
            oracle, position = v.made
            if v is not OLD and oracle >= 0 and all(self._beyond(p, oracle, position) for p in s.processes):
                s.content[place] = replace(v, made=(-1, 0)) if v.is_timeless else OLD

    def _shorten(self, s: State) -> None:
        """Drop groups of a queue that nothing refers to and that every later wait completes together with others."""
        referred: set[int] | None = None
        for p in s.processes:
            products, stores, copies = self._pending[id(p.role)]
            if (
                len(p.products) <= max(1, products)
                and len(p.stores) <= max(1, stores)
                and len(p.copies) <= max(1, copies)
            ):
                continue
            if referred is None:
                referred = {r.token for rows in s.accesses.values() for r in rows}
                tiles = [v for q in s.processes for v in q.tiles.values()]
                referred |= {t for v in tiles for t in (v.pending, v.reader) if t is not None}
            for queue, kept in ((p.products, max(1, products)), (p.stores, max(1, stores))):
                queue[:-kept] = [t for t in queue[:-kept] if t in referred]
            kept = max(1, copies)
            p.copies[:-kept] = [g for g in p.copies[:-kept] if not referred.isdisjoint(g)]

    def _left(self, p: Process, oracle: int, outer: int) -> bool:
        if p.done:
            return True
        around = self._outer.get((oracle, id(p.role)))
        if around is None:
            return True
        return p.pc >= around.end or (p.pc > around.start and p.outer > outer)

    def _beyond(self, p: Process, oracle: int, position: int) -> bool:
        """True when a process has left an iteration of an outer loop for good."""
        around = self._around_loop.get((oracle, id(p.role)))
        if p.done or around is None:
            return True
        return p.pc >= around.end or (p.pc > around.start and p.outer > position)


def _drop_tiles(p: Process) -> None:
    """Drop register tiles that nothing reads again, and what is known to be complete about others.

    What an operand held counts no more, but a wgmma may be reading its registers when they get another value.
    """
    live = p.role.live_tiles[p.pc] if not p.done else ()
    reassigned = p.role.reassigned[p.pc] if not p.done else ()
    kept: dict[str, Value] = {}
    for name, v in p.tiles.items():
        reader = v.reader if v.reader is not None and v.reader not in p.known else None
        pending = v.pending if v.pending is not None and v.pending not in p.known else None
        if name in live or (reader is not None and name in reassigned):
            same = reader == v.reader and pending == v.pending
            kept[name] = v if same else replace(v, reader=reader, pending=pending)
    p.tiles = kept


def _most_pending(role: c.RoleCode) -> tuple[int, int, int]:
    """The largest number of groups that a wait of the role leaves pending: products, stores, copies."""

    def most(kind: type[c.WgmmaWait] | type[c.StoreWait] | type[c.CpWait]) -> int:
        return max((o.pending for o in role.code if isinstance(o, kind)), default=0)

    return most(c.WgmmaWait), most(c.StoreWait), most(c.CpWait)
