"""Instructions of single statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.lines import points_shape
from tilewright_analysis.async_ import code as c
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.about_tags import about_tags
from tilewright_analysis.async_.gathered import Axis, course
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.scalars import Scalars


def instruction(scalars: Scalars, stmt: ir.Stmt, groups: int) -> c.Instr:
    """The instruction of a statement in a role of `groups` warpgroups. Raises Unsupported."""
    used: set[int] = set()

    def scalar(expr: ex.Expr, what: str) -> c.Scalar:
        value, more = scalars.scalar(expr, stmt.span, what)
        used.update(more)
        return value

    def dimensions(tensor: str) -> list[int]:
        extents = scalars.t.kernel.param(tensor).type.shape
        return [scalars.t.dim(forms.canonical(e, {}, scalars.t.facts)) for e in extents]

    def links(origin: Iterable[ir.Operand]) -> tuple[tuple[int, c.Coordinate], ...]:
        """Dimensions and places of the elements that decide an origin, of those that no loop around moves."""
        found: dict[tuple[int, ex.Expr], c.Coordinate] = {}
        names = {p.name for p in scalars.t.kernel.params}
        for e in origin:
            terms = scalars.form(e, stmt.span).terms if isinstance(e, ex.Expr) else ()
            for item in (i for key, _ in terms for i in ex.items(key) if i.tensor in names):
                for dim, index in zip(dimensions(item.tensor), item.index, strict=True):
                    if not any(n.startswith(("$", "#")) for n in ex.names(index)) and not any(ex.items(index)):
                        at, more = scalars.coordinate(index, stmt.span)
                        found[dim, index] = replace(at, text=scalars.written(index, stmt.span))
                        used.update(more)
        return tuple((dim, at) for (dim, _), at in found.items())

    loads = ir.Load | ir.TmaLoad | ir.CpAsync

    def box(view: ir.View) -> c.Box:
        origin: list[c.Coordinate | None] = []
        for number, e in enumerate(view.origin):
            if number < view.lead and scalars.wanders(e, stmt.span):
                origin.append(None)
                continue
            coordinate, more = scalars.coordinate(e, stmt.span, stmt if isinstance(stmt, loads) else None)
            used.update(more)
            origin.append(coordinate)
        dims = tuple(dimensions(view.tensor))
        lead = view.lead
        fixed = tuple((d, at) for d, at in zip(dims[:lead], origin[:lead], strict=True) if at is not None)
        own = tuple(at for at in origin[lead:] if at is not None)
        moving = tuple(
            (d, scalars.table(e, stmt.span), ex.show(e))
            for d, e, at in zip(dims, view.origin, origin, strict=True) if at is None
        )  # fmt: skip
        return c.Box(view.tensor, dims[lead:], own, view.tile_shape, fixed, links(view.origin), moving)

    def elements(gather: ir.Gather | ir.CpGather | ir.Scatter) -> tuple[c.Box, c.Spread]:
        found = course(scalars, gather)

        def coordinate(at: ex.Expr, text: str = "") -> c.Coordinate:
            made, more = scalars.coordinate(at, gather.span)
            used.update(more)
            return replace(made, text=text) if text else made

        def dim(axis: Axis) -> int:
            return scalars.t.dim(axis.extent) if axis.step is None else scalars.t.steps_of(axis.extent, *axis.step)

        extents = scalars.t.kernel.param(gather.tensor).type.shape
        fixed = tuple(
            (scalars.t.dim(forms.canonical(extents[d], {}, scalars.t.facts)), coordinate(e))
            for d, e in found.fixed.items()
            if not scalars.wanders(e, gather.span)
        )
        shape = points_shape(scalars.t.kernel, gather)
        axes = found.axes.values()
        box = c.Box(
            gather.tensor, tuple(map(dim, axes)), tuple(coordinate(forms.to_expr(a.at), a.text) for a in axes),
            tuple(shape[n] for n in found.axes), fixed, links(found.fixed.values()),
        )  # fmt: skip
        read = (i.name for i in gather.index if isinstance(i, ir.TileRef) and i.name in scalars.t.lines.loaded)
        return box, c.Spread(
            found.by_table, tuple(found.axes), tuple(read), frozenset(n for n, a in found.axes.items() if a.numbered),
            tuple(frozenset(map(scalars.t.dim, extents)) for extents in found.along),
        )  # fmt: skip

    def scattered(stmt: ir.Scatter) -> tuple[c.Box, c.Spread]:
        try:
            return elements(stmt)
        except Unsupported:
            rank = len(points_shape(scalars.t.kernel, stmt))
            anywhere = frozenset(dimensions(stmt.tensor))
            return c.Box(stmt.tensor, (), (), ()), c.Spread((False,) * rank, (), along=(anywhere,) * rank)

    def place(ref: ir.BufRef) -> c.Place:
        buffer = scalars.t.buffers[ref.buffer]
        text = ref.buffer if buffer.stages == 1 else f"{ref.buffer}[{ex.show(ref.stage)}]"
        text += ".T" * ref.transposed
        scalars.used(ref.buffer, buffer.stages, ref.stage, None, stmt.span)
        return c.Place(buffer, scalar(ref.stage, "stage"), text, ref.transposed)

    def slot(ref: ir.BarRef) -> c.Slot:
        barrier = scalars.t.barriers[ref.barrier]
        text = ref.barrier if barrier.slots == 1 else f"{ref.barrier}[{ex.show(ref.slot)}]"
        waited = stmt.parity if isinstance(stmt, ir.BarrierWait) else None
        scalars.used(ref.barrier, barrier.slots, ref.slot, waited, stmt.span)
        return c.Slot(barrier, scalar(ref.slot, "slot"), text)

    def shape(name: str) -> tuple[int, ...]:
        kind = scalars.t.kernel.types[name]
        return kind.shape if isinstance(kind, TileType) else ()

    match stmt:
        case ir.BarrierWait():
            instr: c.Instr = c.Wait(slot(stmt.bar), scalar(stmt.parity, "parity"), stmt=stmt)
        case ir.BarrierArrive():
            instr = c.Arrive(slot(stmt.bar), stmt=stmt, elect=True)
        case ir.BarrierExpect():
            instr = c.Expect(slot(stmt.bar), scalar(stmt.bytes, "byte count"), stmt=stmt, elect=True)
        case ir.TmaLoad():
            instr = c.TmaLoad(box(stmt.view), place(stmt.dst), slot(stmt.bar), stmt=stmt, elect=True)
        case ir.TmaStore():
            instr = c.TmaStore(box(stmt.view), place(stmt.src), stmt=stmt, elect=True)
        case ir.TmaStoreWait():
            instr = c.StoreWait(stmt.pending, stmt=stmt, elect=True)
        case ir.CpAsync():
            instr = c.CpAsync(box(stmt.view), place(stmt.dst), stmt=stmt)
        case ir.CpGather():
            read = tuple(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef))
            where, spread = elements(stmt)
            instr = c.CpAsync(where, place(stmt.dst), spread, stmt=stmt, reads=read)
        case ir.CpCommit():
            instr = c.CpCommit(stmt=stmt)
        case ir.CpWait():
            instr = c.CpWait(stmt.pending, stmt=stmt)
        case ir.SharedLoad():
            instr = c.SharedLoad(stmt.dst, place(stmt.src), stmt=stmt, writes=stmt.dst)
        case ir.SharedStore():
            instr = c.SharedStore(place(stmt.dst), stmt.src, stmt=stmt, reads=(stmt.src,))
        case ir.Wgmma():
            a = stmt.a.name if isinstance(stmt.a, ir.TileRef) else place(stmt.a)
            # Warpgroups share the rows of a; those of a transposed stage are its columns, so each reads it all.
            rows = a.buffer.shape[0] if isinstance(a, c.Place) and not a.transposed else 1
            split = groups > 1 and rows % (64 * groups) == 0
            reads = (stmt.acc, a) if isinstance(a, str) else (stmt.acc,)
            instr = c.Wgmma(stmt.dst, a, place(stmt.b), stmt.acc, split, stmt=stmt, reads=reads, writes=stmt.dst)
        case ir.WgmmaWait():
            instr = c.WgmmaWait(stmt.pending, stmt=stmt)
        case ir.Tcgen05(accumulate=ex.Int(again)):
            operands = (scalars.t.kernel.types[stmt.a.buffer], scalars.t.kernel.types[stmt.b.buffer])
            kind = "/".join(str(t.dtype.bits) for t in operands if isinstance(t, SharedType))
            instr = c.TensorProduct(
                place(stmt.acc), place(stmt.a), place(stmt.b), again != 0, kind, stmt=stmt, elect=True
            )  # fmt: skip
        case ir.Tcgen05Commit():
            instr = c.TensorCommit(slot(stmt.bar), stmt=stmt, elect=True)
        case ir.TensorLoad():
            instr = c.TensorLoad(stmt.dst, place(stmt.src), stmt=stmt, writes=stmt.dst)
        case ir.Mma():
            instr = c.Mma(
                stmt.dst, stmt.a, stmt.b, stmt.acc, stmt=stmt, reads=(stmt.a, stmt.b, stmt.acc), writes=stmt.dst
            )  # fmt: skip
        case ir.FenceAsync():
            instr = c.Fence(stmt=stmt)
        case ir.Sync():
            instr = c.RoleSync(stmt=stmt)
        case ir.Compute():
            tiles = tuple(a.name for a in stmt.args if isinstance(a, ir.TileRef))
            instr = c.Compute(
                stmt, tuple(shape(n) for n in tiles), shape(stmt.dst), stmt=stmt, reads=tiles, writes=stmt.dst
            )  # fmt: skip
        case ir.Gather():
            read = tuple(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef))
            where, spread = elements(stmt)
            instr = c.Gather(stmt.dst, where, spread, stmt=stmt, reads=read, writes=stmt.dst)
        case ir.Scatter():
            read = tuple(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef))
            where, spread = scattered(stmt)
            instr = c.Store(where, stmt.src, spread, stmt=stmt, reads=(*read, stmt.src))
        case ir.Load():
            instr = c.Load(stmt.dst, box(stmt.view), stmt=stmt, writes=stmt.dst)
        case ir.Store() | ir.Atomic():
            instr = c.Store(box(stmt.view), stmt.src, stmt=stmt, reads=(stmt.src,))
        case ir.Tag() | ir.ExpectTags():
            return about_tags(scalars, stmt, place)
        case _:
            raise Unsupported(f"{type(stmt).__name__} is not modelled by the asynchronous engine", stmt.span)
    instr.uses = frozenset(used)
    return instr


def choice(scalars: Scalars, stmt: ir.If, groups: int) -> c.Choice:
    """The instruction of a branch that only computes on register tiles."""
    parts: list[tuple[c.Compute, ...]] = []
    for block in (stmt.then, stmt.orelse):
        made = [instruction(scalars, s, groups) for s in block]
        parts.append(tuple(o for o in made if isinstance(o, c.Compute)))
    read: set[str] = set()
    for part in parts:
        written: set[str | None] = set()
        for o in part:
            read |= set(o.reads) - written
            written.add(o.writes)
    return c.Choice(parts[0], parts[1], stmt=stmt, reads=tuple(sorted(read)))
