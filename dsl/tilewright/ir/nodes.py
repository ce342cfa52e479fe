"""Tile IR: structured statements over named values.

One IR serves both levels of the language. *Policy* statements (`Tiles`, `Pipeline`, `Load`/`Store` with `via`, `Mma` with
`instr="auto"`) say what moves; *explicit* statements (rings, barriers, roles, asynchronous copies, wgmma) say how.
`tilewright.expand.expand` turns the first into the second; interpreter, verifier and lowering take explicit IR only.

Invariants
- Names are unique in a kernel in this sense: a name has one type for the whole body (`Kernel.types`). Names may be
  assigned again (accumulators, ring counters); roles share no register tiles or scalars, only shared memory and barriers.
- Names that begin with `%` are temporaries of nested expressions: assigned once, used once, by a later statement.
- Every statement has a span relative to the kernel's first byte. What an expansion adds carries the span of the policy
  statement it comes from.
- `Expr` operands are scalars, equal in all threads. Compile-time values are already folded into `Int`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from tilewright.ir.expr import Expr
from tilewright.ir.types import GlobalType, Type
from tilewright.source import NO_SPAN, Span

# ------------------------------------------------------------------------------------------------ operands


@dataclass(frozen=True, slots=True)
class View:
    """A rectangular tile of a global tensor: elements `origin .. origin + shape` (in elements, one entry a dimension).

    A view may reach over the edge of its tensor; what a load finds there and what a store does there is the
    statement's business. `span` is the place of the `.tile(…)` call.
    """

    tensor: str
    origin: tuple[Expr, ...]
    shape: tuple[int, ...]
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class BufRef:
    """One stage of a shared buffer; `stage` is `Int(0)` for a buffer that is no ring."""

    buffer: str
    stage: Expr


@dataclass(frozen=True, slots=True)
class BarRef:
    """One slot of a barrier array; `slot` is `Int(0)` for a single barrier."""

    barrier: str
    slot: Expr


@dataclass(frozen=True, slots=True)
class TileRef:
    """A register tile by name."""

    name: str


Scalar = Expr
# A tile computation takes tiles, uniform scalars and floating-point literals (Python float).
Operand = TileRef | Expr | float

# ------------------------------------------------------------------------------------------------ statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Stmt:
    """Base of all statements. `span`: where it stands. `note`: why an expansion put it there, empty for written code."""

    span: Span = field(default=NO_SPAN, compare=False)
    note: str = field(default="", compare=False)


Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """`dst = value` for a scalar."""

    dst: str
    value: Expr


ComputeOp = Literal[
    "full", "arange", "copy", "cast",
    "neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "floor",
    "add", "sub", "mul", "div", "maximum", "minimum", "where",
    "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not",
    "sum", "max", "min",
    "expand_dims", "broadcast", "transpose", "convert_layout",
]  # fmt: skip
ELEMENTWISE: frozenset[str] = frozenset((
    "copy", "cast", "neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid",
    "floor", "add", "sub", "mul", "div", "maximum", "minimum", "where", "lt", "le", "gt", "ge", "eq", "ne", "and", "or",
    "not",
))  # fmt: skip
REDUCTIONS: frozenset[str] = frozenset(("sum", "max", "min"))


@dataclass(frozen=True, slots=True)
class Compute(Stmt):
    """A pure operation on register tiles; the result type is `Kernel.types[dst]`.

    - `full`: one operand, the value. `arange`: no operand; elements 0 .. n-1 along the only axis.
    - elementwise operations broadcast by NumPy's rules (a size-1 axis stretches; ranks may differ).
    - `sum`/`max`/`min`: `axis` is reduced away, unless `keep` is set: then it stays with extent 1.
    - `expand_dims`: `axis` is where the new extent-1 axis stands in the result. `broadcast`: to the result's shape.
    - `transpose`: reverses the two axes. `cast`, `convert_layout`: type and layout of the result.
    """

    dst: str
    op: ComputeOp
    args: tuple[Operand, ...]
    axis: int | None = None
    keep: bool = False


Via = Literal["auto", "direct", "cp_async", "tma"]


@dataclass(frozen=True, slots=True)
class Load(Stmt):
    """`dst = view`. Elements past the edge of the tensor read as `other`; without `other` every element must be inside.

    After expansion only `via="direct"` remains: a load into registers.
    """

    dst: str
    view: View
    other: float | None = None
    via: Via = "auto"


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """`view = src` for the elements inside the tensor; elements past its edge are dropped. Explicit: `via="direct"`."""

    view: View
    src: str
    via: Via = "auto"


@dataclass(frozen=True, slots=True)
class Mma(Stmt):
    """`dst = a @ b + acc`: a is (M, K), b is (K, N), acc is (M, N) and float32.

    `auto` is the policy form; `mma_v2` the warp-level instruction on register operands (sm_80 and up).
    """

    dst: str
    a: str
    b: str
    acc: str
    instr: Literal["auto", "mma_v2"] = "auto"


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(lo, hi, step)`: `step` is positive; the trip count may be zero. `static` loops are unrolled."""

    var: str
    lo: Expr
    hi: Expr
    step: int
    body: Block


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """A branch on a scalar, so uniform in the program."""

    cond: Expr
    then: Block
    orelse: Block = ()


