"""Tags of the tiles that statements produce, and the checks that need them; all of it only in runs with `tags`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tilewright.interpret import named_tags, tags
from tilewright.interpret.errors import Kind, Violation
from tilewright.interpret.machine import Process, Tile
from tilewright.interpret.memory import Tensor
from tilewright.interpret.tags import Tag, TagError
from tilewright.ir import nodes as ir
from tilewright.ir.nodes import ELEMENTWISE, SCANS
from tilewright.ir.shapes import reshaped_axes
from tilewright.source import Span

Decided = tuple[frozenset[str], ...]
"""For each dimension of a view the tensors whose elements decide where it starts (`Operands.decided`)."""


@dataclass(frozen=True, slots=True)
class Course:
    """Where single elements of a tensor go.

    `dims` has for each axis of their tile the dimension that an index counts along it, None for others; `fixed` are
    dimensions with one index for the whole tile. `decided` holds for each dimension the tensors whose elements decide
    where it starts.
    """

    dims: tuple[int | None, ...]
    fixed: tuple[int, ...]
    decided: Decided


def loaded(
    process: Process, tensor: Tensor, origin: tuple[int, ...], shape: tuple[int, ...], lead: int, decided: Decided
) -> Tag | None:
    """The tag of a tile of `shape` read at `origin`, whose first `lead` coordinates are fixed."""
    if not process.machine.schedule.tags:
        return None
    tag = tags.view(tensor.axes(origin, decided), tensor.name, origin[:lead])
    tracked = process.machine.tracked
    return replace(tag, named=named_tags.of_view(tensor, origin, shape, lead, tracked)) if tracked else tag


def product(process: Process, a: Tag | None, b: Tag | None, acc: Tag | None, depth: int) -> Tag | None:
    """The tag of `a @ b + acc`. Raises Violation of kind alignment, completeness or placement."""
    if a is None or b is None or acc is None:
        return None
    try:
        tag = tags.matrix_product(a, b, acc, depth)
    except TagError as error:
        raise _violation(process, error) from None
    named = (a.named, b.named, acc.named)
    return replace(tag, named=named_tags.product(*named)) if any(named) else tag


def stored(
    process: Process,
    tag: Tag | None,
    tensor: Tensor,
    origin: tuple[int, ...],
    shape: tuple[int, ...],
    lead: int,
    decided: Decided,
    *,
    added: bool = False,
) -> None:
    """Check a store of a tile of `shape` at `origin`. Raises Violation of kind placement or completeness.

    What is `added` may be a part of a contraction; `summed` checks the parts of all programs together.
    """
    if tag is None or all(o >= e for o, e in zip(origin, tensor.extents, strict=True)):
        return
    if added and tag.covered:
        tensor.sums.setdefault(origin, []).append(tag.covered)
        tag = replace(tag, covered={})
    try:
        index = tuple(zip(origin, tensor.extents, strict=True))[:lead]
        tags.check_store(tag, tensor.axes(origin, decided), lead, index, shape)
    except TagError as error:
        raise _violation(process, error) from None


def scattered(
    process: Process, tag: Tag, tensor: Tensor, origin: tuple[int, ...], course: Course, *, added: bool = False
) -> None:
    """Check a store of single elements, the first at `origin`. Raises Violation of kind placement or completeness."""
    found = tensor.axes(origin, course.decided)
    target = (*(found[d] for d in course.fixed), *(None if d is None else found[d] for d in course.dims))
    try:
        tags.check_store(
            replace(tag, covered={}) if added else tag,
            target,
            len(course.fixed),
            tuple((origin[d], tensor.extents[d]) for d in course.fixed),
        )
    except TagError as error:
        raise _violation(process, error) from None


def summed(tensor: Tensor, span: Span) -> None:
    """Check that what all programs added at each place covers its contractions once. Raises Violation."""
    for origin, parts in tensor.sums.items():
        try:
            tags.check_sum(parts)
        except TagError as error:
            message = f"in what is added at {tensor.name}{list(origin)}, {error.message}"
            raise Violation(cast(Kind, error.kind), message, span=span, element=origin, values=error.values) from None


def computed(process: Process, stmt: ir.Compute, inputs: list[Tile], shape: tuple[int, ...]) -> Tag | None:
    """The tag of the result of a register computation."""
    if not process.machine.schedule.tags:
        return None
    tag = _coordinates(stmt, inputs, shape)
    if not process.machine.tracked:
        return tag
    named = [(t.tag.named if t.tag is not None else named_tags.NOTHING, t.data.shape) for t in inputs]
    return replace(tag, named=named_tags.computed(stmt, named, shape))


def _coordinates(stmt: ir.Compute, inputs: list[Tile], shape: tuple[int, ...]) -> Tag:
    known = [(t.tag, t.data.shape) for t in inputs if t.tag is not None]
    if stmt.op in ELEMENTWISE or stmt.op in SCANS or stmt.op in ("broadcast", "convert_layout"):
        return tags.combine(known, shape, addition=stmt.op in ("add", "sub"))
    if not known:
        return Tag((None,) * len(shape))
    tag, old = known[0]
    axes, fixed = list(tag.axes), tag.fixed
    match stmt.op:
        case "transpose":
            axes.reverse()
        case "expand_dims":
            axes.insert(stmt.axis or 0, None)
        case "permute":
            axes = [axes[i] for i in stmt.order]
        case "join":
            pair = tags.combine(known, shape[:-1], addition=False)
            return Tag((*pair.axes, None), pair.covered, pair.fixed, pair.slices)
        case "half":
            fixed = tags.fixed_by(tag, [(axes.pop(), stmt.axis or 0)])
        case "reshape":
            sources, gone = reshaped_axes(old, shape)
            fixed = tags.fixed_by(tag, [(axes[i], 0) for i in gone])
            axes = [None if s.kept is None else axes[s.kept] for s in sources]
        case _:
            if stmt.axis is None:
                axes = [None] * len(shape)
            elif stmt.keep:
                axes[stmt.axis % len(old)] = None
            else:
                del axes[stmt.axis % len(old)]
    return Tag(tuple(axes), tag.covered, fixed, tag.slices)


def _violation(process: Process, error: TagError) -> Violation:
    return process.violation(cast(Kind, error.kind), error.message, values=error.values)
