"""Tile IR: structured statements over named values.

One IR serves both levels of the language. *Policy* statements (`Tiles`, `Pipeline`, `Load`/`Store` with `via`, `Mma`
with `instr="auto"`) say what moves; *explicit* statements (rings, barriers, roles, asynchronous copies, wgmma) say how.
`tilewright.expand.expand` turns the first into the second; interpreter, verifier and lowering take explicit IR only.

Invariants
- Names are unique in a kernel in this sense: a name has one type for the whole body (`Kernel.types`). Names may be
  assigned again (accumulators, ring counters); roles share no register tiles or scalars, only shared memory
  and barriers.
- Names that begin with `%` are temporaries of nested expressions: assigned once, used once, by a later statement.
- Every statement has a span relative to the kernel's first byte. What an expansion adds carries the span of the policy
  statement it comes from.
- `Expr` operands are scalars, equal in all threads. Compile-time values are already folded into `Int`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Literal

from tilewright.ir.base import BarRef, Block, BufRef, Operand, Stmt, TileRef, View
from tilewright.ir.control import Assign, For, If, While
from tilewright.ir.explicit import (
    AllocBarrier,
    AllocShared,
    AllocTensor,
    Atomic,
    BarrierArrive,
    BarrierExpect,
    BarrierWait,
    CpAsync,
    CpCommit,
    CpWait,
    FenceAsync,
    SharedLoad,
    SharedStore,
    Sync,
    Tcgen05,
    Tcgen05Commit,
    TensorLoad,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    Wgmma,
    WgmmaWait,
)
from tilewright.ir.expr import Expr, Size
from tilewright.ir.expr import walk as walk_expr
from tilewright.ir.gather import CpGather, Gather, Scatter
from tilewright.ir.orders import ColumnMajor, Grouped, Order, RowMajor, Xcd, xcd_number
from tilewright.ir.parameters import Assumption, ConstParam, Contract, Param, ScalarParam, TypeParam
from tilewright.ir.tagging import ExpectTags, Tag, TagUse
from tilewright.ir.types import Type
from tilewright.source import NO_SPAN, Span

ComputeOp = Literal[
    "full", "arange", "copy", "cast", "bitcast",
    "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf",
    "sigmoid", "floor", "ceil", "round", "trunc", "isnan",
    "add", "sub", "mul", "div", "pow", "fma", "maximum", "minimum", "where",
    "floordiv", "mod", "shl", "shr", "xor", "and", "or", "not",
    "lt", "le", "gt", "ge", "eq", "ne",
    "rand", "randint",
    "sum", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "sort", "argsort",
    "expand_dims", "broadcast", "transpose", "permute", "reshape", "join", "half", "convert_layout",
]  # fmt: skip
ELEMENTWISE: frozenset[str] = frozenset((
    "copy", "cast", "bitcast", "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin",
    "cos", "tanh", "erf", "sigmoid", "floor", "ceil", "round", "trunc", "isnan", "add", "sub", "mul", "div", "pow",
    "fma", "maximum", "minimum", "where", "floordiv", "mod", "shl", "shr", "xor", "and", "or", "not", "lt", "le", "gt",
    "ge", "eq", "ne", "rand", "randint",
))  # fmt: skip
REDUCTIONS: frozenset[str] = frozenset(("sum", "max", "min", "argmax", "argmin"))
SCANS: frozenset[str] = frozenset(("cumsum", "cumprod", "cummax", "cummin"))
ORDERS: frozenset[str] = frozenset(("sort", "argsort"))


@dataclass(frozen=True, slots=True)
class Compute(Stmt):
    """A pure operation on register tiles; the result type is `Kernel.types[dst]`.

    - `full`: one operand, the value. `arange`: no operand; elements 0 .. n-1 along the only axis.
    - elementwise operations broadcast by NumPy's rules (a size-1 axis stretches; ranks may differ).
    - integers: `floordiv` and `mod` round towards minus infinity, `shr` of signed integers keeps the sign.
    - `rand`, `randint`: the seed, then the offsets; Philox 4x32-10, element by element.
    - `sum`, `max`, `min`, `argmax`, `argmin`: `axis` is reduced away; with `keep` it stays with extent 1.
    - `cumsum`, `cumprod`, `cummax`, `cummin`: along `axis`, from its end with `reverse`.
    - `sort`, `argsort`: along `axis`, a power of two; the greatest first with `reverse`. NaN is the greatest, equal
      elements stay in their order.
    - `expand_dims`: `axis` is where the new extent-1 axis stands in the result. `broadcast`: to the result's shape.
    - `transpose`: reverses the two axes. `permute`: axis i of the result is axis `order[i]` of the operand.
    - `reshape`: to the result's shape, in row-major order. `join`: two tiles along a new last axis. `half`: element
      `axis` (0 or 1) of the last axis, which has two and is gone.
    - `cast`, `bitcast`, `convert_layout`: type and layout of the result.
    """

    dst: str
    op: ComputeOp
    args: tuple[Operand, ...]
    axis: int | None = None
    keep: bool = False
    reverse: bool = False
    order: tuple[int, ...] = ()


Via = Literal["auto", "direct", "cp_async", "tma", "buffer"]
REGISTER_WAYS: frozenset[Via] = frozenset(("direct", "buffer"))
"""What is left of `via` after expansion: accesses between registers and memory, by pointers or by buffer (AMD)."""


@dataclass(frozen=True, slots=True)
class Load(Stmt):
    """`dst = view`. Elements past the edge of the tensor read as `other`; without `other` every element must be inside.

    After expansion `via` is one of `REGISTER_WAYS`: a load into registers.
    """

    dst: str
    view: View
    other: float | None = None
    via: Via = "auto"


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """`view = src` for the elements inside the tensor; those past its edge are dropped. Explicit: `REGISTER_WAYS`."""

    view: View
    src: str
    via: Via = "auto"


@dataclass(frozen=True, slots=True)
class Mma(Stmt):
    """`dst = a @ b + acc`: a is (M, K), b is (K, N), acc is (M, N); types as `tilewright.matrix` has them.

    `auto` is the policy form; `mma_v2` (sm_80 and up) and `mfma` (AMD) are instructions of a warp on register operands.
    `precision` is for f32 operands: `tf32` allows that they are rounded to it, `ieee` does not.
    """

    dst: str
    a: str
    b: str
    acc: str
    instr: Literal["auto", "mma_v2", "mfma"] = "auto"
    precision: Literal["", "tf32", "ieee"] = ""


@dataclass(frozen=True, slots=True)
class Tiles(Stmt):
    """Policy: run `body` once for each tile of a grid of `counts` tiles, distributed over programs in `order`."""

    vars: tuple[str, ...]
    counts: tuple[Expr, ...]
    order: Order
    persistent: bool
    body: Block


@dataclass(frozen=True, slots=True)
class Programs(Stmt):
    """The grid: run `body` for each `var` in [0, count).

    Not persistent: `count` programs are launched and each takes the `var` of its number. Persistent: as many programs
    as fit the device (at most `count`) are launched, and program p takes var = p, p + programs, p + 2*programs, ….
    """

    var: str
    count: Expr
    persistent: bool
    body: Block


@dataclass(frozen=True, slots=True)
class Pipeline(Stmt):
    """Policy: `for var in range(lo, hi, step)` whose loads run ahead through `stages` stages of shared memory.

    `split`: one role loads (TMA), another computes (wgmma). `single`: every warp issues cp.async and computes (mma_v2),
    and `order` says which comes first in an iteration: loads for a later one, or what the iteration computes.
    `consumers` (split): how many roles compute, each its part of the rows, from the same stages. `turns`: one after the
    other issues its products.
    """

    var: str
    lo: Expr
    hi: Expr
    step: int
    stages: int
    roles: Literal["split", "single"]
    body: Block
    order: Literal["load", "compute"] = "load"
    consumers: int = 1
    turns: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a warp-specialized kernel. `registers` is the budget of a thread; None: what is left over."""

    name: str
    warps: int
    registers: int | None
    body: Block
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Roles(Stmt):
    """Roles that run at the same time, each on warps of its own. The first has the kernel's `warps`."""

    roles: tuple[Role, ...]


