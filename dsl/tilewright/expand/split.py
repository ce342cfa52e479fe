"""`roles="split"`: one warp loads by TMA, the others multiply with wgmma.

Two barriers a stage: `full` ends a phase when the bytes of a stage have landed, `empty` when the compute role is done
with it. `it` counts iterations over all tiles of a program; iteration `it` uses stage it mod stages and waits for phase
it div stages of its barriers.

    load:     wait until empty[it] has ended the phase before; announce the bytes; copy
    compute:  wait for full[it]; issue wgmma; wait until the one before is complete; release its stage

On sm_100a, `split_tensor` takes the place of the compute role.

The compute role keeps the wgmma of one iteration in flight over the back edge, so it releases the stage of the previous
iteration; the last one is released after the loop, if there was an iteration at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.staging import StagedLoad, StageRead, of_stages, stage_loads, stage_reads
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.tagging import holders
from tilewright.ir.types import BarrierType, ScalarType, SharedType
from tilewright.source import Span

LOAD_REGISTERS = 24
"""The smallest budget of setmaxnreg: the loading warp computes addresses only."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The resources of one pipeline: `counter` numbers iterations over all tiles of a program."""

    loop: ir.Pipeline
    loads: tuple[StagedLoad, ...]
    reads: tuple[StageRead, ...]
    rest: ir.Block
    full: str
    empty: str
    counter: str

    @property
    def stage(self) -> ir.Expr:
        """The stage of the iteration."""
        return ex.mod(Var(self.counter), Int(self.loop.stages))

    @property
    def previous(self) -> ir.Expr:
        """The stage of the iteration before."""
        return ex.mod(ex.add(Var(self.counter), Int(self.loop.stages - 1)), Int(self.loop.stages))

    @property
    def parity(self) -> ir.Expr:
        """The parity of the phase that the iteration waits for."""
        return ex.mod(ex.floordiv(Var(self.counter), Int(self.loop.stages)), Int(2))


def expand_split(kernel_warps: int, block: ir.Block, names: Names) -> ir.Block:
    """`block` (grid already explicit) as allocations and two roles; unchanged when no pipeline is split."""
    loops = split_pipelines(block)
    if not loops:
        return block
    allocations: list[ir.Stmt] = []
    rings = {id(loop): make_ring(block, loop, names, allocations) for loop in loops}
    start = tuple(
        ir.Assign(r.counter, Int(0), span=r.loop.span, note="iterations so far, over all tiles") for r in rings.values()
    )
    span = loops[0].span
    compute = start + replace_pipelines(block, lambda loop: _compute_loop(rings[id(loop)]))
    load = start + only_control(replace_pipelines(block, lambda loop: load_loop(rings[id(loop)], names)))
    roles = ir.Roles(
        (
            ir.Role("compute", kernel_warps, None, compute, span),
            ir.Role("load", 1, LOAD_REGISTERS, load, span),
        ),
        span=span,
    )
    return (*allocations, roles)


def split_pipelines(block: ir.Block) -> list[ir.Pipeline]:
    """The pipelines with `roles="split"`. Raises ExpansionError when explicit roles stand beside them."""
    loops = [s for s in ir.walk(block) if isinstance(s, ir.Pipeline) and s.roles == "split"]
    if loops:
        for s in ir.walk(block):
            if isinstance(s, ir.Roles | ir.AllocShared | ir.AllocBarrier):
                raise ExpansionError(
                    "TW005", 'roles="split" makes its own roles; it cannot stand beside explicit ones', s.span
                )
    return loops


def replace_pipelines(block: ir.Block, make: Callable[[ir.Pipeline], ir.Block]) -> ir.Block:
    """`block` with every split pipeline replaced."""
    # Not `ir.rewrite`: loops are looked up by identity, which rewriting from the inside would lose.
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Pipeline(roles="split"):
                out.extend(make(stmt))
            case ir.For() | ir.Programs():
                out.append(replace(stmt, body=replace_pipelines(stmt.body, make)))
            case ir.If():
                out.append(
                    replace(stmt, then=replace_pipelines(stmt.then, make), orelse=replace_pipelines(stmt.orelse, make))
                )
            case _:
                out.append(stmt)
    return tuple(out)


def make_ring(kernel: ir.Block, loop: ir.Pipeline, names: Names, allocations: list[ir.Stmt]) -> Ring:
    """Stages and barriers of a pipeline of `kernel`, allocated into `allocations`."""
    loads, rest = stage_loads(loop, names, "tma", allocations)
    reads, rest = stage_reads(loop, loads, rest, kernel)
    full = names.new("full", BarrierType(loop.stages, 1))
    empty = names.new("empty", BarrierType(loop.stages, 1))
    allocations.append(ir.AllocBarrier(full, span=loop.span, note="a stage has been filled"))
    allocations.append(ir.AllocBarrier(empty, span=loop.span, note="a stage has been read"))
    return Ring(loop, loads, reads, rest, full, empty, names.new("it", ScalarType()))


