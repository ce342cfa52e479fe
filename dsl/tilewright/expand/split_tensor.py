"""`roles="split"` on sm_100a: one warp loads by TMA, one issues tcgen05, the others take results from tensor memory.

The rings of tiles and their barriers `full` and `empty` are those of `split`. Accumulators have a ring of their own in
tensor memory, so that the products of a tile run while the one before is stored. `n` counts accumulators over all tiles
of a program.

    load:      wait until empty[it] has ended the phase before; announce the bytes; copy
    multiply:  wait until drained[n] has ended the phase before;
               for each iteration, wait for full[it]; issue the product, whose completion arrives on empty[it];
               let the completion of all arrive on done[n]
    compute:   wait for done[n]; load the accumulator; arrive on drained[n]; go on with the tile
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.rings import Ring, load_loop, make_ring
from tilewright.expand.split import LOAD_REGISTERS, only_control, replace_pipelines
from tilewright.expand.split import split_pipelines as pipelines
from tilewright.expand.staging import of_stages
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.tagging import holders
from tilewright.ir.types import BarrierType, ScalarType, TensorMemoryType, TileType
from tilewright.targets import TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_ROWS

_MOST_STAGES = 2
"""An accumulator that is filled and one that is read: more would never be ahead."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """The accumulators of one pipeline in tensor memory."""

    ring: Ring
    product: ir.Mma
    memory: str
    stages: int
    done: str
    drained: str
    counter: str

    @property
    def stage(self) -> ir.Expr:
        return ex.mod(Var(self.counter), Int(self.stages))

    @property
    def parity(self) -> ir.Expr:
        return ex.mod(ex.floordiv(Var(self.counter), Int(self.stages)), Int(2))

    @property
    def ref(self) -> ir.BufRef:
        return ir.BufRef(self.memory, self.stage)


def expand_split_tensor(kernel: ir.Kernel, block: ir.Block, names: Names) -> ir.Block:
    """`block` (grid already explicit) as allocations and three roles; unchanged when no pipeline is split."""
    loops = pipelines(block)
    if not loops:
        return block
    allocations: list[ir.Stmt] = []
    share = TENSOR_MEMORY_COLUMNS // len(loops)
    found = {id(loop): _sums(loop, block, share, names, allocations) for loop in loops}
    span = loops[0].span

    def counters(*wanted: str) -> ir.Block:
        return tuple(ir.Assign(n, Int(0), span=span, note="counted over all tiles") for n in wanted)

    rings = [s.ring.counter for s in found.values()]
    sums = [s.counter for s in found.values()]
    load = replace_pipelines(block, lambda loop: load_loop(found[id(loop)].ring, names))
    multiply = replace_pipelines(block, lambda loop: _multiply(found[id(loop)]))
    compute = replace_pipelines(block, lambda loop: _take(found[id(loop)]))
    roles = ir.Roles(
        (
            ir.Role("compute", kernel.warps, None, counters(*sums) + compute, span),
            ir.Role("load", 1, LOAD_REGISTERS, counters(*rings) + only_control(load), span),
            ir.Role("multiply", 1, LOAD_REGISTERS, counters(*rings, *sums) + only_control(multiply), span),
        ),
        span=span,
    )
    return (*allocations, roles)


def _sums(loop: ir.Pipeline, block: ir.Block, share: int, names: Names, allocations: list[ir.Stmt]) -> _Sums:
    ring = make_ring(block, loop, names, allocations, frozenset())
    product = _product(ring, block)
    tile = names.types[product.dst]
    assert isinstance(tile, TileType)
    rows, columns = tile.shape
    if rows not in TENSOR_MEMORY_ROWS or not 32 <= columns <= min(256, share):
        raise ExpansionError(
            "TW503",
            f"a product in tensor memory has 64 or 128 rows and 32 to {min(256, share)} columns here, not "
            f"{rows}×{columns}",
            product.span,
        )
    stages = min(_MOST_STAGES, share // columns)
    memory = names.new(f"{product.dst.lstrip('%')}_ring", TensorMemoryType(tile.dtype, tile.shape, stages, True))
    done = names.new("done", BarrierType(stages, 1))
    drained = names.new("drained", BarrierType(stages, 1))
    allocations.append(ir.AllocTensor(memory, span=product.span, note=f"{stages} accumulators in tensor memory"))
    allocations.append(ir.AllocBarrier(done, span=loop.span, note="an accumulator is complete"))
    allocations.append(ir.AllocBarrier(drained, span=loop.span, note="an accumulator has been read"))
    return _Sums(ring, product, memory, stages, done, drained, names.new("n", ScalarType()))


def _product(ring: Ring, block: ir.Block) -> ir.Mma:
    """The only statement that is left of the body: a product of two staged tiles into an accumulator from zeros."""
    staged = {r.dst for r in ring.reads}
    rest = [s for s in ring.rest if not isinstance(s, ir.Assign | ir.Tag | ir.ExpectTags)]
    product = rest[0] if len(rest) == 1 else None
    if not isinstance(product, ir.Mma) or {product.a, product.b} - staged or product.dst != product.acc:
        at = next((s for s in rest if not isinstance(s, ir.Mma)), ring.loop)
        raise ExpansionError(
            "TW005",
            'on sm_100a a pipeline with roles="split" holds loads and one product of them into its own accumulator, '
            "since products run in tensor memory without a warp that could compute between them",
            at.span,
        )
    if not _starts_here(block, ring.loop, product.acc):
        raise ExpansionError(
            "TW005",
            f"a product in tensor memory starts from zeros: write {product.acc} = tw.zeros(…) before the pipeline, in "
            "the same block",
            product.span,
        )
    makers = [s for s in ir.walk(block) if getattr(s, "dst", None) == product.acc and s not in ring.loop.body]
    if not makers or not all(isinstance(s, ir.Compute) and s.op == "full" and _is_zero(s.args[0]) for s in makers):
        raise ExpansionError(
            "TW005", f"a product in tensor memory starts from zeros, but '{product.acc}' has another value before it",
            product.span,
        )  # fmt: skip
    return product


def _starts_here(block: ir.Block, loop: ir.Pipeline, name: str) -> bool:
    """Whether the block that holds the loop gives `name` a value before it, so that each run starts anew."""
    for i, stmt in enumerate(block):
        if stmt is loop:
            return any(getattr(s, "dst", None) == name for s in block[:i])
        if any(_starts_here(inner, loop, name) for inner in ir.children(stmt)):
            return True
    return False


def _is_zero(value: ir.Operand) -> bool:
    return value == Int(0) or (isinstance(value, float) and value == 0.0)


def _multiply(sums: _Sums) -> ir.Block:
    ring, loop, span = sums.ring, sums.ring.loop, sums.ring.loop.span
    stages = {r.dst: r.stage(ring.stage()) for r in ring.reads}
    empty = ir.BarRef(ring.groups[0].empty, ring.stage())
    body = (
        ring.filled(ring.groups[0]),
        *_said_of_stages(ring),
        ir.Tcgen05(
            sums.ref, stages[sums.product.a], stages[sums.product.b], ex.less(loop.lo, Var(loop.var)), empty,
            span=sums.product.span, note="its completion frees the stage",
        ),
        ir.Assign(ring.counter, ex.add(Var(ring.counter), Int(1)), span=span),
    )  # fmt: skip
    return (
        ir.BarrierWait(ir.BarRef(sums.drained, sums.stage), ex.binary("^", sums.parity, Int(1)), span=span,
                       note="the accumulator has been read; the first round passes at once"),
        ir.For(loop.var, loop.lo, loop.hi, loop.step, body, span=span),
        ir.Tcgen05Commit(ir.BarRef(sums.done, sums.stage), span=span, note="all products of the tile are complete"),
        ir.Assign(sums.counter, ex.add(Var(sums.counter), Int(1)), span=span),
    )  # fmt: skip


def _said_of_stages(ring: Ring) -> ir.Block:
    """What the body says of tags: the role that multiplies has the stages, but neither accumulator nor scalars."""
    inside = {s.dst for s in ring.rest if isinstance(s, ir.Assign)}
    out: list[ir.Stmt] = []
    said = tuple(s for s in ring.rest if isinstance(s, ir.Tag | ir.ExpectTags))
    for stmt in of_stages(said, ring.loads, ring.reads, ring.stage(), frozenset[str]()):
        assert isinstance(stmt, ir.Tag | ir.ExpectTags)
        exprs = [e for _, e in stmt.tags] if isinstance(stmt, ir.Tag) else [stmt.cond]
        other = [h for h in holders(stmt) if isinstance(h, str)] + [n for e in exprs for n in ex.names(e) & inside]
        if other:
            raise ExpansionError(
                "TW005",
                "on sm_100a what a split pipeline says of tags speaks of the tiles it loads and its loop variable, not "
                f"of '{other[0]}'; state it after the pipeline",
                stmt.span,
            )
        out.append(stmt)
    return tuple(out)


def _take(sums: _Sums) -> ir.Block:
    loop, span = sums.ring.loop, sums.ring.loop.span
    load: ir.Block = (ir.TensorLoad(sums.product.dst, sums.ref, span=sums.product.span),)
    some = ex.less(loop.lo, loop.hi)
    if some != Int(1) and not (loop.lo == Int(0) and isinstance(loop.hi, ex.Size)):
        load = (ir.If(some, load, span=span, note="without an iteration it stays zero"),)
    return (
        ir.BarrierWait(ir.BarRef(sums.done, sums.stage), sums.parity, span=span, note="the products are complete"),
        *load,
        ir.BarrierArrive(ir.BarRef(sums.drained, sums.stage), span=span, note="the accumulator may be filled again"),
        ir.Assign(sums.counter, ex.add(Var(sums.counter), Int(1)), span=span),
    )
