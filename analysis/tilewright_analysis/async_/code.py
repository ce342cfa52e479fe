"""The flat code that the machine executes: instructions with compiled scalars, loops, oracles and buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.source import NO_SPAN
from tilewright_analysis.async_.forms import Form, Trip
from tilewright_analysis.async_.model import Unsupported
from tilewright_analysis.async_.places import Barrier as Barrier
from tilewright_analysis.async_.places import Box as Box
from tilewright_analysis.async_.places import Buffer as Buffer
from tilewright_analysis.async_.places import Coordinate as Coordinate
from tilewright_analysis.async_.places import Place as Place
from tilewright_analysis.async_.places import Scalar as Scalar
from tilewright_analysis.async_.places import Slot as Slot

if TYPE_CHECKING:
    from tilewright_analysis.async_.turns import Turn

PRIMITIVE: dict[str, str] = {
    "+": "({} + {})", "-": "({} - {})", "*": "({} * {})", "//": "({} // {})", "%": "({} % {})", "^": "({} ^ {})",
    "min": "min({}, {})", "max": "max({}, {})", "cdiv": "(-(-{} // {}))", "<": "({} < {})", "<=": "({} <= {})",
    "==": "({} == {})", "!=": "({} != {})", "and": "({} and {})", "or": "({} or {})",
}  # fmt: skip


@lru_cache(maxsize=4096)
def _compiled(source: str) -> Scalar:
    return cast(Scalar, eval(f"lambda e: {source}", {"min": min, "max": max}))


def compile_scalar(expr: ex.Expr, slots: Mapping[str, int]) -> Scalar:
    """A function from the slots of a process to the value of `expr`, whose names are all in `slots`."""

    def go(e: ex.Expr) -> str:
        match e:
            case ex.Int(value):
                return f"({value})"
            case ex.Size(name) | ex.Var(name):
                return f"e[{slots[name]}]"
            case ex.Not(arg):
                return f"(not {go(arg)})"
            case ex.Item():
                raise Unsupported(f"{ex.show(e)} has no number here", NO_SPAN)
            case ex.Bin(op, lhs, rhs):
                return PRIMITIVE[op].format(go(lhs), go(rhs))

    return _compiled(go(expr))


@dataclass(frozen=True, slots=True)
class Oracle:
    """An unknown trip count, shared by all roles: one value for each iteration of the `outer` loop, if it has one.

    `occurrence` tells apart loops over the same count that follow each other.
    """

    trip: Trip
    outer: int | None
    occurrence: int
    minimum: float
    maximum: float
    is_programs: bool = False


@dataclass(slots=True, eq=False)
class Loop:
    """A loop of one role. `oracle` is None when the trip count is a function of the slots (`bound`).

    `var` has the value `first + step * position`; `first` is None when it depends on sizes. `begin` is its first value
    as the number of a symbol and a constant (-1: something that changes).
    """

    var: str
    slot: int
    level: int
    oracle: int | None
    offset: int
    bound: Scalar | None
    first: int | None = None
    begin: tuple[int, int] = (0, 0)
    step: int = 1
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """What an axis of the tile in a stage of `buffer` may start at, in the names of the role that reads it."""

    buffer: str
    axis: int
    expr: ex.Expr
    at: Coordinate


@dataclass(slots=True, eq=False, kw_only=True)
class Instr:
    """Base of all instructions.

    `uses` are slots read, `reads` and `writes` register tiles; `elect`: one thread only. `guesses`: see `origins`.
    """

    stmt: ir.Stmt
    number: int = 0
    elect: bool = False
    uses: frozenset[int] = frozenset()
    reads: tuple[str, ...] = ()
    writes: str | None = None
    sets: int | None = None
    guesses: tuple[Guess, ...] = ()


@dataclass(slots=True, eq=False)
class SetScalar(Instr):
    """Assign a slot; `step`: what it adds to the slot itself, if that is all it does."""

    slot: int
    value: Scalar
    step: int | None = None


@dataclass(slots=True, eq=False)
class LoopHead(Instr):
    """Enter the body or leave."""

    loop: Loop


@dataclass(slots=True, eq=False)
class LoopBack(Instr):
    """Go to the next iteration."""

    loop: Loop


@dataclass(slots=True, eq=False)
class Branch(Instr):
    """Go on if `value` (an `oracle` comparison `value < N` if given) is true, else to `target`."""

    value: Scalar
    oracle: int | None
    target: int = 0


@dataclass(slots=True, eq=False)
class Jump(Instr):
    """Go to `target`."""

    target: int = 0


@dataclass(slots=True, eq=False)
class Wait(Instr):
    """Wait for a phase."""

    bar: Slot
    parity: Scalar


@dataclass(slots=True, eq=False)
class Arrive(Instr):
    """Arrive once."""

    bar: Slot


@dataclass(slots=True, eq=False)
class Expect(Instr):
    """Arrive and announce bytes."""

    bar: Slot
    bytes: Scalar


@dataclass(slots=True, eq=False)
class TmaLoad(Instr):
    """Bulk copy to shared memory."""

    box: Box
    dst: Place
    bar: Slot


@dataclass(slots=True, eq=False)
class TmaStore(Instr):
    """Bulk copy from shared memory."""

    box: Box
    src: Place


@dataclass(slots=True, eq=False)
class StoreWait(Instr):
    """Wait for bulk stores."""

    pending: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How the axes of a gathered tile relate to a box: `lines` are the axes that the box has, in its order.

    `by_table` says for each axis of the tile whether elements of an index tensor decide where it goes, which is taken
    for what is meant. Of other axes nothing is known. `tables` are the index tiles with those elements, `numbered` the
    axes whose dimension is none of the tensor, but one that a mask gives the end of. `along` has, for each axis, the
    dimensions of the tensor whose index varies along it.
    """

    by_table: tuple[bool, ...]
    lines: tuple[int, ...]
    tables: tuple[str, ...] = ()
    numbered: frozenset[int] = frozenset()
    along: tuple[frozenset[int], ...] = ()


