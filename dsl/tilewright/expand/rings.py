"""The stages of a split pipeline: what is loaded together, and the barriers that say filled and free."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.plan import Plan, plan
from tilewright.expand.rows import PART
from tilewright.expand.staging import StagedLoad, StageRead, stage_loads, stage_reads
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.substitution import substituted
from tilewright.ir.types import BarrierType, ScalarType, SharedType


@dataclass(frozen=True, slots=True)
class Group:
    """Loads whose stages are filled and freed together, one copy for each role where rows are divided."""

    copies: tuple[StagedLoad, ...]
    full: str
    empty: str


@dataclass(frozen=True, slots=True)
class Ring:
    """The resources of one pipeline, as one role that computes sees them: `counter` numbers iterations over all tiles
    of a program. With `turn`, roles wait for the barrier of their number, `part`, before they issue products.
    """

    loop: ir.Pipeline
    loads: tuple[StagedLoad, ...]
    reads: tuple[StageRead, ...]
    rest: ir.Block
    plan: Plan
    groups: tuple[Group, ...]
    counter: str
    turn: str = ""
    part: int = 0

    def stage(self, ahead: int = 0) -> ir.Expr:
        """The stage of the iteration, or of one `ahead` of it."""
        return ex.mod(ex.add(Var(self.counter), Int(ahead)), Int(self.loop.stages))

    def parity(self, ahead: int = 0) -> ir.Expr:
        """The parity of the phase that the iteration waits for."""
        return ex.mod(ex.floordiv(ex.add(Var(self.counter), Int(ahead)), Int(self.loop.stages)), Int(2))

    @property
    def previous(self) -> ir.Expr:
        """The stage of the iteration before."""
        return self.stage(self.loop.stages - 1)

    @property
    def count(self) -> ir.Stmt:
        """One iteration is done."""
        return ir.Assign(self.counter, ex.add(Var(self.counter), Int(1)), span=self.loop.span)

    def filled(self, group: Group, ahead: int = 0) -> ir.Stmt:
        """Wait until the stage of a group has been filled."""
        return ir.BarrierWait(
            ir.BarRef(group.full, self.stage(ahead)), self.parity(ahead), span=self.loop.span,
            note="the stage has been filled",
        )  # fmt: skip

    def free(self, group: Group, ahead: int = 0, note: str = "the stage is free") -> ir.Stmt:
        """Give the stage of a group back."""
        return ir.BarrierArrive(ir.BarRef(group.empty, self.stage(ahead)), span=self.loop.span, note=note)

    def my_turn(self, ahead: int) -> ir.Block:
        """Wait until the role before has issued its products; the first role begins."""
        if not self.turn:
            return ()
        turn = ex.mod(ex.add(Var(self.counter), Int(ahead)), Int(2))
        parity = ex.binary("^", turn, Int(1)) if self.part == 0 else turn
        note = "the role before has issued its products"
        return (ir.BarrierWait(ir.BarRef(self.turn, Int(self.part)), parity, span=self.loop.span, note=note),)

    def next_turn(self) -> ir.Block:
        """Let the next role issue its products."""
        if not self.turn:
            return ()
        other = Int((self.part + 1) % self.loop.consumers)
        return (ir.BarrierArrive(ir.BarRef(self.turn, other), span=self.loop.span, note="the turn of the next role"),)

    def of_part(self, part: int) -> Ring:
        """The ring for one of several roles that compute."""
        own = {s.load.dst: s for s in of_part(self, part)}
        return replace(
            self,
            part=part,
            loads=tuple(own[s.load.dst] for s in self.loads),
            reads=tuple(replace(r, staged=own[r.staged.load.dst]) for r in self.reads),
            rest=substituted(self.rest, {PART: Int(part)}),
        )


def of_part(ring: Ring, part: int) -> list[StagedLoad]:
    """The copies that one of several roles reads."""
    found: dict[str, list[StagedLoad]] = {}
    for group in ring.groups:
        for copy in group.copies:
            found.setdefault(copy.load.dst, []).append(copy)
    return [copies[part] if len(copies) > 1 else copies[0] for copies in found.values()]


def make_ring(
    kernel: ir.Block, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt], resident: frozenset[str]
) -> Ring:
    """Stages and barriers of a pipeline of `kernel`, allocated into `allocations`; `resident` are operands that lie in
    shared memory while the loop runs.
    """
    loads, rest = stage_loads(kernel, loop, names, "tma", allocations)
    reads, rest = stage_reads(loop, loads, rest, kernel)
    found = plan(loop, reads, rest, names, resident)
    together: dict[tuple[int, ...], list[StagedLoad]] = {}
    for staged in loads:
        together.setdefault(found.uses[staged.load.dst], []).append(staged)
    groups: list[Group] = []
    for staged in together.values():
        prefix = f"{staged[0].load.dst.lstrip('%')}_" if len(together) > 1 else ""
        copies = tuple(c for s in staged for c in _copies(s, loop, names, allocations))
        full = names.new(f"{prefix}full", BarrierType(loop.stages, 1))
        empty = names.new(f"{prefix}empty", BarrierType(loop.stages, loop.consumers))
        allocations.append(ir.AllocBarrier(full, span=loop.span, note="a stage has been filled"))
        allocations.append(ir.AllocBarrier(empty, span=loop.span, note="a stage has been read"))
        groups.append(Group(copies, full, empty))
    turn = ""
    if loop.turns:
        if found.kind != "ahead":
            raise ExpansionError(
                "TW005",
                "turns=True is for pipelines with a product of what another one gives: the products of this one have "
                "nothing to run beside",
                loop.span,
            )
        turn = names.new("turn", BarrierType(loop.consumers, 1))
        allocations.append(ir.AllocBarrier(turn, span=loop.span, note="whose turn it is to issue products"))
    return Ring(loop, loads, reads, found.rest, found, tuple(groups), names.new("it", ScalarType()), turn)


def _copies(staged: StagedLoad, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt]) -> list[StagedLoad]:
    """One copy of what all roles read; of rows that are divided, the part of each role in a ring of its own."""
    if not any(PART in ex.names(o) for o in staged.view.origin):
        return [staged]
    out: list[StagedLoad] = []
    for part in range(loop.consumers):
        ring = staged.ring
        if part:
            ring = names.new(staged.ring, names.types[staged.ring])
            note = f"{loop.stages} stages of the rows of role {part}"
            allocations.append(ir.AllocShared(ring, span=staged.load.span, note=note))
        assert isinstance(staged.load, ir.Load)
        out.append(StagedLoad(replace(staged.load, view=at_part(staged.view, part)), ring))
    return out


def at_part(view: ir.View, part: int) -> ir.View:
    """The view of one role's rows."""
    return replace(view, origin=tuple(ex.substitute(o, {PART: Int(part)}) for o in view.origin))


def load_loop(ring: Ring, names: Names) -> ir.Block:
    """The loop of the loading role."""
    loop, span = ring.loop, ring.loop.span
    body: list[ir.Stmt] = []
    for group in ring.groups:
        full, bytes_ = ir.BarRef(group.full, ring.stage()), 0
        for copy in group.copies:
            type_ = names.types[copy.ring]
            assert isinstance(type_, SharedType)
            bytes_ += type_.stage_bytes
        body += [
            ir.BarrierWait(
                ir.BarRef(group.empty, ring.stage()), ex.binary("^", ring.parity(), Int(1)), span=span,
                note="the stage has been read; the first round passes at once",
            ),
            ir.BarrierExpect(full, Int(bytes_), span=span),
            *(ir.TmaLoad(c.view, ir.BufRef(c.ring, ring.stage()), full, span=c.load.span) for c in group.copies),
        ]  # fmt: skip
    return (ir.For(loop.var, loop.lo, loop.hi, loop.step, (*body, ring.count), span=span),)