@dataclass(frozen=True)
class Kernel:
    """One kernel instance (all compile-time arguments fixed), policy or explicit.

    `params` are its tensors; `sizes` the problem sizes, then the integer scalar arguments.
    """

    name: str
    target: str
    warps: int
    params: tuple[Param, ...]
    consts: tuple[ConstParam, ...]
    sizes: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    body: Block
    types: Mapping[str, Type]
    span: Span = field(default=NO_SPAN, compare=False)
    registers: int | None = None
    """Most registers of a thread, of a kernel without roles; None: what the compiler thinks best."""
    contracts: tuple[Contract, ...] = ()
    scalars: tuple[ScalarParam, ...] = ()
    element_types: tuple[TypeParam, ...] = ()

    @property
    def arguments(self) -> tuple[Param | ScalarParam, ...]:
        """What a launch takes, in order."""
        found: list[Param | ScalarParam] = list(self.params)
        for scalar in sorted(self.scalars, key=lambda s: s.position):
            found.insert(scalar.position, scalar)
        return tuple(found)

    @property
    def integers(self) -> frozenset[str]:
        """Names of the integer scalar arguments, which may be negative."""
        return frozenset(s.name for s in self.scalars if not s.dtype.is_float)

    @property
    def pitches(self) -> frozenset[str]:
        """Sizes that are strides only, and extents of no tensor."""
        extents = {e.name for p in self.params for s in p.type.shape for e in walk_expr(s) if isinstance(e, Size)}
        return frozenset(self.sizes) - extents - self.integers

    def param(self, name: str) -> Param:
        """The tensor argument of that name. Raises KeyError."""
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(name)

    def const_values(self) -> dict[str, int]:
        """Values of the compile-time arguments."""
        return {c.name: c.value for c in self.consts}

    def with_body(self, body: Block, types: Mapping[str, Type] | None = None) -> Kernel:
        """The same kernel with another body and, if given, other types."""
        return replace(self, body=body, types=self.types if types is None else types)