@dataclass(slots=True, eq=False)
class CpAsync(Instr):
    """Asynchronous copy by all threads; of single elements, with how their tile relates to the box."""

    box: Box
    dst: Place
    spread: Spread | None = None


@dataclass(slots=True, eq=False)
class CpCommit(Instr):
    """Close a group."""


@dataclass(slots=True, eq=False)
class CpWait(Instr):
    """Wait for groups."""

    pending: int


@dataclass(slots=True, eq=False)
class SharedLoad(Instr):
    """Shared memory to registers."""

    dst: str
    src: Place


@dataclass(slots=True, eq=False)
class SharedStore(Instr):
    """Registers to shared memory."""

    dst: Place
    src: str


@dataclass(slots=True, eq=False)
class Wgmma(Instr):
    """Asynchronous product of operands in shared memory, or of a register tile `a`; `split` warpgroups share the rows
    of a shared `a`.
    """

    dst: str
    a: Place | str
    b: Place
    acc: str
    split: bool


@dataclass(slots=True, eq=False)
class WgmmaWait(Instr):
    """Wait for products."""

    pending: int


@dataclass(slots=True, eq=False)
class TensorProduct(Instr):
    """Asynchronous product of shared operands into tensor memory, added to what is there if `accumulate`.

    `kind`: products of one kind into one accumulator execute in order.
    """

    acc: Place
    a: Place
    b: Place
    accumulate: bool
    kind: str


@dataclass(slots=True, eq=False)
class TensorCommit(Instr):
    """An arrival when all products of the thread so far are complete."""

    bar: Slot


@dataclass(slots=True, eq=False)
class TensorLoad(Instr):
    """Tensor memory to registers."""

    dst: str
    src: Place


@dataclass(slots=True, eq=False)
class Mma(Instr):
    """Product of register operands."""

    dst: str
    a: str
    b: str
    acc: str


@dataclass(slots=True, eq=False)
class Fence(Instr):
    """Proxy fence."""


@dataclass(slots=True, eq=False)
class RoleSync(Instr):
    """Barrier over the threads of the role."""


@dataclass(slots=True, eq=False)
class Compute(Instr):
    """Pure operation on register tiles."""

    op: ir.Compute
    shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Choice(Instr):
    """One of two sequences of computations on register tiles; which one, plays no part in what is followed."""

    then: tuple[Compute, ...]
    orelse: tuple[Compute, ...]


@dataclass(slots=True, eq=False)
class Load(Instr):
    """Global memory to registers."""

    dst: str
    box: Box


@dataclass(slots=True, eq=False)
class Gather(Instr):
    """Single elements of a tensor to registers."""

    dst: str
    box: Box
    spread: Spread


@dataclass(slots=True, eq=False)
class Store(Instr):
    """Registers to global memory; of single elements, with how their tile relates to the box."""

    box: Box
    src: str
    spread: Spread | None = None


@dataclass(slots=True, eq=False)
class RoleCode:
    """The code of one role, executed by `groups` processes (warpgroups, or one for fewer than four warps)."""

    name: str
    groups: int
    code: list[Instr]
    slots: dict[str, int]
    loops: list[Loop]
    # How a slot enters the normal form: None exactly, else (modulus, largest value that matters by itself).
    modes: list[tuple[int, int] | None] = field(default_factory=list[tuple[int, int] | None])
    live_slots: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    live_tiles: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    # Register operands of wgmma that get another value later, which must not be while a wgmma reads the one they have.
    reassigned: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])


@dataclass(slots=True, eq=False)
class Program:
    """An encoded kernel."""

    kernel: ir.Kernel
    roles: list[RoleCode]
    oracles: list[Oracle]
    symbols: list[Form]
    dims: list[Form]
    buffers: dict[str, Buffer]
    barriers: dict[str, Barrier]
    # For each oracle: the loops' oracles by whose position it is normalized; the oracles that count along the same
    # quantity, itself included; and the number up to which constants are compared with it.
    ties: list[frozenset[int]]
    families: list[tuple[int, ...]]
    limits: list[int]
    # (dimension, symbol) whose coordinates move differently in different statements, and the oracles they move with.
    mixed: frozenset[tuple[int, int]] = frozenset()
    movers: frozenset[int] = frozenset()
    # Register operands of wgmma that are another tile in another layout, with that tile: the registers are the same.
    same: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    # Names of the tags that are mentioned somewhere.
    tracked: frozenset[str] = frozenset()
    # Loops, by oracle, whose first tiles are read ahead of loops, and how many may be.
    ahead: Mapping[int, int] = field(default_factory=dict[int, int])
    # Rings that may be turned in a normal form.
    turns: tuple[Turn, ...] = ()
    # Words for dimensions that count the steps of a loop and are none of a tensor.
    steps: Mapping[int, str] = field(default_factory=dict[int, str])
