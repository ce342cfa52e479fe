"""Layout inference: gives every register tile of an explicit kernel a layout, and converts where two uses disagree.

Tiles that an elementwise operation combines want one layout, so names fall into classes. A class takes its layout
from, in this order: a layout written in the kernel; the accumulator of a matrix instruction; a class it is a slice of,
or that is a slice of it; else a coalesced blocked layout, with as many elements a thread as one access can move. A
matrix from memory never takes an accumulator's layout: it is loaded coalesced and converted. Where the layout of a name
and the layout that a use needs differ, a `convert_layout` is inserted, and its note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tilewright.divisibility import kernel_divisors, vector_elements
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType, Type
from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    LayoutError,
    MmaV2,
    Slice,
    Wgmma,
    default_blocked,
)
from tilewright.source import Span

# Elements along K of one wgmma, by element bits (PTX ISA, wgmma.mma_async: 32 bytes of K).
_WGMMA_DEPTH = {8: 32, 16: 16, 32: 8}


class InferenceError(LayoutError):
    """No layout fits; `span` is the statement that asks for the impossible."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.span = span


def infer_layouts(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with a layout and a reason (`TileType.why`) on every register tile; idempotent.

    Layouts that are already given are obeyed. Raises InferenceError where a matrix instruction cannot have its layout
    (shape, number of warps), or where roles of different size share a tile's name.
    """
    return _convert(kernel, _Solver(kernel).solve())


def wgmma_layout(shape: tuple[int, ...], element_bits: int, warps: int, span: Span) -> Wgmma:
    """The accumulator of a wgmma of `shape` by `warps` warps: warpgroups side by side down the rows, then along N."""
    if warps % 4:
        raise InferenceError(f"wgmma needs whole warpgroups of 4 warps, but the role has {warps}; give it 4 or 8", span)
    if len(shape) != 2 or shape[0] % 64:
        raise InferenceError(
            f"wgmma writes 64 rows a warpgroup, so the accumulator needs a multiple of 64 rows, not {shape[0]}", span
        )
    rows = 1
    while rows * 2 <= warps // 4 and shape[0] % (64 * rows * 2) == 0:
        rows *= 2
    columns = warps // 4 // rows
    n = shape[1] // columns
    if n < 8:
        raise InferenceError(
            f"wgmma multiplies at least 8 columns a warpgroup, but {shape[1]} columns over {columns} warpgroups "
            f"leave {n}; use fewer warps",
            span,
        )
    return Wgmma((4 * rows, columns), (16, min(n, 256), _WGMMA_DEPTH[element_bits]))


def mma_layout(shape: tuple[int, ...], warps: int) -> MmaV2:
    """The accumulator of mma_v2 of `shape`: warps where the most 16×8 instructions are left, rows first."""
    grid = [1, 1]
    while grid[0] * grid[1] < warps:
        left = (shape[0] // (16 * grid[0]), shape[1] // (8 * grid[1]))
        grid[1 if left[1] > left[0] else 0] *= 2
    return MmaV2((grid[0], grid[1]))


# --------------------------------------------------------------------------------------------------- solving


@dataclass
class _Class:
    """Names that share a layout. `matrix`: that of an accumulator."""

    names: list[str]
    layout: DistributedLayout | None = None
    why: str = ""
    matrix: bool = False


@dataclass
class _Facts:
    """What the statements say about one name."""

    warps: int = 0
    vectors: list[int] = field(default_factory=list[int])
    loaded: bool = False


Layouts = dict[str, tuple[DistributedLayout, str]]
_Need = Callable[[str, DistributedLayout, str], str]


class _Solver:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.divisors = kernel_divisors(kernel)
        self.tiles = {n: t for n, t in kernel.types.items() if isinstance(t, TileType) and t.shape}
        self.classes = {name: _Class([name]) for name in self.tiles}
        self.facts = {name: _Facts() for name in self.tiles}
        self.statements = list(_with_warps(kernel))
        self.fragments: Layouts = {}

    def solve(self) -> Layouts:
        for stmt, warps in self.statements:
            self._note(stmt, warps)
        for name, tile in self.tiles.items():
            if tile.layout is not None:
                self._anchor(name, tile.layout, tile.why or "given in the kernel")
        for stmt, warps in self.statements:
            self._anchor_matrix(stmt, warps)
        memory = {name for name, facts in self.facts.items() if facts.loaded}
        pairs = [pair for stmt, _ in self.statements for pair in _same(stmt, self.tiles)]
        for a, b in pairs:
            if a not in memory and b not in memory:
                self._union(a, b)
        for a, b in pairs:
            if not (self.classes[a].matrix or self.classes[b].matrix):
                self._union(a, b)
        slices = [edge for stmt, _ in self.statements for edge in _slices(stmt, self.tiles)]
        self._spread(slices)
        # Highest rank first: the layout of a matrix decides that of its rows, not the other way round.
        for name in sorted(self.tiles, key=lambda n: -len(self.tiles[n].shape)):
            group = self.classes[name]
            if group.layout is None:
                self._default(group)
                self._spread(slices)
        result: Layouts = {}
        for name in self.tiles:
            group = self.classes[name]
            assert group.layout is not None
            given = self.tiles[name].layout
            result[name] = (group.layout, group.why) if given is None else (given, self.tiles[name].why or group.why)
        return result | {n: v for n, v in self.fragments.items() if self.tiles[n].layout is None}

    def _note(self, stmt: ir.Stmt, warps: int) -> None:
        for name in _tile_names(stmt, self.tiles):
            facts = self.facts[name]
            if facts.warps not in (0, warps):
                raise InferenceError(
                    f"'{name}' is a register tile of a role with {facts.warps} warps and of one with {warps}; "
                    "registers belong to one role, so use two names",
                    stmt.span,
                )
            facts.warps = warps
        match stmt:
            case ir.Load(dst=name, view=view):
                # Without the mask: the lowering gives tiles that lie inside the tensor a path of their own.
                vector = vector_elements(view, self.kernel.param(view.tensor), self.divisors, masked=False)
                self.facts[name].vectors.append(vector)
                self.facts[name].loaded = True
            case ir.SharedLoad(dst=name):
                self.facts[name].vectors.append(128 // max(8, self.tiles[name].dtype.bits))
                self.facts[name].loaded = True
            case ir.Store(src=name, view=view) if name in self.facts:
                vector = vector_elements(view, self.kernel.param(view.tensor), self.divisors, masked=False)
                self.facts[name].vectors.append(vector)
            case ir.SharedStore(src=name) if name in self.facts:
                self.facts[name].vectors.append(128 // max(8, self.tiles[name].dtype.bits))
            case _:
                pass

    def _anchor(self, name: str, layout: DistributedLayout, why: str, matrix: bool = False) -> None:
        group = self.classes[name]
        if group.layout is None:
            group.layout, group.why = layout, why
        group.matrix = group.matrix or matrix or isinstance(layout, MmaV2 | Wgmma)

    def _anchor_matrix(self, stmt: ir.Stmt, warps: int) -> None:
        match stmt:
            case ir.Wgmma():
                shared = self.kernel.types[stmt.a.buffer]
                assert isinstance(shared, SharedType)
                layout = wgmma_layout(self.tiles[stmt.dst].shape, shared.dtype.bits, warps, stmt.span)
                self._union(stmt.dst, stmt.acc)
                self._anchor(stmt.dst, layout, "accumulator of wgmma", matrix=True)
            case ir.Mma():
                self._union(stmt.dst, stmt.acc)
                self._anchor(
                    stmt.dst, mma_layout(self.tiles[stmt.dst].shape, warps), "accumulator of mma_v2", matrix=True
                )
                parent = self.classes[stmt.dst].layout
                for index, name in enumerate((stmt.a, stmt.b)):
                    if isinstance(parent, MmaV2) and self._only_operand(name, index):
                        bits = self.tiles[name].dtype.bits
                        self.fragments[name] = (
                            DotOperand(index, parent, max(1, 32 // bits)),
                            f"operand {'AB'[index]} of mma_v2, loaded in its layout",
                        )
            case _:
                pass

    def _only_operand(self, name: str, index: int) -> bool:
        """Whether shared memory is the only source of a tile and this operand of matrix instructions its only use."""
        for stmt, _ in self.statements:
            match stmt:
                case ir.SharedLoad(dst=dst) if dst == name:
                    pass
                case ir.Mma() if name not in (stmt.dst, stmt.acc) and (stmt.b, stmt.a)[index] != name:
                    pass
                case _ if name in _tile_names(stmt, self.tiles):
                    return False
                case _:
                    pass
        return True

    def _union(self, a: str, b: str) -> None:
        first, second = self.classes[a], self.classes[b]
        if first is second:
            return
        if first.layout is None and second.layout is not None:
            first, second = second, first
        first.names.extend(second.names)
        first.matrix = first.matrix or second.matrix
        for name in second.names:
            self.classes[name] = first

    def _spread(self, slices: list[tuple[str, int, str]]) -> None:
        """Layouts along `child = Slice(dim, parent)` until nothing changes."""
        changed = True
        while changed:
            changed = False
            for child, dim, parent in slices:
                below, above = self.classes[child], self.classes[parent]
                if below.layout is None and above.layout is not None:
                    below.layout = Slice(dim, above.layout)
                    below.why = f"follows '{parent}' without its dimension {dim}"
                    changed = True
                elif above.layout is None and isinstance(below.layout, Slice) and below.layout.dim == dim:
                    above.layout = below.layout.parent
                    above.why = f"'{child}' is a slice of it"
                    changed = True

    def _default(self, group: _Class) -> None:
        tiles = [self.tiles[name] for name in group.names]
        facts = [self.facts[name] for name in group.names]
        shape = tuple(max(extents) for extents in zip(*(t.shape for t in tiles), strict=True))
        # What every load and store of the class can do: a wider layout splits the others into strided single elements.
        vector = min((v for f in facts for v in f.vectors), default=128 // max(8, min(t.dtype.bits for t in tiles)))
        warps = max((f.warps for f in facts), default=0) or self.kernel.warps
        group.layout = default_blocked(shape, 128 // vector, warps)
        vector = group.layout.size_per_thread[group.layout.order[0]]
        group.why = f"coalesced along the contiguous dimension, {vector} element{'s' if vector > 1 else ''} at a time"
        if any(f.vectors for f in facts) and vector < 4:
            group.why += "; for wider accesses assume that the row length is a multiple of 16 bytes"


def _with_warps(kernel: ir.Kernel) -> Iterator[tuple[ir.Stmt, int]]:
    """Every statement with the number of warps that run it."""
    for stmt in kernel.body:
        if isinstance(stmt, ir.Roles):
            for role in stmt.roles:
                for inner in ir.walk(role.body):
                    yield inner, role.warps
        else:
            for inner in ir.walk((stmt,)):
                yield inner, kernel.warps


def _tile_names(stmt: ir.Stmt, tiles: dict[str, TileType]) -> Iterator[str]:
    names: tuple[str, ...] = ()
    match stmt:
        case ir.Compute():
            names = (stmt.dst, *(a.name for a in stmt.args if isinstance(a, ir.TileRef)))
        case ir.Load(dst=name) | ir.SharedLoad(dst=name) | ir.Store(src=name) | ir.SharedStore(src=name):
            names = (name,)
        case ir.Mma():
            names = (stmt.dst, stmt.a, stmt.b, stmt.acc)
        case ir.Wgmma():
            names = (stmt.dst, stmt.acc)
        case _:
            pass
    yield from (name for name in names if name in tiles)


def _operands(stmt: ir.Compute, tiles: dict[str, TileType]) -> list[str]:
    return [a.name for a in stmt.args if isinstance(a, ir.TileRef) and a.name in tiles]


def _same(stmt: ir.Stmt, tiles: dict[str, TileType]) -> Iterator[tuple[str, str]]:
    """Pairs of names that want one layout."""
    if not isinstance(stmt, ir.Compute) or stmt.dst not in tiles:
        return
    rank = len(tiles[stmt.dst].shape)
    if stmt.op in ir.ELEMENTWISE or stmt.op == "broadcast" or (stmt.op in ir.REDUCTIONS and stmt.keep):
        for name in _operands(stmt, tiles):
            if len(tiles[name].shape) == rank:
                yield stmt.dst, name


def _slices(stmt: ir.Stmt, tiles: dict[str, TileType]) -> Iterator[tuple[str, int, str]]:
    """Relations `child = Slice(dim, parent)`."""
    if not isinstance(stmt, ir.Compute) or stmt.dst not in tiles:
        return
    rank = len(tiles[stmt.dst].shape)
    for name in _operands(stmt, tiles):
        if stmt.op in ir.REDUCTIONS and not stmt.keep and stmt.axis is not None:
            yield stmt.dst, stmt.axis, name
        elif stmt.op == "expand_dims" and stmt.axis is not None:
            yield name, stmt.axis, stmt.dst
        elif (stmt.op in ir.ELEMENTWISE or stmt.op == "broadcast") and len(tiles[name].shape) == rank - 1:
            yield name, 0, stmt.dst


# --------------------------------------------------------------------------------------------------- converting


def _convert(kernel: ir.Kernel, layouts: Layouts) -> ir.Kernel:
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
                parent = tiles[stmt.dst].layout
                if not isinstance(parent, MmaV2):
                    raise InferenceError(
                        f"mma_v2 needs an mma_v2 accumulator, but '{stmt.dst}' is given as {parent}", stmt.span
                    )
                pair = [
                    need(
                        name,
                        DotOperand(i, parent, max(1, 32 // tiles[name].dtype.bits)),
                        f"operand {'AB'[i]} of mma_v2",
                    )
                    for i, name in enumerate((stmt.a, stmt.b))
                ]
                new = replace(stmt, a=pair[0], b=pair[1], acc=need(stmt.acc, parent, "accumulator of mma_v2"))
            case ir.Wgmma():
                parent = tiles[stmt.dst].layout
                if not isinstance(parent, Wgmma):
                    raise InferenceError(
                        f"wgmma needs a wgmma accumulator, but '{stmt.dst}' is given as {parent}", stmt.span
                    )
                new = replace(stmt, acc=need(stmt.acc, parent, "accumulator of wgmma"))
            case ir.Store(src=name) if name in tiles and _is_fragment(tiles[name].layout):
                tile = tiles[name]
                assert tile.layout is not None
                vector = vector_elements(stmt.view, kernel.param(stmt.view.tensor), known, masked=False)
                wanted = default_blocked(tile.shape, 128 // vector, tile.layout.warps)
                new = replace(stmt, src=need(name, wanted, "a coalesced store needs rows, not matrix fragments"))
            case _:
                return None
        return (*before, new, *after)

    return kernel.with_body(ir.rewrite(kernel.body, change), types)


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
    if stmt.op == "transpose":
        if not isinstance(source, Blocked):
            tile = tiles[refs[0]]
            source = default_blocked(tile.shape, max(8, tile.dtype.bits), wanted.warps)
            name = need(refs[0], source, "transpose takes a blocked layout")
            stmt = replace(stmt, args=(ir.TileRef(name),))
        return stmt, transposed(source)
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


def transposed(layout: Blocked) -> Blocked:
    """The blocked layout of the transposed tile."""
    rank = len(layout.order)
    return Blocked(
        layout.size_per_thread[::-1], layout.threads_per_warp[::-1], layout.warps_per_cta[::-1],
        tuple(rank - 1 - dim for dim in layout.order),
    )  # fmt: skip


def _is_fragment(layout: DistributedLayout | None) -> bool:
    while isinstance(layout, Slice):
        layout = layout.parent
    return isinstance(layout, MmaV2 | Wgmma | DotOperand)


def _conversion(dst: str, src: str, stmt: ir.Stmt, why: str) -> ir.Compute:
    return ir.Compute(dst, "convert_layout", (ir.TileRef(src),), span=stmt.span, note=why)
