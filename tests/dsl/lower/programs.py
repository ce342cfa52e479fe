"""Random explicit kernels over register tiles, and what their layouts must satisfy after inference."""

from __future__ import annotations

import random

from analysis.kernels import kernel, programs, tensor, view
from tilewright.dtypes import DType, f16, f32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType, Type
from tilewright.layout import Blocked, DistributedLayout, DotOperand, MmaV2, Slice

ref = ir.TileRef
ROWS, COLUMNS = 32, 64
Shape = tuple[int, ...]


class Program:
    """A random straight-line program, with branches and loops over it, that stores all it has made.

    One program; K must be at least 64 for each value."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.types: dict[str, Type] = {}
        self.serial = 0

    def build(self, steps: int = 12) -> ir.Kernel:
        body: list[ir.Stmt] = [self.load(shape) for shape in ((ROWS, COLUMNS), (COLUMNS,), (ROWS, 1))]
        for _ in range(steps):
            body.extend(self.step())
        body.extend(self.store(name, place) for place, name in enumerate(self.values()))
        params = [
            tensor("X", f32, "M", "N"), tensor("Y", f32, "N"), tensor("OUT", f32, "K", "N"), tensor("LINE", f32, "K"),
        ]  # fmt: skip
        warps = self.random.choice((1, 2, 4, 8))
        assumptions = self.random.choice(((), ("N % 4 == 0",), ("N % 64 == 0",)))
        return kernel("random", "sm_80", warps, params, (programs("t", "1", False, *body),), self.types, assumptions)

    def new(self, shape: Shape, dtype: DType = f32) -> str:
        self.serial += 1
        name = f"v{self.serial}"
        self.types[name] = TileType(dtype, shape)
        return name

    def shape(self, name: str) -> Shape:
        tile = self.types[name]
        assert isinstance(tile, TileType)
        return tile.shape

    def values(self) -> list[str]:
        """Full-width tiles; the operands of matrix instructions are not among them."""
        return [n for n, t in self.types.items() if isinstance(t, TileType) and t.dtype == f32]

    def pick(self, shape: Shape | None = None) -> str:
        return self.random.choice([n for n in self.values() if shape is None or self.shape(n) == shape])

    def load(self, shape: Shape) -> ir.Stmt:
        at = view("Y", ("t * 8",), shape) if len(shape) == 1 else view("X", ("t * 32", 0), shape)
        return ir.Load(self.new(shape), at, 0.0, "direct")

    def store(self, name: str, place: int) -> ir.Stmt:
        """Each value has 64 rows of OUT, or 64 elements of LINE, to itself."""
        shape = self.shape(name)
        first = f"t * 64 + {64 * place}"
        return ir.Store(
            view("LINE", (first,), shape) if len(shape) == 1 else view("OUT", (first, 0), shape), name, "direct"
        )

    def step(self) -> list[ir.Stmt]:
        kind = self.random.choice(
            ("binary", "binary", "unary", "reduce", "expand", "transpose", "mma", "loop", "branch", "load")
        )
        a = self.pick()
        shape = self.shape(a)
        match kind:
            case "binary":
                b = self.pick()
                if (both := broadcast(shape, self.shape(b))) is None:
                    return []
                return [ir.Compute(self.new(both), self.random.choice(("add", "mul", "maximum")), (ref(a), ref(b)))]
            case "unary":
                return [ir.Compute(self.new(shape), self.random.choice(("sigmoid", "neg", "abs", "copy")), (ref(a),))]
            case "reduce" if len(shape) == 2:
                axis, keep = self.random.randrange(2), self.random.random() < 0.5
                rest = tuple(1 if d == axis else n for d, n in enumerate(shape)) if keep else (shape[1 - axis],)
                op = self.random.choice(("sum", "max"))
                return [ir.Compute(self.new(rest), op, (ref(a),), axis=axis, keep=keep)]
            case "expand" if len(shape) == 1:
                axis = self.random.randrange(2)
                return [
                    ir.Compute(self.new((1, *shape) if axis == 0 else (*shape, 1)), "expand_dims", (ref(a),), axis=axis)
                ]
            case "transpose" if len(shape) == 2:
                return [ir.Compute(self.new(shape[::-1]), "transpose", (ref(a),))]
            case "mma" if shape == (ROWS, COLUMNS):
                left, right, turned = self.new(shape, f16), self.new((COLUMNS, ROWS), f16), self.new((COLUMNS, ROWS))
                zero, out = self.new((ROWS, ROWS)), self.new((ROWS, ROWS))
                made = [
                    ir.Compute(left, "cast", (ref(a),)), ir.Compute(turned, "transpose", (ref(a),)),
                    ir.Compute(right, "cast", (ref(turned),)), ir.Compute(zero, "full", (0.0,)),
                    ir.Mma(out, left, right, zero, "mma_v2"),
                ]  # fmt: skip
                return made
            case "loop":
                inner = self.pick(shape)
                grown = ir.Compute(a, "add", (ref(a), ref(inner)))
                return [ir.For(f"k{self.serial}_{self.random.randrange(10**6)}", ex.Int(0), ex.Size("N"), 32, (grown,))]
            case "branch":
                inner = self.pick(shape)
                return [ir.If(ex.less(ex.Int(3), ex.Size("M")), (ir.Compute(a, "mul", (ref(a), ref(inner))),))]
            case "load":
                return [self.load(shape)]
            case _:
                return []


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """NumPy's rule for two shapes; None where they do not fit."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
        return None
    return tuple(max(m, n) for m, n in zip(a, b, strict=True))


def disagreements(k: ir.Kernel) -> list[str]:
    """Statements whose operands or results are not in the layout that Gluon asks for."""
    found: list[str] = []

    def layout(name: str) -> DistributedLayout:
        tile = k.types[name]
        assert isinstance(tile, TileType) and tile.layout is not None, name
        return tile.layout

    def rank(name: str) -> int:
        tile = k.types[name]
        assert isinstance(tile, TileType)
        return len(tile.shape)

    for s in ir.walk(k.body):
        match s:
            case ir.Compute(op="full" | "arange" | "convert_layout"):
                holds = True
            case ir.Compute(op="sum" | "max" | "min", args=(ir.TileRef(name),), axis=int(axis)):
                holds = layout(s.dst) == (layout(name) if s.keep else Slice(axis, layout(name)))
            case ir.Compute(op="expand_dims", args=(ir.TileRef(name),), axis=int(axis)):
                holds = layout(name) == Slice(axis, layout(s.dst))
            case ir.Compute(op="transpose", args=(ir.TileRef(name),)):
                source, made = layout(name), layout(s.dst)
                holds = isinstance(source, Blocked) and isinstance(made, Blocked) and made == Blocked(
                    source.size_per_thread[::-1], source.threads_per_warp[::-1], source.warps_per_cta[::-1],
                    tuple(1 - d for d in source.order),
                )  # fmt: skip
            case ir.Compute(args=args):
                holds = True
                for arg in args:
                    if isinstance(arg, ir.TileRef):
                        wanted = layout(s.dst)
                        for _ in range(rank(s.dst) - rank(arg.name)):
                            wanted = Slice(0, wanted)
                        holds = holds and layout(arg.name) == wanted
            case ir.Mma():
                parent = layout(s.dst)
                holds = isinstance(parent, MmaV2) and layout(s.acc) == parent
                if isinstance(parent, MmaV2):
                    holds = (
                        holds and layout(s.a) == DotOperand(0, parent, 2) and layout(s.b) == DotOperand(1, parent, 2)
                    )
            case _:
                holds = True
        if not holds:
            found.append(str(s))
    return found