POLICY_NODES = (Tiles, Pipeline)


def children(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement, in source order."""
    match stmt:
        case For(body=body) | While(body=body) | Tiles(body=body) | Programs(body=body) | Pipeline(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case Roles(roles=roles):
            return tuple(r.body for r in roles)
        case _:
            return ()


_WITH_BLOCKS = (For, While, Tiles, Programs, Pipeline, If, Roles)


def walk(block: Block) -> Iterator[Stmt]:
    """Every statement of a block and of the blocks inside it, in source order."""
    todo = [iter(block)]
    while todo:
        for stmt in todo[-1]:
            yield stmt
            if isinstance(stmt, _WITH_BLOCKS):
                todo += (iter(inner) for inner in reversed(children(stmt)))
                break
        else:
            todo.pop()


def rewrite(block: Block, change: Callable[[Stmt], Block | None]) -> Block:
    """A copy of `block` with statements replaced, innermost first.

    `change` gets each statement, its inner blocks already rewritten, and returns its replacement, or None to keep it.
    """
    out: list[Stmt] = []
    for stmt in block:
        match stmt:
            case For() | While() | Tiles() | Programs() | Pipeline():
                stmt = replace(stmt, body=rewrite(stmt.body, change))
            case If():
                stmt = replace(stmt, then=rewrite(stmt.then, change), orelse=rewrite(stmt.orelse, change))
            case Roles():
                stmt = replace(stmt, roles=tuple(replace(r, body=rewrite(r.body, change)) for r in stmt.roles))
            case _:
                pass
        new = change(stmt)
        out.extend((stmt,) if new is None else new)
    return tuple(out)


def is_explicit(kernel: Kernel) -> bool:
    """True when no policy statement is left: what interpreter, verifier and lowering take."""
    for stmt in walk(kernel.body):
        if isinstance(stmt, POLICY_NODES):
            return False
        if isinstance(stmt, Load | Store) and stmt.via not in REGISTER_WAYS:
            return False
        if isinstance(stmt, Gather) and stmt.via != "direct":
            return False
        if isinstance(stmt, Mma) and stmt.instr == "auto":
            return False
    return True


@cache
def operand_names(kind: type[Stmt]) -> tuple[str, ...]:
    """Names of a statement's own fields, without inner blocks, place and note."""
    own = ("span", "note", "body", "then", "orelse", "roles", "turn", "counted")
    return tuple(f.name for f in fields(kind) if f.name not in own)


def operands(stmt: Stmt) -> Iterator[object]:
    """The values of a statement's own fields (not of inner blocks), flattened one level."""
    for name in operand_names(type(stmt)):
        value = getattr(stmt, name)
        if isinstance(value, tuple):
            yield from value  # pyright: ignore[reportUnknownVariableType]
        else:
            yield value


__all__ = [
    "AllocBarrier",
    "AllocShared",
    "AllocTensor",
    "Assign",
    "Assumption",
    "Atomic",
    "BarRef",
    "BarrierArrive",
    "BarrierExpect",
    "BarrierWait",
    "Block",
    "BufRef",
    "ColumnMajor",
    "Compute",
    "ComputeOp",
    "ConstParam",
    "TypeParam",
    "Contract",
    "CpAsync",
    "CpCommit",
    "CpGather",
    "CpWait",
    "ELEMENTWISE",
    "ExpectTags",
    "Expr",
    "FenceAsync",
    "For",
    "Gather",
    "Grouped",
    "If",
    "Kernel",
    "Load",
    "Mma",
    "Operand",
    "Order",
    "POLICY_NODES",
    "Param",
    "Pipeline",
    "Programs",
    "REDUCTIONS",
    "REGISTER_WAYS",
    "Role",
    "Roles",
    "RowMajor",
    "ORDERS",
    "SCANS",
    "ScalarParam",
    "Scatter",
    "SharedLoad",
    "SharedStore",
    "Stmt",
    "Store",
    "Sync",
    "Tcgen05",
    "Tcgen05Commit",
    "Tag",
    "TagUse",
    "TensorLoad",
    "TileRef",
    "Tiles",
    "TmaLoad",
    "TmaStore",
    "TmaStoreWait",
    "Via",
    "View",
    "Wgmma",
    "WgmmaWait",
    "While",
    "Xcd",
    "children",
    "is_explicit",
    "operand_names",
    "operands",
    "rewrite",
    "walk",
    "xcd_number",
]
