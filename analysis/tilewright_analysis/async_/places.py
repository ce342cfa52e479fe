"""What instructions touch: boxes of tensors, stages of buffers, slots of barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import nodes as ir

Scalar = Callable[[list[int]], int]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A coordinate of a tile: opaque part `symbol`, `value` of the slots, and `slopes` by oracle for the normal form.

    `outer`: the opaque part differs from one program iteration to the next. `lost`: the statement, if the place moves
    with a loop in a way that is not followed, and the rest says nothing.
    """

    symbol: int
    outer: bool
    value: Scalar
    slopes: tuple[tuple[int, int], ...]
    text: str
    lost: ir.Stmt | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """A view of a tensor: extent (number of the dimension), coordinate and length of each axis of the tile.

    `fixed` has the dimensions that an index fixes, with the index. `links`: where elements of index tensors decide a
    coordinate, the dimensions of those tensors with the places of the elements. `moving`: the dimensions in which data
    decides anew in each iteration where the tile lies, with the symbol of the table that does, whatever the iteration.
    """

    tensor: str
    dims: tuple[int, ...]
    origin: tuple[Coordinate, ...]
    shape: tuple[int, ...]
    fixed: tuple[tuple[int, Coordinate], ...] = ()
    links: tuple[tuple[int, Coordinate], ...] = ()
    moving: tuple[tuple[int, int, str], ...] = ()

    @property
    def coordinates(self) -> tuple[tuple[int, Coordinate], ...]:
        """Dimension and coordinate of every dimension of the tensor."""
        return (*self.fixed, *zip(self.dims, self.origin, strict=True))


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer in shared memory, or in `tensor` memory: `stages` tiles of `shape`, `bytes` each."""

    name: str
    stages: int
    shape: tuple[int, ...]
    bytes: int
    stmt: ir.Stmt
    tensor: bool = False


@dataclass(frozen=True, slots=True)
class Barrier:
    """A barrier array; `first` is the number of its first slot among all slots of the kernel."""

    name: str
    slots: int
    arrivals: int
    first: int
    stmt: ir.Stmt


@dataclass(frozen=True, slots=True)
class Place:
    """A stage of a buffer, or its transposed view."""

    buffer: Buffer
    stage: Scalar
    text: str
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tile as it is seen."""
        return self.buffer.shape[::-1] if self.transposed else self.buffer.shape


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot of a barrier array."""

    barrier: Barrier
    index: Scalar
    text: str
