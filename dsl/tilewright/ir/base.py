"""Operands of Tile IR statements, and the base of all statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.expr import Expr
from tilewright.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class View:
    """A rectangular tile of a global tensor: elements `origin .. origin + shape` (in elements, one entry a dimension).

    The first `lead` dimensions are fixed by an index, as in `A[b].tile(…)`: their extent here is 1 and the tile in
    registers or shared memory does not have them (`tile_shape`). Along the others a view may reach over the edge of its
    tensor; what a load finds there and what a store does there is the statement's business. A fixed index must be
    inside. `span` is the place of the `.tile(…)` call.
    """

    tensor: str
    origin: tuple[Expr, ...]
    shape: tuple[int, ...]
    lead: int = 0
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of the tile: without the fixed dimensions."""
        return self.shape[self.lead :]


@dataclass(frozen=True, slots=True)
class BufRef:
    """One stage of a buffer in shared or tensor memory; `stage` is `Int(0)` for a buffer that is no ring.

    `transposed`: seen with its two axes exchanged, as `ring[i].T`; for what reads a stage only (`ir.stages`).
    """

    buffer: str
    stage: Expr
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class BarRef:
    """One slot of a barrier array; `slot` is `Int(0)` for a single barrier."""

    barrier: str
    slot: Expr


@dataclass(frozen=True, slots=True)
class TileRef:
    """A register tile by name."""

    name: str


# A tile computation takes tiles, uniform scalars and floating-point literals (Python float).
Operand = TileRef | Expr | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stmt:
    """Base of all statements. `span`: where it stands. `note`: why an expansion put it there; empty if written."""

    span: Span = field(default=NO_SPAN, compare=False)
    note: str = field(default="", compare=False)


Block = tuple[Stmt, ...]
