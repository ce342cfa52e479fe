"""A layout for every tile: classes of names that want the same one, and where a class takes it from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.divisibility import access_order, kernel_divisors, point_vector, vector_elements
from tilewright.infer.derived import DERIVED, derived
from tilewright.infer.rules import (
    InferenceError,
    accumulator_layout,
    mma_operand,
    tensor_memory_layout,
    warp_size,
    wgmma_layout,
)
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.layout import DistributedLayout, Mfma, MmaV2, Slice, Wgmma, default_blocked


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
    # Of each access: dimensions, the one with contiguous elements first, and elements at a time along it.
    vectors: list[tuple[tuple[int, ...], int]] = field(default_factory=list[tuple[tuple[int, ...], int]])
    loaded: bool = False


Layouts = dict[str, tuple[DistributedLayout, str]]


class Solver:
    """Layouts for the register tiles of one kernel."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.divisors = kernel_divisors(kernel)
        self.tiles = {n: t for n, t in kernel.types.items() if isinstance(t, TileType) and t.shape}
        self.classes = {name: _Class([name]) for name in self.tiles}
        self.facts = {name: _Facts() for name in self.tiles}
        self.statements = list(_with_warps(kernel))
        self.derived = [
            (stmt, stmt.args[0].name)
            for stmt, _ in self.statements
            if isinstance(stmt, ir.Compute) and stmt.op in DERIVED and isinstance(stmt.args[0], ir.TileRef)
        ]
        self.fragments: Layouts = {}

    def solve(self) -> Layouts:
        """For each tile its layout and the reason. Raises InferenceError."""
        for stmt, warps in self.statements:
            self._note(stmt, warps)
        for name, tile in self.tiles.items():
            if tile.layout is not None:
                self._check_given(name, tile.layout)
                self._anchor(name, tile.layout, f"'{name}' is given in it")
        # wgmma first: its results cannot be converted while they are in flight, those of other products can.
        for stmt, warps in sorted(self.statements, key=lambda pair: isinstance(pair[0], ir.Mma)):
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
        # Highest rank first: the layout of a matrix decides that of its rows, not the other way round. What transposing
        # makes comes after its source, whose layout decides its own.
        moved = {stmt.dst for stmt, _ in self.derived}
        for name in sorted(self.tiles, key=lambda n: (n in moved, -len(self.tiles[n].shape))):
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
            case ir.Load(dst=name, view=view) if name in self.facts:
                self._accessed(name, view)
                self.facts[name].loaded = True
            case ir.Gather(dst=name):
                self.facts[name].vectors.append((self._row_order(name), point_vector(self.kernel, stmt, self.divisors)))
                self.facts[name].loaded = True
            case ir.CpGather():
                first = next((i.name for i in stmt.index if isinstance(i, ir.TileRef)), None)
                if first is not None:
                    self.facts[first].vectors.append(
                        (self._row_order(first), point_vector(self.kernel, stmt, self.divisors))
                    )
            case ir.SharedLoad(dst=name):
                self._staged(name)
                self.facts[name].loaded = True
            case ir.Store(src=name, view=view) if name in self.facts:
                self._accessed(name, view)
            case ir.SharedStore(src=name) if name in self.facts:
                self._staged(name)
            case _:
                pass

    def _accessed(self, name: str, view: ir.View) -> None:
        param = self.kernel.param(view.tensor)
        # Without the mask: the lowering gives tiles that lie inside the tensor a path of their own.
        vector = vector_elements(view, param, self.divisors, masked=False)
        self.facts[name].vectors.append((access_order(view, param), vector))

    def _staged(self, name: str) -> None:
        self.facts[name].vectors.append((self._row_order(name), 128 // max(8, self.tiles[name].dtype.bits)))

    def _row_order(self, name: str) -> tuple[int, ...]:
        return tuple(reversed(range(len(self.tiles[name].shape))))

    def _anchor(self, name: str, layout: DistributedLayout, why: str, matrix: bool = False) -> None:
        group = self.classes[name]
        if group.layout is None:
            group.layout, group.why = layout, why
        group.matrix = group.matrix or matrix or isinstance(layout, MmaV2 | Wgmma | Mfma)

    def _check_given(self, name: str, layout: DistributedLayout) -> None:
        have, lanes = self.facts[name].warps or self.kernel.warps, warp_size(self.kernel)
        if (layout.warps, layout.warp_size) == (have, lanes):
            return
        made = next(s for s, _ in self.statements if getattr(s, "dst", None) == name)
        raise InferenceError(
            f"the layout of '{name}' is for {layout.warps} warps of {layout.warp_size} threads ({layout}), but here "
            f"run {have} warps of {lanes}",
            made.span,
        )

    def _anchor_matrix(self, stmt: ir.Stmt, warps: int) -> None:
        match stmt:
            case ir.Wgmma():
                shared = self.kernel.types[stmt.b.buffer]
                assert isinstance(shared, SharedType)
                layout = wgmma_layout(self.tiles[stmt.dst].shape, shared.dtype.bits, warps, stmt.span)
                self._union(stmt.dst, stmt.acc)
                self._anchor(stmt.dst, layout, "accumulator of wgmma", matrix=True)
            case ir.TensorLoad(dst=name):
                layout = tensor_memory_layout(self.tiles[name].shape, warps, stmt.span)
                self._anchor(name, layout, "as a warp reads tensor memory", matrix=True)
            case ir.Mma():
                if not any(isinstance(self.classes[n].layout, Wgmma) for n in (stmt.dst, stmt.acc)):
                    self._union(stmt.dst, stmt.acc)
                left = self.tiles[stmt.a]
                layout = accumulator_layout(self.kernel, stmt, self.tiles[stmt.dst].shape, left.dtype, warps)
                self._anchor(stmt.dst, layout, f"accumulator of {stmt.instr}", matrix=True)
                parent = self.classes[stmt.dst].layout
                parent = layout if isinstance(parent, Wgmma) else parent
                for index, name in enumerate((stmt.a, stmt.b)):
                    if isinstance(parent, MmaV2 | Mfma) and self._only_operand(name, index):
                        self.fragments[name] = (
                            mma_operand(index, parent, self.tiles[name].dtype, left.shape[1]),
                            f"operand {'AB'[index]} of {stmt.instr}, loaded in its layout",
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
            for stmt, src in self.derived:
                layout = derived(stmt, self.classes[src].layout)
                if self.classes[stmt.dst].layout is None and layout is not None:
                    self.classes[stmt.dst].layout = layout
                    self.classes[stmt.dst].why = f"the {stmt.op} of '{src}'"
                    changed = True

    def _default(self, group: _Class) -> None:
        tiles = [self.tiles[name] for name in group.names]
        facts = [self.facts[name] for name in group.names]
        shape = tuple(max(extents) for extents in zip(*(t.shape for t in tiles), strict=True))
        # What every load and store of the class can do: a wider layout splits the others into strided single elements.
        accesses = [access for f in facts for access in f.vectors]
        orders = [order for order, _ in accesses]
        order = max(orders, key=orders.count, default=None)
        vector = min((v for o, v in accesses if o == order), default=128 // max(8, min(t.dtype.bits for t in tiles)))
        warps = max((f.warps for f in facts), default=0) or self.kernel.warps
        group.layout = default_blocked(shape, 128 // vector, warps, order, warp_size=warp_size(self.kernel))
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
        case ir.Load(dst=name) | ir.SharedLoad(dst=name) | ir.TensorLoad(dst=name):
            names = (name,)
        case ir.Store(src=name) | ir.SharedStore(src=name):
            names = (name,)
        case ir.Gather() | ir.Scatter():
            own = stmt.dst if isinstance(stmt, ir.Gather) else stmt.src
            names = (own, *(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef)))
        case ir.CpGather():
            names = tuple(i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef))
        case ir.Atomic(src=name, mask=mask):
            names = (name,) if mask is None else (name, mask)
        case ir.Mma():
            names = (stmt.dst, stmt.a, stmt.b, stmt.acc)
        case ir.Wgmma(a=ir.TileRef(name=a)):
            names = (stmt.dst, a, stmt.acc)
        case ir.Wgmma():
            names = (stmt.dst, stmt.acc)
        case _:
            pass
    yield from (name for name in names if name in tiles)


def _operands(stmt: ir.Compute, tiles: dict[str, TileType]) -> list[str]:
    return [a.name for a in stmt.args if isinstance(a, ir.TileRef) and a.name in tiles]


def _same(stmt: ir.Stmt, tiles: dict[str, TileType]) -> Iterator[tuple[str, str]]:
    """Pairs of names that want one layout."""
    if isinstance(stmt, ir.Gather | ir.CpGather | ir.Scatter):
        own = [i.name for i in (*stmt.index, stmt.mask) if isinstance(i, ir.TileRef)]
        first, *rest = [stmt.dst, *own] if isinstance(stmt, ir.Gather) else own
        for name in rest:
            yield first, name
        return
    if isinstance(stmt, ir.Atomic) and stmt.mask is not None:
        yield stmt.src, stmt.mask
    if not isinstance(stmt, ir.Compute) or stmt.dst not in tiles:
        return
    rank = len(tiles[stmt.dst].shape)
    if (
        stmt.op in ir.ELEMENTWISE
        or stmt.op in ir.SCANS
        or stmt.op in ir.ORDERS
        or stmt.op == "broadcast"
        or (stmt.op in ir.REDUCTIONS and stmt.keep)
    ):
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