def load_loop(ring: Ring, names: Names) -> ir.Block:
    """The loop of the loading role."""
    loop, span = ring.loop, ring.loop.span
    stage_bytes = 0
    for staged in ring.loads:
        type_ = names.types[staged.ring]
        assert isinstance(type_, SharedType)
        stage_bytes += type_.stage_bytes
    body = (
        ir.BarrierWait(ir.BarRef(ring.empty, ring.stage), ex.binary("^", ring.parity, Int(1)), span=span,
                       note="the stage has been read; the first round passes at once"),
        ir.BarrierExpect(ir.BarRef(ring.full, ring.stage), Int(stage_bytes), span=span),
        *(
            ir.TmaLoad(s.view, ir.BufRef(s.ring, ring.stage), ir.BarRef(ring.full, ring.stage), span=s.load.span)
            for s in ring.loads
        ),
        ir.Assign(ring.counter, ex.add(Var(ring.counter), Int(1)), span=span),
    )  # fmt: skip
    return (ir.For(loop.var, loop.lo, loop.hi, loop.step, body, span=span),)


def _compute_loop(ring: Ring) -> ir.Block:
    loop, span = ring.loop, ring.loop.span
    by_name = {r.dst: r for r in ring.reads}
    products = [s for s in ring.rest if isinstance(s, ir.Mma)]
    body: list[ir.Stmt] = [
        ir.BarrierWait(ir.BarRef(ring.full, ring.stage), ring.parity, span=span, note="the stage has been filled")
    ]
    read: set[str] = set()
    for stmt in ring.rest:
        if isinstance(stmt, ir.Mma) and stmt.instr == "auto":
            body.append(_wgmma(stmt, by_name, ring))
            continue
        for name in _used_loads(stmt, by_name):
            if name not in read:
                read.add(name)
                body.append(by_name[name].load(ring.stage))
        body += of_stages((stmt,), ring.loads, ring.reads, ring.stage, frozenset(read))
    # Products into accumulators of their own and nothing else: keep them in flight over the back edge.
    accumulators = {p.dst for p in products}
    overlapped = len(accumulators) == len(products) > 0 and not read and all(
        p.dst == p.acc and not any(_touches(s, p.dst) for s in ring.rest if s is not p) for p in products
    )  # fmt: skip
    release = ir.BarrierArrive(ir.BarRef(ring.empty, ring.previous if overlapped else ring.stage), span=span)
    after: tuple[ir.Stmt, ...] = ()
    if overlapped:
        what = "product is" if len(products) == 1 else "products are"
        body.append(ir.WgmmaWait(len(products), span=span, note=f"of the previous iteration the {what} complete"))
        body.append(ir.If(ex.less(loop.lo, Var(loop.var)), (replace(release, note="its stage is free"),), span=span))
        after = (
            ir.WgmmaWait(0, span=span),
            *_if(ex.less(loop.lo, loop.hi), (replace(release, note="the last stage is free"),), span),
        )
    else:
        if products:
            body = _wait_after_last_product(body)
        body.append(replace(release, note="the stage is free"))
    body.append(ir.Assign(ring.counter, ex.add(Var(ring.counter), Int(1)), span=span))
    return (ir.For(loop.var, loop.lo, loop.hi, loop.step, tuple(body), span=span), *after)


def _if(cond: ir.Expr, then: ir.Block, span: Span) -> ir.Block:
    """A branch, decided now if that is possible."""
    if isinstance(cond, Int):
        return then if cond.value else ()
    return (ir.If(cond, then, span=span),)


def _wait_after_last_product(body: list[ir.Stmt]) -> list[ir.Stmt]:
    """Each product complete before the next ordinary statement uses it or the stage is released."""
    out: list[ir.Stmt] = []
    for i, stmt in enumerate(body):
        out.append(stmt)
        following = next((s for s in body[i + 1 :] if not isinstance(s, ir.Tag | ir.ExpectTags)), None)
        if isinstance(stmt, ir.Wgmma) and not isinstance(following, ir.Wgmma):
            out.append(ir.WgmmaWait(0, span=stmt.span, note="the product is complete"))
    return out


def _wgmma(stmt: ir.Mma, loads: dict[str, StageRead], ring: Ring) -> ir.Stmt:
    for name in (stmt.a, stmt.b):
        if name not in loads:
            what = "one here is computed" if name.startswith("%") else f"'{name}' is not"
            raise ExpansionError(
                "TW005",
                f"in a split pipeline both operands of tw.mma are tiles loaded by it, since wgmma reads shared memory; "
                f'{what}. Compute on tiles with roles="single", or before they are stored',
                stmt.span,
            )
    a, b = (loads[n].stage(ring.stage) for n in (stmt.a, stmt.b))
    return ir.Wgmma(stmt.dst, a, b, stmt.acc, span=stmt.span)


def _used_loads(stmt: ir.Stmt, loads: dict[str, StageRead]) -> list[str]:
    return [n for n in loads if any(_touches(s, n) for s in ir.walk((stmt,)))]


def _touches(stmt: ir.Stmt, name: str) -> bool:
    # What is said of tags is not executed.
    return not isinstance(stmt, ir.Tag | ir.ExpectTags) and any(
        value == name or value == ir.TileRef(name) for value in ir.operands(stmt)
    )


def only_control(block: ir.Block) -> ir.Block:
    """What the loading role executes: grid, loops, scalars, barriers and copies; no tiles."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        match stmt:
            case ir.Compute() | ir.Load() | ir.Store() | ir.Atomic() | ir.Mma() | ir.Gather() | ir.Scatter():
                return ()
            case ir.Tag() | ir.ExpectTags() if any(isinstance(h, str) for h in holders(stmt)):
                return ()
            case ir.For(body=()) | ir.If(then=(), orelse=()):
                return ()
            case _:
                return None

    return ir.rewrite(block, change)
