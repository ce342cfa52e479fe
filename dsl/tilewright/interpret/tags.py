"""Provenance beside the numbers: where the elements of a tile come from, and what has been contracted into them.

A tile is a rectangle, so one `Axis` per dimension says it all: element i along it lies at coordinate `start + i` of the
dimension called `label` (the size it was declared with). None: the elements have no coordinate along that dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Axis:
    """Coordinates along one dimension of a tile: `start + i` of the dimension `label`, which has `extent` elements.

    `data` names the tensors whose elements decide `start`. Where they differ, as in a permutation or a gather, elements
    belong elsewhere than where they come from.
    """

    label: str
    start: int
    extent: int
    data: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.label} = {self.start}…"


LOST = Axis("", 0, 0, frozenset(("",)))
"""An axis on which operands had different coordinates: none is known, and another operand does not bring one back."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The half-open coordinate ranges of a dimension that were contracted, sorted and merged where they touch."""

    extent: int
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return " + ".join(f"[{lo}, {hi})" for lo, hi in self.ranges) or "nothing"


Fixed = Mapping[str, frozenset[int] | None]


@dataclass(frozen=True, slots=True)
class Tag:
    """Provenance of a tile: its axes, and what each contracted dimension has contributed.

    `fixed` holds, by label, the coordinates of dimensions that an index fixes (`A[b]`): more than one when a product
    combined tiles of different ones, None when they were lost. `slices` are the indexed tensors (`A[2]`) whose elements
    are in the tile: products of different ones, as of the taps of a convolution, are different contractions. `named`
    are the tags that `tilewright.interpret.named_tags` keeps.
    """

    axes: tuple[Axis | None, ...]
    covered: Mapping[str, Covered] = field(default_factory=dict[str, Covered])
    fixed: Fixed = field(default_factory=dict[str, "frozenset[int] | None"])
    slices: frozenset[str] = frozenset()
    named: Mapping[str, npt.NDArray[Any] | None] = field(default_factory=dict[str, "npt.NDArray[Any] | None"])


class TagError(Exception):
    """A matrix instruction or a store breaks an invariant: `kind` is alignment, completeness or placement."""

    def __init__(self, kind: str, message: str, values: Mapping[str, str]) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.values = values


def view(axes: tuple[Axis | None, ...], tensor: str = "", index: Sequence[int] = ()) -> Tag:
    """The tag of a tile of `tensor` whose first dimensions are fixed by `index`; `axes` has an entry a dimension."""
    lead = len(index)
    slices = frozenset((f"{tensor}[{', '.join(map(str, index))}]",)) if lead else frozenset[str]()
    return Tag(axes[lead:], fixed=_fixed(axes[:lead]), slices=slices)


def _fixed(axes: tuple[Axis | None, ...]) -> dict[str, frozenset[int] | None]:
    found: dict[str, frozenset[int] | None] = {}
    for axis in axes:
        if axis is not None and not axis.data:
            found[axis.label] = frozenset((axis.start,)) | (found.get(axis.label) or frozenset())
    return found


def fixed_by(tag: Tag, axes: Sequence[tuple[Axis | None, int]]) -> Fixed:
    """`tag.fixed` with axes of which one element was taken: (axis, index of the element)."""
    chosen = tuple(None if axis is None else replace(axis, start=axis.start + index) for axis, index in axes)
    return _united(tag.fixed, _fixed(chosen))


def turned(tag: Tag) -> Tag:
    """The tag of a tile with its two axes exchanged."""
    named = {name: values if values is None else values.T for name, values in tag.named.items()}
    return replace(tag, axes=tag.axes[::-1], named=named)


