"""What both pipeline expansions need: the loads of a pipeline, their coordinates at any iteration, their rings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard, cast

from tilewright.expand.errors import ExpansionError
from tilewright.expand.gathers import computed_at, index_work, without_unused
from tilewright.expand.names import Names
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.tagging import Holder, holders, moved
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import SharedLayout, SwizzledShared, default_swizzle


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """One load of a pipeline, as a function of the loop variable alone, and its ring.

    `work`: the statements of an iteration that compute the indices of a gather.
    """

    load: ir.Load | ir.Gather
    ring: str
    work: ir.Block = ()

    @property
    def view(self) -> ir.View:
        """The view of a load that is no gather."""
        assert isinstance(self.load, ir.Load)
        return self.load.view


def stage_loads(
    kernel: ir.Block, loop: ir.Pipeline, names: Names, via: str, block: list[ir.Stmt], ways: tuple[ir.Via, ...] = ()
) -> tuple[tuple[StagedLoad, ...], ir.Block]:
    """The loads of `loop`, in `kernel`, that go through rings (allocated into `block`), and the body without them.

    Those are the loads by `via`, by one of `ways`, and by the way that is left to the expansion.
    Raises ExpansionError when a load cannot run ahead of its iteration.
    """
    scalars: dict[str, ir.Expr] = {}
    staged: list[StagedLoad] = []
    rest: list[ir.Stmt] = []
    body = _with_own_names(loop.body, names)
    for stmt in body:
        if isinstance(stmt, ir.Assign):
            scalars[stmt.dst] = ex.substitute(stmt.value, scalars)
        else:
            # What an inner block assigns is no longer the expression known here.
            for inner in ir.walk((stmt,)):
                if isinstance(inner, ir.Assign):
                    scalars.pop(inner.dst, None)
        if isinstance(stmt, ir.Load) and stmt.via in ("auto", via, *ways):
            view = replace(stmt.view, origin=tuple(ex.substitute(o, scalars) for o in stmt.view.origin))
            _check_ahead(loop, view, stmt)
            staged.append(StagedLoad(replace(stmt, view=view), _allocate(stmt, loop.stages, names, via, block)))
        elif isinstance(stmt, ir.Gather) and stmt.via == via:
            work = tuple(body[i] for i in index_work(loop, body, stmt))
            staged.append(StagedLoad(stmt, _allocate(stmt, loop.stages, names, via, block), work))
        else:
            rest.append(stmt)
    if not staged:
        raise ExpansionError(
            "TW005",
            f'nothing in this pipeline can run ahead: load with via="{via}" at the top of its body, or use range',
            loop.span,
        )
    for load in (
        s for s in ir.walk(tuple(rest)) if isinstance(s, ir.Load) and s.via not in ("auto", *ir.REGISTER_WAYS)
    ):
        wanted = "cp_async" if load.via == "tma" else "tma"
        raise ExpansionError(
            "TW009",
            f'via="{load.via}" does not fit roles="{loop.roles}", which stages loads by {via}'
            + (
                f'; use via="{via}" or "auto"'
                if load.via == wanted
                else "; put the load at the top of the pipeline's body"
            ),
            load.span,
        )
    outside = _occurrences(kernel)
    outside.subtract(_occurrences(loop.body))
    done = [s for s in body if any(s is w for load in staged for w in load.work)]
    return tuple(staged), without_unused(tuple(rest), done, outside)


def at_iteration(
    loads: Sequence[StagedLoad], variable: str, value: ir.Expr, names: Names
) -> tuple[ir.Block, tuple[ir.Load | ir.Gather, ...]]:
    """The loads with the loop variable set to `value`, and what computes their indices, each statement once."""
    work: list[ir.Stmt] = []
    for load in loads:
        work += [s for s in load.work if not any(s is w for w in work)]
    ahead, renaming = computed_at(work, variable, value, names)
    return ahead, tuple(cast("ir.Load | ir.Gather", renaming.applied(s.load)) for s in loads)


@dataclass(frozen=True, slots=True)
class StageRead:
    """A tile `dst` that iterations read from the ring of a load, as it lies or transposed."""

    dst: str
    staged: StagedLoad
    transposed: bool = False

    def stage(self, number: ir.Expr) -> ir.BufRef:
        """The stage `number` of the ring, as this tile sees it."""
        return ir.BufRef(self.staged.ring, number, self.transposed)

    def load(self, number: ir.Expr) -> ir.SharedLoad:
        """The statement that reads it."""
        note = f"'{self.staged.load.dst.lstrip('%')}' transposed, as the stage is read" if self.transposed else ""
        return ir.SharedLoad(self.dst, self.stage(number), span=self.staged.load.span, note=note)


def stage_reads(
    loop: ir.Pipeline, loads: tuple[StagedLoad, ...], rest: ir.Block, kernel: ir.Block
) -> tuple[tuple[StageRead, ...], ir.Block]:
    """What a pipeline reads of its stages, and its body without the transposes that reading does.

    `kernel` is the block that holds the pipeline: a tile of which only the transposed one is used is not read itself.
    """
    reads: list[StageRead] = []
    outside = _occurrences(kernel)
    outside.subtract(_occurrences(loop.body))
    for staged in loads:
        name = staged.load.dst
        turned: list[ir.Compute] = []
        if not any(getattr(s, "dst", None) == name for s in ir.walk(rest)):
            turned = [
                s for s in rest
                if isinstance(s, ir.Compute) and s.op == "transpose" and s.args == (ir.TileRef(name),)
                and sum(getattr(o, "dst", None) == s.dst for o in ir.walk(rest)) == 1
            ]  # fmt: skip
        rest = tuple(s for s in rest if s not in turned)
        used = outside[name] or any(_touches(s, name) for s in ir.walk(rest))
        if used or not turned:
            reads.append(StageRead(name, staged))
        reads.extend(StageRead(s.dst, staged, True) for s in turned)
    return tuple(reads), rest


def of_stages(
    block: ir.Block, loads: Sequence[StagedLoad], reads: Sequence[StageRead], number: ir.Expr, registers: Container[str]
) -> ir.Block:
    """`block` where what is said of the tags of a loaded tile that is not in `registers` is said of its stage."""
    stages: dict[str, ir.BufRef] = {s.load.dst: ir.BufRef(s.ring, number) for s in loads}
    stages |= {r.dst: r.stage(number) for r in reads}

    def stage(of: Holder) -> Holder:
        return stages.get(of, of) if isinstance(of, str) and of not in registers else of

    if not any(isinstance(s, ir.Tag | ir.ExpectTags) for s in ir.walk(block)):
        return block
    return ir.rewrite(block, lambda s: (moved(s, stage),) if isinstance(s, ir.Tag | ir.ExpectTags) else None)


def _occurrences(block: ir.Block) -> Counter[str]:
    """How often each tile is named by what is executed."""
    found: Counter[str] = Counter()
    for stmt in ir.walk(block):
        if isinstance(stmt, ir.Tag | ir.ExpectTags):
            continue
        for value in ir.operands(stmt):
            if isinstance(value, str):
                found[value] += 1
            elif isinstance(value, ir.TileRef):
                found[value.name] += 1
    return found


def _with_own_names(body: ir.Block, names: Names) -> ir.Block:
    """`body` with a name of its own for each load, as unrolled loops write the same one again and again.

    Loads are read at the top of the iteration, so a name that is loaded twice would lose its first tile. The last load
    keeps the name, which may be read after the loop.
    """
    block = list(body)
    loads = [i for i, s in enumerate(block) if _may_be_staged(s)]
    for n, i in enumerate(loads):
        load = block[i]
        assert isinstance(load, ir.Load | ir.Gather)
        if load.dst not in {getattr(block[later], "dst", None) for later in loads[n + 1 :]}:
            continue
        own = names.new(load.dst, names.types[load.dst])
        block[i] = replace(load, dst=own)
        for j in range(i + 1, len(block)):
            stmt = block[j]
            written = [s for s in ir.walk((stmt,)) if getattr(s, "dst", None) == load.dst]
            if written and written != [stmt]:
                raise ExpansionError(
                    "TW005",
                    f"'{load.dst}' is loaded in this pipeline and changed in a branch or loop inside of it; "
                    "give the load a name of its own",
                    written[0].span,
                )
            (block[j],) = ir.rewrite((stmt,), lambda s, own=own, old=load.dst: (_reading(s, old, own),))
            if written:
                break
    for i, stmt in enumerate(block):
        if _may_be_staged(stmt) and any(
            _touches(s, stmt.dst) or (isinstance(s, ir.Tag | ir.ExpectTags) and stmt.dst in holders(s))
            for s in ir.walk(tuple(block[:i]))
        ):
            raise ExpansionError(
                "TW005",
                f"'{stmt.dst}' is used in this pipeline before it is loaded, but loads are read at the top of the "
                "iteration; give the load a name of its own",
                stmt.span,
            )
    return tuple(block)


def _may_be_staged(stmt: ir.Stmt) -> TypeGuard[ir.Load | ir.Gather]:
    return isinstance(stmt, ir.Load) or (isinstance(stmt, ir.Gather) and stmt.via == "cp_async")


def _touches(stmt: ir.Stmt, name: str) -> bool:
    # What is said of tags is not executed.
    return not isinstance(stmt, ir.Tag | ir.ExpectTags) and any(
        value in (name, ir.TileRef(name)) for value in ir.operands(stmt)
    )


def _reading(stmt: ir.Stmt, old: str, new: str) -> ir.Stmt:
    """`stmt` with the tile `new` wherever it reads `old`."""

    def name(tile: str) -> str:
        return new if tile == old else tile

    match stmt:
        case ir.Compute(args=args):
            return replace(stmt, args=tuple(ir.TileRef(name(a.name)) if isinstance(a, ir.TileRef) else a for a in args))
        case ir.Mma(a=a, b=b, acc=acc):
            return replace(stmt, a=name(a), b=name(b), acc=name(acc))
        case ir.Store(src=src) | ir.SharedStore(src=src):
            return replace(stmt, src=name(src))
        case ir.Tag() | ir.ExpectTags():
            return moved(stmt, lambda of: name(of) if isinstance(of, str) else of)
        case ir.Gather(index=index, mask=mask) | ir.Scatter(index=index, mask=mask):
            at = tuple(ir.TileRef(name(i.name)) if isinstance(i, ir.TileRef) else i for i in index)
            chosen = ir.TileRef(name(mask.name)) if mask is not None else None
            if isinstance(stmt, ir.Scatter):
                return replace(stmt, index=at, mask=chosen, src=name(stmt.src))
            return replace(stmt, index=at, mask=chosen)
        case ir.Atomic(src=src, mask=mask):
            return replace(stmt, src=name(src), mask=None if mask is None else name(mask))
        case _:
            return stmt


def _check_ahead(loop: ir.Pipeline, view: ir.View, load: ir.Load) -> None:
    # Scalars of the iteration are substituted; what is left of them is carried from elsewhere.
    inside = {s.dst for s in ir.walk(loop.body) if isinstance(s, ir.Assign)}
    for origin in view.origin:
        bad = sorted(ex.names(origin) & inside)
        if bad:
            raise ExpansionError(
                "TW005",
                f"this load runs ahead, but its place depends on '{bad[0]}', which its own iteration computes",
                load.span,
            )
    check_zeros(load)


def check_zeros(load: ir.Load) -> None:
    """Refuses a load into shared memory that fills with something else."""
    if load.other not in (None, 0.0):
        raise ExpansionError(
            "TW009",
            f"copies into shared memory fill with zeros what lies outside; other={load.other:g} is not possible here",
            load.span,
        )


def _allocate(load: ir.Load | ir.Gather, stages: int, names: Names, via: str, block: list[ir.Stmt]) -> str:
    tile = names.types[load.dst]
    assert isinstance(tile, TileType)
    layout: SharedLayout
    if via == "tma":
        layout = default_swizzle(tile.shape, tile.dtype.bits)
    else:
        layout = ldmatrix_swizzle(tile)
    ring = names.new(f"{load.dst}_ring".lstrip("%"), SharedType(tile.dtype, tile.shape, stages, True, layout))
    block.append(ir.AllocShared(ring, span=load.span, note=f"{stages} stages of '{load.dst}'"))
    return ring


def ldmatrix_swizzle(tile: TileType) -> SwizzledShared:
    """The swizzle that makes 16-byte row accesses of eight consecutive rows (ldmatrix) hit all 32 banks once.

    A row of r bytes spans r/128 turns of the banks; rows are xor-ed in phases of 128/r rows when shorter than a turn.
    """
    vector = max(1, 16 // tile.dtype.bytes)
    row_bytes = tile.shape[-1] * tile.dtype.bytes
    per_phase = max(1, 128 // row_bytes)
    max_phase = max(1, min(8 // min(per_phase, 8), row_bytes // 16))
    order = tuple(reversed(range(len(tile.shape))))
    return SwizzledShared(vector, per_phase, max_phase, order)


def iteration_number(loop: ir.Pipeline) -> ir.Expr:
    """The number of the iteration as an expression of the loop variable."""
    return ex.floordiv(ex.sub(Var(loop.var), loop.lo), Int(loop.step))
