"""Global tensors with write counts, and shared memory that knows what each element holds and who still uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.dtypes import DType
from tilewright.interpret.numeric import STORAGE, Array, decode, encode, poison, to_dtype
from tilewright.interpret.schedule import Action
from tilewright.interpret.tags import Axis, Covered, Tag, turned
from tilewright.ir.types import SharedType, TensorMemoryType

Counts = npt.NDArray[np.int32]
Region = tuple[slice, ...]
"""A box of a tile, one slice a dimension; `()` is the whole tile."""


_UPDATES: Mapping[str, np.ufunc] = {"add": np.add, "max": np.maximum, "min": np.minimum}


def overlap(a: Region, b: Region) -> bool:
    """Whether two boxes of one tile share elements."""
    return all(x.start < y.stop and y.start < x.stop for x, y in zip(a, b, strict=False))


def first_true(mask: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Coordinates of the first True element in row-major order; the mask must have one."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


@dataclass(eq=False, slots=True)
class Tensor:
    """A tensor argument.

    `given` is that of its parameter. `counts` says how often each element was written, `writer` by which program first
    (-1: none), `updater` which program updated it atomically last, `rewritten` names the first element that was written
    again, and the programs of the first and the second write; `sums` holds the contractions of what was added at each
    origin, in runs with tags.
    """

    name: str
    dtype: DType
    array: Array
    labels: tuple[str | None, ...]
    given: str = ""
    counts: Counts | None = None
    writer: Counts | None = None
    updater: Counts | None = None
    rewritten: tuple[tuple[int, ...], int, int] | None = None
    sums: dict[tuple[int, ...], list[Mapping[str, Covered]]] = field(
        default_factory=dict[tuple[int, ...], "list[Mapping[str, Covered]]"]
    )

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents in elements."""
        return self.array.shape

    def not_indexed(self, origin: Sequence[int], lead: int) -> str:
        """What is wrong with the indices that fix the first `lead` dimensions of a view, or ''."""
        for axis, (at, extent) in enumerate(zip(origin[:lead], self.extents, strict=False)):
            if not 0 <= at < extent:
                return f"index {at} of dimension {axis} of {self.name} does not exist: its extent is {extent}"
        return ""

    def outside(self, origin: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
        """The first element of the tile at `origin` that is not in the tensor, or None if all are."""
        for axis, (at, size, extent) in enumerate(zip(origin, shape, self.extents, strict=True)):
            if at < 0 or at + size > extent:
                return tuple(o if i != axis else (at if at < 0 else max(at, extent)) for i, o in enumerate(origin))
        return None

    def read(self, origin: Sequence[int], shape: Sequence[int], fill: float) -> Array:
        """A copy of the tile at `origin`; `fill` where it lies outside."""
        inside, target = self._clip(origin, shape)
        part = decode(self.array[inside], self.dtype)
        if part.shape == tuple(shape):
            return part
        result = np.full(shape, to_dtype(np.asarray(fill), self.dtype), STORAGE[self.dtype.name])
        result[target] = part
        return result

    def write(self, origin: Sequence[int], values: Array, program: int) -> None:
        """Store the elements of a tile at `origin` that lie inside, and count them."""
        inside, source = self._clip(origin, values.shape)
        self.array[inside] = encode(values[source], self.array, self.dtype)
        if self.counts is None or self.writer is None:
            self.counts = np.zeros(self.extents, np.int32)
            self.writer = np.full(self.extents, -1, np.int32)
        counts, writer = self.counts[inside], self.writer[inside]
        self._meets(inside, counts > 0, writer, program)
        if self.updater is not None:
            self._meets(inside, self.updater[inside] >= 0, self.updater[inside], program)
        counts += 1
        writer[writer < 0] = program

    def _meets(self, inside: Region, mask: npt.NDArray[np.bool_], writer: Counts, program: int) -> None:
        """Note the first element of `mask`, which is written again."""
        if self.rewritten is None and mask.any():
            at = first_true(mask)
            self.rewritten = (tuple(a + s.start for a, s in zip(at, inside, strict=True)), int(writer[at]), program)

    def update(self, origin: Sequence[int], values: Array, op: str, mask: Array | None, program: int) -> None:
        """Add, or take the maximum or minimum, element by element; not those outside or where `mask` is false."""
        inside, source = self._clip(origin, values.shape)
        if self.updater is None:
            self.updater = np.full(self.extents, -1, np.int32)
        if self.counts is not None and self.writer is not None:
            self._meets(inside, self.counts[inside] > 0, self.writer[inside], program)
        self.updater[inside] = program
        old = decode(self.array[inside], self.dtype)
        with np.errstate(all="ignore"):
            new = to_dtype(np.asarray(_UPDATES[op](old, values[source])), self.dtype)
        if mask is not None:
            new = np.where(mask[source], new, old)
        self.array[inside] = encode(new, self.array, self.dtype)

    def update_cells(self, cells: tuple[npt.NDArray[np.int64], ...], values: Array, op: str, program: int) -> None:
        """As `update`, for single elements, of which several may be the same; those one after the other."""
        if self.updater is None:
            self.updater = np.full(self.extents, -1, np.int32)
        if self.counts is not None and self.writer is not None and self.rewritten is None:
            written = self.counts[cells] > 0
            if written.any():
                at = tuple(int(i[int(np.argmax(written))]) for i in cells)
                self.rewritten = (at, int(self.writer[at]), program)
        self.updater[cells] = program
        flat = np.ravel_multi_index(cells, self.extents) if cells[0].size else np.zeros(0, np.int64)
        left = np.arange(flat.size)
        while left.size:
            _, first = np.unique(flat[left], return_index=True)
            now = left[first]
            here = tuple(i[now] for i in cells)
            with np.errstate(all="ignore"):
                new = to_dtype(np.asarray(_UPDATES[op](decode(self.array[here], self.dtype), values[now])), self.dtype)
            self.array[here] = encode(new, self.array, self.dtype)
            left = np.delete(left, first)

    def axes(self, origin: Sequence[int], decided: Sequence[frozenset[str]]) -> tuple[Axis | None, ...]:
        """Provenance of a tile at `origin`; None along dimensions whose extent is no problem size.

        `decided` holds for each dimension the tensors whose elements decide the origin.
        """
        named = zip(self.labels, origin, self.extents, decided, strict=True)
        return tuple(None if label is None else Axis(label, at, extent, data) for label, at, extent, data in named)

    def _clip(self, origin: Sequence[int], shape: Sequence[int]) -> tuple[Region, Region]:
        inside: list[slice] = []
        within: list[slice] = []
        for at, size, extent in zip(origin, shape, self.extents, strict=True):
            lo, hi = min(max(at, 0), extent), max(min(at + size, extent), 0)
            hi = max(lo, hi)
            inside.append(slice(lo, hi))
            within.append(slice(lo - at, hi - at) if hi > lo else slice(0, 0))
        return tuple(inside), tuple(within)


@dataclass(eq=False, slots=True)
class Use:
    """A pending access to part of a stage: reads that have not happened yet, or a write that has not completed."""

    region: Region
    action: Action


@dataclass(eq=False)
class Stage:
    """One tile of shared memory.

    `version` numbers, per element, the statement execution that wrote it: 0 was never written. Different numbers in one
    read mean that it mixes two tiles. `unfenced` marks elements written through the generic proxy whose write the
    asynchronous proxy may not see yet. `tag` is that of the last tile that was sent here, complete or not: until it is,
    `version` refuses reads.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Array
    version: npt.NDArray[np.int32]
    unfenced: npt.NDArray[np.bool_]
    tag: Tag | None = None
    any_unfenced: bool = False
    readers: list[Use] = field(default_factory=list[Use])
    writers: list[Use] = field(default_factory=list[Use])
    accesses: list[Any] = field(default_factory=list[Any])

    @property
    def whole(self) -> Region:
        """The box of all elements."""
        return tuple(slice(0, n) for n in self.shape)

    def seen(self, transposed: bool) -> tuple[Array, Tag | None]:
        """What the stage holds, and its tag; the transposed view of both if asked for."""
        if not transposed:
            return self.data, self.tag
        return self.data.T, None if self.tag is None else turned(self.tag)

    def busy(self, uses: list[Use], region: Region) -> Use | None:
        """A use of an element of `region` that is still pending."""
        uses[:] = [u for u in uses if not u.action.done]
        return next((u for u in uses if overlap(u.region, region)), None)

    def spoil(self, region: Region) -> None:
        """Fill with poison what a write in flight may change at any moment."""
        self.data[region] = poison(self.dtype)
        self.version[region] = 0

    def put(self, region: Region, values: Array, version: int, *, generic: bool) -> None:
        """Complete a write."""
        self.data[region] = values
        self.version[region] = version
        if generic or self.any_unfenced:
            self.unfenced[region] = generic
            self.any_unfenced = True

    def fenced(self, region: Region, version: int) -> None:
        """The write `version` is now visible to the asynchronous proxy."""
        here = self.unfenced[region]
        here[self.version[region] == version] = False


def new_stages(name: str, shared: SharedType | TensorMemoryType) -> list[Stage]:
    """The stages of a buffer in shared or tensor memory, poisoned."""
    return [
        Stage(
            f"{name}[{i}]" if shared.ring else name,
            shared.dtype,
            shared.shape,
            np.full(shared.shape, poison(shared.dtype), STORAGE[shared.dtype.name]),
            np.zeros(shared.shape, np.int32),
            np.zeros(shared.shape, np.bool_),
        )
        for i in range(shared.stages)
    ]