def matrix_product(a: Tag, b: Tag, acc: Tag, depth: int) -> Tag:
    """The tag of `a @ b + acc` for a contraction over `depth` elements.

    Raises TagError if contraction coordinates differ, if some were contracted before, or if rows or columns differ from
    those of the accumulator.
    """
    covered, slices = dict(acc.covered), a.slices | b.slices
    left, right = a.axes[1], b.axes[0]
    if left is not None and right is not None and LOST not in (left, right):
        if (left.label, left.start) != (right.label, right.start):
            raise TagError(
                "alignment",
                f"the operands do not meet along the contraction: columns of the first start at {left.label} = "
                f"{left.start}, rows of the second at {right.label} = {right.start}",
                {"first operand": f"{left.label} = {left.start}", "second operand": f"{right.label} = {right.start}"},
            )
        name = left.label + (f" ({', '.join(sorted(slices))})" if slices else "")
        before = covered.get(name, Covered(left.extent, ()))
        covered[name] = _extend(before, name, left.start, min(left.start + depth, left.extent))
    axes = (_same(acc.axes[0], a.axes[0], "rows"), _same(acc.axes[1], b.axes[1], "columns"))
    return Tag(axes, covered, _agreeing(acc.fixed, _united(a.fixed, b.fixed)), slices)


def check_store(
    tag: Tag,
    target: tuple[Axis | None, ...],
    lead: int = 0,
    index: Sequence[tuple[int, int]] = (),
    shape: Sequence[int] = (),
) -> None:
    """Raise TagError if elements do not land on their own coordinates, or a contraction is not covered exactly once.

    The first `lead` entries of `target` are fixed; `index` holds their (index, extent). A contraction may also be the
    part of its dimension that such an index numbers. `shape` is that of the tile: along an axis of one element that a
    reshape made, the coordinate is the one that was fixed.
    """
    bare = [t for axis, t, extent in zip(tag.axes, target[lead:], shape, strict=False) if axis is None and extent == 1]
    allowed = _fixed((*target[:lead], *bare))
    for label, wanted in allowed.items():
        wrong = sorted((tag.fixed.get(label) or frozenset()) - (wanted or frozenset()))
        if wrong:
            there = ", ".join(map(str, sorted(wanted or ())))
            raise TagError(
                "placement",
                f"the tile comes from {label} = {wrong[0]}, but is stored at {label} = {there}",
                {"tile": f"{label} = {wrong[0]}", "tensor": f"{label} = {there}"},
            )
    for i, (have, want) in enumerate(zip(tag.axes, target[lead:], strict=True)):
        if have is None or want is None or have.data != want.data:
            continue
        if (have.label, have.start) != (want.label, want.start):
            raise TagError(
                "placement",
                f"axis {i} of the tile carries {have.label} = {have.start}…, but is stored at "
                f"{want.label} = {want.start}…",
                {"tile": f"{have.label} = {have.start}", "tensor": f"{want.label} = {want.start}"},
            )
    for label, covered in tag.covered.items():
        whole = covered.ranges == ((0, covered.extent),) or _in_slices(tag.covered, label)
        if not whole and not any(_is_part(covered, i, n) for i, n in index):
            raise TagError(
                "completeness",
                f"the contraction over {label} covers {covered}, expected [0, {covered.extent})",
                {"covered": str(covered), "expected": f"[0, {covered.extent})"},
            )


def check_sum(parts: Sequence[Mapping[str, Covered]]) -> None:
    """Raise TagError if the contractions of several summands do not cover their dimensions exactly once together."""
    for label in {label for part in parts for label in part}:
        found = [part[label] for part in parts if label in part]
        ranges = sorted(r for covered in found for r in covered.ranges if r[0] < r[1])
        extent = found[0].extent
        at = 0
        for low, high in ranges:
            if low != at:
                break
            at = high
        else:
            if at == extent:
                continue
        text = " and ".join(f"[{low}, {high})" for low, high in ranges) or "nothing"
        raise TagError(
            "completeness",
            f"the contractions over {label} cover {text}, expected [0, {extent}) once",
            {"covered": text, "expected": f"[0, {extent})"},
        )


