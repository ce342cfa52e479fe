"""What a kernel moves and computes at given sizes, counted by one walk of its explicit form for all programs at a time.

Every scalar is an array over programs (axis 0) and the iterations of the loops around it (axes 1, 2, …), so the counts
are exact: clipped tiles at the edges, skipped branches and empty loops included. A scalar that depends on itself from
one iteration to the next (the counter of a ring) has no value here; what hangs on it alone counts as executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.arrays import applied, truth
from tilewright.ir.stages import seen
from tilewright.ir.types import SharedType, TileType
from tilewright.lines import points_shape
from tilewright.source import Span

Kind = Literal["direct", "cp_async", "tma"]
_AXES = 5  # programs, and four nested loops
_CELLS = 1 << 20  # programs times iterations that are counted one by one; more are sampled


@dataclass(frozen=True, slots=True)
class Access:
    """One statement that touches global memory. All figures are for the whole launch, in bytes.

    `l2` is what the programs ask for, clipped at the edges of the tensor; `dram` what has to come from or go to DRAM
    when the programs that run at the same time share what they touch. `box` is one full tile.
    """

    tensor: str
    kind: Kind
    write: bool
    span: Span
    shape: tuple[int, ...]
    box: int
    l2: float
    dram: float


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix instruction: shape of a statement, how often it runs in the whole launch, FLOPs with padding."""

    instr: Literal["wgmma", "mma_v2"]
    shape: tuple[int, int, int]
    bits: int
    executions: float
    span: Span

    @property
    def flops(self) -> float:
        """Multiplications and additions, those of padding included."""
        m, n, k = self.shape
        return 2.0 * m * n * k * self.executions


@dataclass
class Work:
    """Everything counted. `tiles` is the number of grid tiles; `elementwise` and `special` are operations on elements
    (special: exp, log, sqrt, division and the like); `shared` the bytes through shared memory for the whole launch.
    """

    tiles: int
    accesses: list[Access] = field(default_factory=list[Access])
    products: list[Product] = field(default_factory=list[Product])
    elementwise: float = 0.0
    special: float = 0.0
    shared: float = 0.0
    sampled: bool = False


# Sectors that L2 delivers to a GEMM whose rows begin in the middle of one, over those of aligned rows, for equal bytes:
# Nsight Compute on one H200 (docs/measurements.md).
_UNALIGNED_ROWS = 1.8
_SECTOR = 32  # bytes that L2 delivers at least
_SPECIAL = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "div",
    "pow",
))  # fmt: skip
# Ten rounds of two wide products, exclusive ors and key steps (`interpret/philox.py`).
_PHILOX = 100
Value = Any  # an integer array over the axes


def count_work(kernel: ir.Kernel, sizes: Mapping[str, int], concurrent: int, l2_bytes: int) -> Work:
    """Count what an explicit kernel does. `concurrent` programs run at a time and share an L2 of `l2_bytes`.

    Raises EvaluationError when a size is missing.
    """
    return _Counter(kernel, sizes, max(1, concurrent), l2_bytes).count()