@dataclass(frozen=True, slots=True)
class Grouped:
    """Grid order: groups of `rows` tile rows are walked column by column (better L2 reuse), the last group may be lower."""

    rows: int


@dataclass(frozen=True, slots=True)
class RowMajor:
    """Grid order: the last coordinate runs fastest."""


Order = Grouped | RowMajor


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

    `split`: one role loads (TMA), another computes (wgmma). `single`: every warp issues cp.async and computes (mma_v2).
    """

    var: str
    lo: Expr
    hi: Expr
    step: int
    stages: int
    roles: Literal["split", "single"]
    body: Block


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


@dataclass(frozen=True, slots=True)
class AllocShared(Stmt):
    """Shared memory `dst`, of type `Kernel.types[dst]` (SharedType); contents undefined."""

    dst: str


@dataclass(frozen=True, slots=True)
class AllocBarrier(Stmt):
    """Barriers `dst`, of type `Kernel.types[dst]` (BarrierType), initialized, in phase 0, and visible to the
    asynchronous proxy when the roles start (the lowering emits the fence)."""

    dst: str


@dataclass(frozen=True, slots=True)
class BarrierWait(Stmt):
    """Block until the phase of parity `parity` (0 or 1) of the slot has ended. All threads of the role wait."""

    bar: BarRef
    parity: Expr


@dataclass(frozen=True, slots=True)
class BarrierArrive(Stmt):
    """One elected thread of the role arrives, after a role-wide sync that the back end adds (`Sync(auto=True)`)."""

    bar: BarRef


@dataclass(frozen=True, slots=True)
class BarrierExpect(Stmt):
    """One elected thread arrives and announces `bytes` that asynchronous copies will deliver in this phase."""

    bar: BarRef
    bytes: Expr


@dataclass(frozen=True, slots=True)
class TmaLoad(Stmt):
    """Bulk copy of `view` into a shared stage by the asynchronous proxy; zeros past the edge of the tensor.

    Always delivers the bytes of the whole box to `bar`, edge or not. Issued by one elected thread.
    """

    view: View
    dst: BufRef
    bar: BarRef


@dataclass(frozen=True, slots=True)
class TmaStore(Stmt):
    """Bulk copy of a shared stage to `view`, committed as one group of the issuing thread; clipped at the edge."""

    view: View
    src: BufRef


@dataclass(frozen=True, slots=True)
class TmaStoreWait(Stmt):
    """Block until at most `pending` bulk-store groups of this role still read shared memory."""

    pending: int


@dataclass(frozen=True, slots=True)
class CpAsync(Stmt):
    """Asynchronous copy (generic proxy) of `view` into a shared stage, each thread its part; zeros past the edge."""

    view: View
    dst: BufRef


@dataclass(frozen=True, slots=True)
class CpCommit(Stmt):
    """Close the group of the cp.async copies issued since the last commit (a group may be empty)."""


@dataclass(frozen=True, slots=True)
class CpWait(Stmt):
    """Block until at most `pending` cp.async groups of the *own* thread are in flight; a `Sync` shows them to others."""

    pending: int


@dataclass(frozen=True, slots=True)
class SharedLoad(Stmt):
    """`dst = src`: a shared stage into registers (generic proxy)."""

    dst: str
    src: BufRef


@dataclass(frozen=True, slots=True)
class SharedStore(Stmt):
    """`dst = src`: a register tile into a shared stage (generic proxy)."""

    dst: BufRef
    src: str


@dataclass(frozen=True, slots=True)
class Wgmma(Stmt):
    """Issue `dst = a @ b + acc` asynchronously, as one group; operands are read from shared memory by the async proxy.

    `dst` is usable after a `WgmmaWait` that covers the group. sm_90a; M a multiple of 64 a warpgroup, N of 8, at most 256.
    """

    dst: str
    a: BufRef
    b: BufRef
    acc: str


@dataclass(frozen=True, slots=True)
class WgmmaWait(Stmt):
    """Block until at most `pending` wgmma groups of the warpgroup are in flight."""

    pending: int


@dataclass(frozen=True, slots=True)
class FenceAsync(Stmt):
    """Make this thread's generic-proxy writes to shared memory visible to the asynchronous proxy."""