def _in_slices(covered: Mapping[str, Covered], label: str) -> bool:
    """True when a contraction goes from index to index of an operand, as of a scale for each group, and covers all."""
    dim = label.partition(" (")[0]
    parts = [c for name, c in covered.items() if name.startswith(f"{dim} (")]
    ranges = sorted(r for c in parts for r in c.ranges)
    ends = [0, *(high for _, high in ranges)]
    return len(parts) > 1 and [low for low, _ in ranges] == ends[:-1] and ends[-1] == parts[0].extent


def _is_part(covered: Covered, number: int, parts: int) -> bool:
    """True when the contraction is part `number` of `parts` parts of one length that tile the dimension."""
    if not covered.ranges:
        return number > 0
    (low, high), *more = covered.ranges
    if more or (low > 0) != (number > 0):
        return False
    length = low // number if number else high
    return number * length == low and high == min(low + length, covered.extent) and parts * length >= covered.extent


def _united(one: Fixed, other: Fixed) -> Fixed:
    """The coordinates of both operands of a product."""
    result = dict(one)
    for label, found in other.items():
        mine = result.get(label, frozenset())
        result[label] = None if mine is None or found is None else mine | found
    return result


def _agreeing(one: Fixed, other: Fixed) -> Fixed:
    """Coordinates in which the summands agree; lost where they do not, as in a sum over batches."""
    result = dict(one)
    for label, found in other.items():
        result[label] = found if label not in result or result[label] == found else None
    return result


def combine(tags: list[tuple[Tag, tuple[int, ...]]], shape: tuple[int, ...], *, addition: bool) -> Tag:
    """The tag of an elementwise result: axes on which all operands that have one agree, broadcast axes left out.

    Where operands disagree the tag is dropped. A sum of disjoint parts of a contraction (split accumulators) covers
    their union; `acc + acc * c` covers what `acc` does.
    """
    axes: list[Axis | None] = []
    for dim in range(len(shape)):
        seen: set[Axis] = set()
        for tag, own in tags:
            at = dim - (len(shape) - len(own))
            if at >= 0 and own[at] == shape[dim] and (axis := tag.axes[at]) is not None:
                seen.add(axis)
        axes.append(LOST if len(seen) > 1 else seen.pop() if seen else None)
    covered: dict[str, Covered] = {}
    fixed: Fixed = {}
    for tag, _ in tags:
        fixed = _agreeing(fixed, tag.fixed)
        for label, ranges in tag.covered.items():
            before = covered.setdefault(label, ranges)
            if addition and before != ranges and (union := _disjoint_union(before, ranges)) is not None:
                covered[label] = union
    return Tag(tuple(axes), covered, fixed, frozenset[str]().union(*(tag.slices for tag, _ in tags)))


def _same(acc: Axis | None, new: Axis | None, what: str) -> Axis | None:
    if LOST in (acc, new):
        return LOST
    if acc is not None and new is not None and acc != new:
        raise TagError(
            "placement",
            f"{what} of the accumulator carry {acc.label} = {acc.start}…, those of the operand "
            f"{new.label} = {new.start}…",
            {"accumulator": str(acc), "operand": str(new)},
        )
    return new if new is not None else acc


def _disjoint_union(one: Covered, other: Covered) -> Covered | None:
    try:
        for lo, hi in other.ranges:
            one = _extend(one, "", lo, hi)
    except TagError:
        return None
    return one


def _extend(covered: Covered, label: str, lo: int, hi: int) -> Covered:
    """`covered` with [lo, hi) added. Raises TagError for an overlap."""
    if hi <= lo:
        return covered
    merged: list[tuple[int, int]] = []
    for a, b in sorted((*covered.ranges, (lo, hi))):
        if merged and a < merged[-1][1]:
            raise TagError(
                "completeness",
                f"{label} = [{max(a, lo)}, {min(b, hi)}) is contracted twice; so far {covered}, now [{lo}, {hi})",
                {"covered": str(covered), "added": f"[{lo}, {hi})"},
            )
        if merged and a == merged[-1][1]:
            merged[-1] = (merged[-1][0], b)
        else:
            merged.append((a, b))
    return Covered(covered.extent, tuple(merged))
