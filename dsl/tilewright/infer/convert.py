"""Conversions where the layout of a name is not the one that a use needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.divisibility import Known, access_order, kernel_divisors, point_vector, vector_elements
from tilewright.infer.derived import DERIVED, derived, joined
from tilewright.infer.rules import InferenceError, accumulator_layout, mma_operand, wgmma_operand
from tilewright.infer.solve import Layouts
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType, Type
from tilewright.layout import Blocked, DistributedLayout, DotOperand, Mfma, MmaV2, Slice, Wgmma, default_blocked

WGMMA_OPERAND = "operand A of wgmma, in registers"

_Need = Callable[[str, DistributedLayout, str], str]


def convert_uses(kernel: ir.Kernel, layouts: Layouts) -> ir.Kernel:
    """The kernel with these layouts, and a `convert_layout` wherever a statement needs another one."""
    types: dict[str, Type] = dict(kernel.types)
    known = kernel_divisors(kernel)
    for name, (layout, why) in layouts.items():
        tile = types[name]
        assert isinstance(tile, TileType)
        types[name] = tile.with_layout(layout, why)
    tiles = {n: t for n, t in types.items() if isinstance(t, TileType) and t.shape}

    def temporary(name: str, layout: DistributedLayout, why: str) -> str:
        serial = 1
        while (new := f"%{name.lstrip('%')}.{serial}") in types:
            serial += 1
        types[new] = tiles[name].with_layout(layout, why)
        return new

    def change(stmt: ir.Stmt) -> ir.Block | None:
        before: list[ir.Stmt] = []
        after: list[ir.Stmt] = []

        def need(name: str, layout: DistributedLayout, why: str) -> str:
            if name not in tiles or tiles[name].layout == layout:
                return name
            new = temporary(name, layout, why)
            before.append(_conversion(new, name, stmt, why))
            return new

        match stmt:
            case ir.Compute():
                new, made = _convert_compute(stmt, tiles, need)
                if made is not None and made != tiles[stmt.dst].layout:
                    produced = temporary(stmt.dst, made, f"result of {stmt.op}")
                    new = replace(new, dst=produced)
                    after.append(
                        _conversion(stmt.dst, produced, stmt, f"'{stmt.dst}' has another layout than {stmt.op} gives")
                    )
            case ir.Mma():
                parent = held = tiles[stmt.dst].layout
                if isinstance(parent, Wgmma) and stmt.instr == "mma_v2":
                    shape, element = tiles[stmt.dst].shape, tiles[stmt.a].dtype
                    parent = accumulator_layout(kernel, stmt, shape, element, parent.warps)
                if not isinstance(parent, Mfma if stmt.instr == "mfma" else MmaV2):
                    raise InferenceError(
                        f"{stmt.instr} has an accumulator in a layout of its own, but '{stmt.dst}' is given as "
                        f"{parent}; give it tw.accumulator(…), or none and convert the result",
                        stmt.span,
                    )
                depth = tiles[stmt.a].shape[1]
                pair = [
                    need(name, mma_operand(i, parent, tiles[name].dtype, depth), f"operand {'AB'[i]} of {stmt.instr}")
                    for i, name in enumerate((stmt.a, stmt.b))
                ]
                new = replace(stmt, a=pair[0], b=pair[1], acc=need(stmt.acc, parent, f"accumulator of {stmt.instr}"))
                if held != parent:
                    produced = temporary(stmt.dst, parent, f"accumulator of {stmt.instr}")
                    new = replace(new, dst=produced)
                    after.append(_conversion(stmt.dst, produced, stmt, f"'{stmt.dst}' is an accumulator of wgmma too"))
            case ir.Wgmma():
                parent = tiles[stmt.dst].layout
                if not isinstance(parent, Wgmma):
                    raise InferenceError(
                        f"wgmma has an accumulator in a layout of its own, but '{stmt.dst}' is given as {parent}; "
                        "give it tw.accumulator(…), or none and convert the result",
                        stmt.span,
                    )
                left = stmt.a
                if isinstance(left, ir.TileRef):
                    left = ir.TileRef(need(left.name, wgmma_operand(parent, tiles[left.name].dtype), WGMMA_OPERAND))
                new = replace(stmt, a=left, acc=need(stmt.acc, parent, "accumulator of wgmma"))
            case ir.Atomic(src=name, mask=str(mask)):
                mine = tiles[name].layout
                assert mine is not None
                new = replace(stmt, mask=need(mask, mine, f"the mask of '{name}'"))
            case ir.Store(src=name) if name in tiles and _is_fragment(tiles[name].layout):
                tile = tiles[name]
                assert tile.layout is not None
                param, warps, lanes = kernel.param(stmt.view.tensor), tile.layout.warps, tile.layout.warp_size
                vector, order = vector_elements(stmt.view, param, known, masked=False), access_order(stmt.view, param)
                wanted = default_blocked(tile.shape, 128 // vector, warps, order, warp_size=lanes)
                new = replace(stmt, src=need(name, wanted, "a coalesced store needs rows, not matrix fragments"))
            case ir.Gather() | ir.Scatter():
                own = tiles[stmt.dst if isinstance(stmt, ir.Gather) else stmt.src]
                wanted = own.layout
                if isinstance(stmt, ir.Scatter) and wanted is not None and _is_fragment(wanted):
                    width = 128 // max(8, own.dtype.bits)
                    wanted = default_blocked(own.shape, 128 // width, wanted.warps, warp_size=wanted.warp_size)
                if wanted is None:
                    return None

                def laid(name: str, layout: DistributedLayout = wanted) -> str:
                    return need(name, layout, "elements and their indices lie in one layout")

                index = tuple(ir.TileRef(laid(i.name)) if isinstance(i, ir.TileRef) else i for i in stmt.index)
                mask = ir.TileRef(laid(stmt.mask.name)) if stmt.mask is not None else None
                if isinstance(stmt, ir.Scatter):
                    new = replace(stmt, index=index, mask=mask, src=laid(stmt.src))
                else:
                    new = replace(stmt, index=index, mask=mask)
            case ir.CpGather():
                layout = _copying(kernel, stmt, tiles, known)

                def moved(name: str, layout: DistributedLayout = layout) -> str:
                    return need(name, layout, "each thread copies neighbours")

                index = tuple(ir.TileRef(moved(i.name)) if isinstance(i, ir.TileRef) else i for i in stmt.index)
                mask = ir.TileRef(moved(stmt.mask.name)) if stmt.mask is not None else None
                new = replace(stmt, index=index, mask=mask)
            case _:
                return None
        return (*before, new, *after)

    return kernel.with_body(ir.rewrite(kernel.body, change), types)


def _copying(kernel: ir.Kernel, stmt: ir.CpGather, tiles: dict[str, TileType], known: Known) -> DistributedLayout:
    """The layout of the threads that copy: neighbours of a row together, as many as one copy moves."""
    buffer = kernel.types[stmt.dst.buffer]
    first = next(tiles[i.name].layout for i in stmt.index if isinstance(i, ir.TileRef))
    assert isinstance(buffer, SharedType) and first is not None
    width = 128 // point_vector(kernel, stmt, known)
    return default_blocked(buffer.shape, width, first.warps, warp_size=first.warp_size)


def _convert_compute(
    stmt: ir.Compute, tiles: dict[str, TileType], need: _Need
) -> tuple[ir.Compute, DistributedLayout | None]:
    """The statement with operands in the layouts it needs, and the layout of what it makes (None: as wanted)."""
    wanted = tiles[stmt.dst].layout if stmt.dst in tiles else None
    refs = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
    source = tiles[refs[0]].layout if refs and refs[0] in tiles else None
    if stmt.op in ir.REDUCTIONS:
        if source is None or stmt.dst not in tiles or stmt.axis is None:
            return stmt, None
        return stmt, source if stmt.keep else Slice(stmt.axis, source)
    if wanted is None or stmt.op in ("full", "arange", "convert_layout"):
        return stmt, None
    if stmt.op == "expand_dims" and stmt.axis is not None:
        name = need(refs[0], Slice(stmt.axis, wanted), f"expand_dims at {stmt.axis} takes a slice")
        return replace(stmt, args=(ir.TileRef(name),)), None
    if stmt.op == "reshape":
        return stmt, None
    if stmt.op in DERIVED or stmt.op in ir.SCANS:
        tile = tiles[refs[0]]
        if not isinstance(source, Blocked) or (stmt.op in DERIVED and derived(stmt, source) is None):
            shape = tile.shape[:-1] if stmt.op == "half" else tile.shape
            source = default_blocked(shape, max(8, tile.dtype.bits), wanted.warps, warp_size=wanted.warp_size)
            source = joined(source) if stmt.op == "half" else source
        why = f"{stmt.op} takes a blocked layout" + (" with both elements in one thread" * (stmt.op == "half"))
        stmt = replace(stmt, args=tuple(ir.TileRef(need(name, source, why)) for name in refs))
        return stmt, source if stmt.op in ir.SCANS else derived(stmt, source)
    rank = len(tiles[stmt.dst].shape)
    args: list[ir.Operand] = []
    for arg in stmt.args:
        if isinstance(arg, ir.TileRef) and arg.name in tiles:
            layout: DistributedLayout = wanted
            for _ in range(rank - len(tiles[arg.name].shape)):
                layout = Slice(0, layout)
            arg = ir.TileRef(need(arg.name, layout, f"'{stmt.dst}' combines tiles in one layout"))
        args.append(arg)
    return replace(stmt, args=tuple(args)), None


def _is_fragment(layout: DistributedLayout | None) -> bool:
    while isinstance(layout, Slice):
        layout = layout.parent
    return isinstance(layout, MmaV2 | Mfma | Wgmma | DotOperand)


def _conversion(dst: str, src: str, stmt: ir.Stmt, why: str) -> ir.Compute:
    return ir.Compute(dst, "convert_layout", (ir.TileRef(src),), span=stmt.span, note=why)