class _Counter:
    def __init__(self, kernel: ir.Kernel, sizes: Mapping[str, int], concurrent: int, l2_bytes: int) -> None:
        self.kernel, self.sizes, self.concurrent = kernel, sizes, concurrent
        footprint = sum(self._tensor_bytes(p) for p in kernel.params)
        # What fits the L2 with room to spare is read from DRAM once, whatever the order of the programs.
        self.fits = footprint <= 0.7 * l2_bytes
        self.work = Work(0)
        self.scale = 1.0
        self.waves: Value = None
        self.seen: set[tuple[ir.View, bool]] = set()

    def count(self) -> Work:
        env: dict[str, Value] = {name: np.int64(value) for name, value in self.sizes.items()}
        self._block(self.kernel.body, env, np.bool_(True), 0)
        return self.work

    def _tensor_bytes(self, param: ir.Param) -> int:
        total = param.type.dtype.bytes
        for extent in param.type.shape:
            total *= ex.evaluate(extent, self.sizes)
        return total

    # ---------------------------------------------------------------------------------------- statements

    def _block(self, block: ir.Block, env: dict[str, Value], mask: Value, depth: int) -> None:
        for stmt in block:
            match stmt:
                case ir.Assign(dst=dst, value=value):
                    env[dst] = None if dst in ex.names(value) else _evaluate(value, env)
                case ir.Programs():
                    self._programs(stmt, env, mask)
                case ir.For():
                    self._for(stmt, env, mask, depth)
                case ir.While(counted=counted):
                    self._for(counted, env, mask, depth)
                case ir.If(cond=cond, then=then, orelse=orelse):
                    value = _evaluate(cond, env)
                    holds: Value = np.bool_(True) if value is None else value != 0
                    self._block(then, env, mask & holds, depth)
                    self._block(orelse, env, mask & ~holds, depth)
                case ir.Roles(roles=roles):
                    for role in roles:
                        self._block(role.body, dict(env), mask, depth)
                case _:
                    self._leaf(stmt, env, mask)

    def _programs(self, stmt: ir.Programs, env: dict[str, Value], mask: Value) -> None:
        total = int(_evaluate(stmt.count, env) or 0)
        self.work.tiles = max(self.work.tiles, total)
        if total == 0:
            return
        taken = min(total, max(self.concurrent, _CELLS // self._longest(stmt.body)))
        if taken < total:
            taken = taken // self.concurrent * self.concurrent or taken
            self.work.sampled = True
        self.scale = total / taken
        programs = _axis(np.arange(taken, dtype=np.int64), 0)
        self.waves = programs // self.concurrent
        inner = {k: v for k, v in env.items() if k not in _carried(stmt.body)}
        self._block(stmt.body, {**inner, stmt.var: programs}, mask, 1)
        self.scale = 1.0

    def _for(self, stmt: ir.For, env: dict[str, Value], mask: Value, depth: int) -> None:
        lo, hi = _evaluate(stmt.lo, env), _evaluate(stmt.hi, env)
        inner = {k: v for k, v in env.items() if k not in _carried(stmt.body)}
        if lo is None or hi is None or depth >= _AXES:
            self._block(stmt.body, inner, mask, depth)
            return
        trips = int(np.max(-(-(hi - lo) // stmt.step)))
        if trips <= 0:
            return
        var = lo + _axis(np.arange(trips, dtype=np.int64) * stmt.step, depth or 1)
        self._block(stmt.body, {**inner, stmt.var: var}, mask & (var < hi), (depth or 1) + 1)
        env.update(dict.fromkeys(_assigned(stmt.body)))

    def _leaf(self, stmt: ir.Stmt, env: dict[str, Value], mask: Value) -> None:
        match stmt:
            case ir.Load(view=view):
                self._access(view, "direct", False, stmt.span, env, mask)
            case ir.CpAsync(view=view):
                self._access(view, "cp_async", False, stmt.span, env, mask)
                self.work.shared += self._runs(mask) * self._box(view)
            case ir.TmaLoad(view=view):
                self._access(view, "tma", False, stmt.span, env, mask)
                self.work.shared += self._runs(mask) * self._box(view)
            case ir.Gather() | ir.Scatter():
                self._points(stmt, mask)
            case ir.CpGather():
                self._points(stmt, mask)
                size = self.kernel.param(stmt.tensor).type.dtype.bytes
                self.work.shared += self._runs(mask) * float(np.prod(points_shape(self.kernel, stmt))) * size
            case ir.Store(view=view) | ir.Atomic(view=view):
                self._access(view, "direct", True, stmt.span, env, mask)
            case ir.TmaStore(view=view):
                self._access(view, "tma", True, stmt.span, env, mask)
                self.work.shared += self._runs(mask) * self._box(view)
            case ir.Wgmma(a=a, b=b):
                left = self.kernel.types[a.name] if isinstance(a, ir.TileRef) else seen(self.kernel.types, a)
                right = seen(self.kernel.types, b)
                assert isinstance(left, SharedType | TileType)
                (m, k), n = left.shape, right.shape[1]
                runs = self._runs(mask)
                self.work.products.append(Product("wgmma", (m, n, k), left.dtype.bits, runs, stmt.span))
                # Each instruction of 64 rows reads its rows of a and the whole of b (PTX ISA, wgmma.mma_async).
                own = m * k if isinstance(left, SharedType) else 0
                self.work.shared += runs * (own + -(-m // 64) * k * n) * left.dtype.bytes
            case ir.Mma(a=a, b=b):
                left, right = self.kernel.types[a], self.kernel.types[b]
                assert isinstance(left, TileType) and isinstance(right, TileType)
                (m, k), n = left.shape, right.shape[1]
                self.work.products.append(Product("mma_v2", (m, n, k), left.dtype.bits, self._runs(mask), stmt.span))
            case ir.SharedLoad(dst=name) | ir.SharedStore(src=name):
                tile = self.kernel.types[name]
                assert isinstance(tile, TileType)
                self.work.shared += self._runs(mask) * _held_bytes(tile)
            case ir.Compute(dst=dst, op=op, args=args):
                source = next((self.kernel.types[a.name] for a in args if isinstance(a, ir.TileRef)), None)
                tile = source if op in ir.REDUCTIONS else self.kernel.types[dst]
                if isinstance(tile, TileType) and op not in ("full", "expand_dims", "broadcast", "copy"):
                    amount = self._runs(mask) * float(np.prod(tile.shape))
                    amount *= _PHILOX if op in ("rand", "randint") else 1
                    self.work.elementwise += amount
                    self.work.special += amount if op in _SPECIAL else 0.0
            case _:
                pass

    # ---------------------------------------------------------------------------------------- accesses

    def _runs(self, mask: Value) -> float:
        """How often a statement runs in the whole launch."""
        return float(np.sum(np.broadcast_to(mask, self._domain(mask)))) * self.scale

    def _domain(self, *values: Value) -> tuple[int, ...]:
        programs = self.waves.shape if self.waves is not None else ()
        return np.broadcast_shapes(*(np.shape(v) for v in values), programs)

    def _box(self, view: ir.View) -> int:
        return int(np.prod(view.shape)) * self.kernel.param(view.tensor).type.dtype.bytes

    def _points(self, stmt: ir.Gather | ir.CpGather | ir.Scatter, mask: Value) -> None:
        """Single elements: as many bytes as the tile has, each asked for and fetched once; masks are not followed."""
        shape = points_shape(self.kernel, stmt)
        box = int(np.prod(shape)) * self.kernel.param(stmt.tensor).type.dtype.bytes
        moved = self._runs(mask) * box
        kind = "cp_async" if isinstance(stmt, ir.CpGather) else "direct"
        self.work.accesses.append(
            Access(stmt.tensor, kind, isinstance(stmt, ir.Scatter), stmt.span, shape, box, moved, moved)
        )

    def _access(self, view: ir.View, kind: Kind, write: bool, span: Span, env: dict[str, Value], mask: Value) -> None:
        param = self.kernel.param(view.tensor)
        size = param.type.dtype.bytes
        origins = [_evaluate(o, env) for o in view.origin]
        if any(o is None for o in origins):
            moved = self._runs(mask) * self._box(view)
            self.work.accesses.append(Access(view.tensor, kind, write, span, view.shape, self._box(view), moved, moved))
            return
        clipped: list[Value] = []
        for origin, extent, tile in zip(origins, param.type.shape, view.shape, strict=True):
            edge = ex.evaluate(extent, self.sizes)
            clipped.append(np.clip(np.minimum(origin + tile, edge) - np.maximum(origin, 0), 0, None))
        moved = mask.astype(np.float64) * size
        for part in clipped:
            moved = moved * part
        total = float(np.sum(np.broadcast_to(moved, self._domain(moved)))) * self.scale
        if write:
            dram = total
        elif (view, write) in self.seen:
            dram = 0.0  # the same tile of the same program again: it comes from a cache
        else:
            dram = min(total, self._shared_reads(origins, moved))
        self.seen.add((view, write))
        asked = total if write else total * self._split_sectors(param)
        self.work.accesses.append(Access(view.tensor, kind, write, span, view.shape, self._box(view), asked, dram))

    def _split_sectors(self, param: ir.Param) -> float:
        """How many bytes L2 delivers for one that is read, where rows begin within its sectors of 32 bytes."""
        size = param.type.dtype.bytes
        pitches = [ex.evaluate(s, self.sizes) * size for s in param.type.strides]
        if (least := min(pitches)) > size:
            return min(_SECTOR, least) / size  # no two elements side by side
        return _UNALIGNED_ROWS if any(p % _SECTOR and p > size for p in pitches) else 1.0

    def _shared_reads(self, origins: list[Value], moved: Value) -> float:
        """Bytes when programs that run at the same time fetch each tile once, or all programs if everything fits L2."""
        waves: Value = np.int64(0) if self.fits or self.waves is None else self.waves
        shape = np.broadcast_shapes(np.shape(moved), np.shape(waves), *(np.shape(o) for o in origins))
        keys: Value = np.zeros(shape, np.int64)
        for part in (waves, *origins):
            low = np.min(part)
            keys = keys * (int(np.max(part) - low) + 1) + (part - low)
        weights: Value = np.broadcast_to(moved, shape).reshape(-1)
        _, first = np.unique(keys.reshape(-1), return_index=True)
        return float(weights[first].sum()) * self.scale

    def _longest(self, body: ir.Block) -> int:
        """Iterations of the loops in a body at most, to bound the memory of counting."""
        most = 1
        env: dict[str, Value] = {name: np.int64(value) for name, value in self.sizes.items()}
        for stmt in ir.walk(body):
            if isinstance(stmt, ir.For):
                lo, hi = _evaluate(stmt.lo, env), _evaluate(stmt.hi, env)
                if lo is not None and hi is not None:
                    most *= max(1, int(-(-(hi - lo) // stmt.step)))
        return most


def _held_bytes(tile: TileType) -> int:
    """Bytes that all threads together hold of a tile: more than the tile where its layout keeps copies."""
    elements = int(np.prod(tile.shape))
    if tile.layout is not None:
        elements = max(elements, tile.layout.linear(tile.shape).size)
    return elements * tile.dtype.bytes


def _axis(values: Value, axis: int) -> Value:
    shape = [1] * _AXES
    shape[axis] = len(values)
    return values.reshape(shape)


def _assigned(block: ir.Block) -> set[str]:
    return {s.dst for s in ir.walk(block) if isinstance(s, ir.Assign)}


def _carried(block: ir.Block) -> set[str]:
    """Scalars whose value in one iteration comes from the one before."""
    return {s.dst for s in ir.walk(block) if isinstance(s, ir.Assign) and s.dst in ex.names(s.value)}


def _evaluate(expr: ex.Expr, env: Mapping[str, Value]) -> Value:
    """The value as an array, None when it depends on something unknown."""
    match expr:
        case ex.Int(value):
            return np.int64(value)
        case ex.Size(name) | ex.Var(name):
            return env.get(name)
        case ex.Item():
            return None
        case ex.Not(arg):
            value = _evaluate(arg, env)
            return None if value is None else truth(value == 0)
        case ex.Bin(op, lhs, rhs):
            left, right = _evaluate(lhs, env), _evaluate(rhs, env)
            return None if left is None or right is None else applied(op, left, right)
