"""The plan `ahead`: first products of an iteration are issued before the last ones of the iteration before.

    first products of the first iteration; what follows from them
    from the second iteration on:
        issue the first products of the iteration, then the last products of the one before
        wait for the first ones; compute; wait for the last ones; compute what touches their registers
    last products of the last iteration

The counter of the ring is that of the last products, so first ones use the stage behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.expand.errors import ExpansionError
from tilewright.expand.operands import Resident, decided, reads_of, tiles_of, wgmma
from tilewright.expand.plan import is_product
from tilewright.expand.rings import Group, Ring
from tilewright.expand.staging import of_stages
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.bounds import Bounds, least
from tilewright.ir.dataflow import written_by
from tilewright.ir.expr import Int, Var
from tilewright.ir.substitution import substituted

_FIRST, _BETWEEN, _LAST = range(3)


def ahead(ring: Ring, resident: Resident, bounds: Bounds) -> ir.Block:
    """The loop with what comes before and after it; `bounds` are least values of scalars."""
    loop, span = ring.loop, ring.loop.span
    parts = _Parts(ring, resident)
    out = (
        *substituted(tuple(parts.begin()), {loop.var: loop.lo}),
        ir.For(loop.var, ex.add(loop.lo, Int(loop.step)), loop.hi, loop.step, tuple(parts.turn()), span=span),
        *parts.end(),
        ring.count,
    )
    trips = least(ex.sub(loop.hi, loop.lo), bounds)
    return out if trips is not None and trips > 0 else decided(ex.less(loop.lo, loop.hi), out, span)


class _Parts:
    def __init__(self, ring: Ring, resident: Resident) -> None:
        self.ring = ring
        self.resident = resident
        self.plan = ring.plan
        self.span = ring.loop.span
        self.said: dict[int, list[ir.Stmt]] = {_FIRST: [], _LAST: [], _LAST + 1: []}
        self.results = frozenset(n for i in self.plan.last for n in written_by(ring.rest[i]))
        self.loads = {r.dst: r.staged.load.dst for r in ring.reads} | {s.load.dst: s.load.dst for s in ring.loads}
        self.order: list[int] = []
        for i, stmt in enumerate(ring.rest):
            if isinstance(stmt, ir.Tag | ir.ExpectTags):
                self.say(i, stmt)
            elif i not in self.plan.first | self.plan.last | self.plan.held:
                self.order.append(i)

    # -------------------------------------------------------------------------------- parts of the loop

    def begin(self) -> Iterator[ir.Stmt]:
        yield from self.issue_first(0)
        yield from self.ring.next_turn()
        yield ir.WgmmaWait(0, span=self.span, note="the first products are complete")
        yield from self.free(_FIRST, 0)
        yield from self.between(0)
        yield from self.touching(0)

    def turn(self) -> Iterator[ir.Stmt]:
        one_back = ex.sub(Var(self.ring.loop.var), Int(self.ring.loop.step))
        count = len(self.plan.last)
        yield from self.issue_first(1)
        yield from self.issue_last(one_back)
        yield from self.ring.next_turn()
        yield ir.WgmmaWait(count, span=self.span, note="the first products are complete, the last ones go on")
        yield from self.free(_FIRST, 1)
        yield from self.between(1)
        yield ir.WgmmaWait(0, span=self.span, note="the last products are complete")
        yield from self.of_last(_LAST + 1, one_back)
        yield from self.free(_LAST, 0)
        yield from self.touching(1)
        yield self.ring.count

    def end(self) -> Iterator[ir.Stmt]:
        loop = self.ring.loop
        trips = ex.cdiv(ex.sub(loop.hi, loop.lo), Int(loop.step))
        final = ex.add(loop.lo, ex.mul(ex.sub(trips, Int(1)), Int(loop.step)))
        yield from self.issue_last(final)
        yield ir.WgmmaWait(0, span=self.span, note="the last products are complete")
        yield from self.of_last(_LAST + 1, final)
        yield from self.free(_LAST, 0)

    def issue_first(self, ahead: int) -> Iterator[ir.Stmt]:
        for group in self.groups(first=_FIRST):
            yield self.ring.filled(group, ahead)
        yield from self.ring.my_turn(ahead)
        yield from of_stages(tuple(self.said[_FIRST]), self.ring.loads, self.ring.reads, self.ring.stage(ahead), ())
        for i in sorted(self.plan.first):
            stmt = self.ring.rest[i]
            yield wgmma(stmt, self.ring, self.resident, ahead) if is_product(stmt) else stmt

    def issue_last(self, iteration: ir.Expr) -> Iterator[ir.Stmt]:
        for group in self.groups(first=_LAST):
            yield self.ring.filled(group)
        yield from self.of_last(_LAST, iteration)
        for i in sorted(self.plan.last):
            yield wgmma(self.ring.rest[i], self.ring, self.resident)

    def between(self, ahead: int) -> Iterator[ir.Stmt]:
        for group in self.groups(first=_BETWEEN):
            yield self.ring.filled(group, ahead)
        self.read = set[str]()
        yield from self.computed(self.order, ahead)

    def touching(self, ahead: int) -> Iterator[ir.Stmt]:
        yield from self.computed(sorted(self.plan.held), ahead)
        yield from self.free(_BETWEEN, ahead)

    def computed(self, order: list[int], ahead: int) -> Iterator[ir.Stmt]:
        for i in order:
            stmt = self.ring.rest[i]
            yield from reads_of(self.ring, stmt, self.read, ahead)
            yield from of_stages((stmt,), self.ring.loads, self.ring.reads, self.ring.stage(ahead), self.read)

    # -------------------------------------------------------------------------------- stages

    def groups(self, *, first: int | None = None, last: int | None = None) -> Iterator[Group]:
        for group in self.ring.groups:
            uses = self.plan.uses[group.copies[0].load.dst]
            if first in (None, uses[0]) and last in (None, uses[-1]):
                yield group

    def free(self, part: int, ahead: int) -> Iterator[ir.Stmt]:
        for group in self.groups(last=part):
            yield self.ring.free(group, ahead)

    # -------------------------------------------------------------------------------- tags

    def say(self, i: int, stmt: ir.Tag | ir.ExpectTags) -> None:
        """Finds a place for what is said of tags: where its stages are filled, and its tiles have their values."""
        tiles = tiles_of(stmt)
        loads = {self.loads[t] for t in tiles if t in self.loads}
        parts = {use for name in loads for use in (self.plan.uses[name][0], self.plan.uses[name][-1])}
        registers = tiles - self.loads.keys()
        if registers & self.results and not loads and len(registers) == 1:
            self.said[_LAST + 1].append(self.alone(stmt))
        elif loads and not registers and parts <= {_FIRST}:
            self.said[_FIRST].append(self.alone(stmt))
        elif loads and not registers and parts <= {_LAST}:
            self.said[_LAST].append(self.alone(stmt))
        elif registers & self.results or parts - {_BETWEEN}:
            raise ExpansionError(
                "TW005",
                "products of this pipeline run ahead of each other, so what is said of tags speaks of one tile at a "
                "time that they read or write, and not of others beside it",
                stmt.span,
            )
        else:
            held = [j for j in self.plan.held if written_by(self.ring.rest[j]) & registers and j < i]
            if held:
                raise ExpansionError(
                    "TW005",
                    "products of this pipeline run ahead of each other; state this of a tile that is not changed after "
                    "them",
                    stmt.span,
                )
            self.order.append(i)

    def alone(self, stmt: ir.Tag | ir.ExpectTags) -> ir.Stmt:
        """A statement that is not said where it stands: only the variable of the loop may be in it."""
        exprs = [e for _, e in stmt.tags] if isinstance(stmt, ir.Tag) else [stmt.cond]
        inside = {n for s in self.ring.rest for n in written_by(s)}
        other = sorted({n for e in exprs for n in ex.names(e)} & inside)
        if other:
            raise ExpansionError(
                "TW005",
                "products of this pipeline run ahead of each other, so what is said of the tags of their tiles may "
                f"name its loop variable, but not '{other[0]}'",
                stmt.span,
            )
        return stmt

    def of_last(self, place: int, iteration: ir.Expr) -> Iterator[ir.Stmt]:
        ring = self.ring
        said = of_stages(tuple(self.said[place]), ring.loads, ring.reads, ring.stage(), ())
        yield from substituted(said, {ring.loop.var: iteration})