@dataclass(frozen=True, slots=True)
class Sync(Stmt):
    """Barrier over all threads of the role (of the program, outside of roles).

    `auto`: added by the back end by itself; it is explicit here so that the verifier sees what runs. The printer leaves
    it out and the front end puts it back (`tilewright.ir.backend_sync`).
    """

    auto: bool = False


# ------------------------------------------------------------------------------------------------ kernel


@dataclass(frozen=True, slots=True)
class Param:
    """A tensor argument."""

    name: str
    type: GlobalType
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class ConstParam:
    """A compile-time argument: its value in this instance, its default, and the tuning choices (the default alone if none)."""

    name: str
    value: int
    default: int
    choices: tuple[int, ...]
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A fact about sizes that the launch checks and the verifier may use; `expr` is a condition over sizes."""

    expr: Expr
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Kernel:
    """One kernel instance (all compile-time arguments fixed), policy or explicit."""

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
        case For(body=body) | Tiles(body=body) | Programs(body=body) | Pipeline(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case Roles(roles=roles):
            return tuple(r.body for r in roles)
        case _:
            return ()


def walk(block: Block) -> Iterator[Stmt]:
    """Every statement of a block and of the blocks inside it, in source order."""
    for stmt in block:
        yield stmt
        for inner in children(stmt):
            yield from walk(inner)


def rewrite(block: Block, change: Callable[[Stmt], Block | None]) -> Block:
    """A copy of `block` with statements replaced, innermost first.

    `change` gets each statement, its inner blocks already rewritten, and returns its replacement, or None to keep it.
    """
    out: list[Stmt] = []
    for stmt in block:
        match stmt:
            case For() | Tiles() | Programs() | Pipeline():
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
        if isinstance(stmt, Load | Store) and stmt.via != "direct":
            return False
        if isinstance(stmt, Mma) and stmt.instr == "auto":
            return False
    return True


def operands(stmt: Stmt) -> Iterator[object]:
    """The values of a statement's own fields (not of inner blocks), flattened one level."""
    for f in fields(stmt):
        value = getattr(stmt, f.name)
        if f.name in ("span", "note", "body", "then", "orelse", "roles"):
            continue
        if isinstance(value, tuple):
            yield from value  # pyright: ignore[reportUnknownVariableType]
        else:
            yield value
