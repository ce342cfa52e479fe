"""Where the axes of a gathered tile go.

- Along an axis that elements of an index tensor decide, nothing is claimed: what they say is what is meant.
- Along an axis that one index counts, the tile lies in a dimension like a rectangular one.
- Where what a loop does to the indices is not linear, as for the taps of a convolution, the elements that an iteration
  takes are a *step*: element i of the counting axis has coordinate `length * iteration + i` in a dimension of its own,
  which all gathers with the same function of the iteration share. That the steps together take every element once is
  for `checks/tags/gathers.py`.
- Along another axis, where the mask compares a number that counts with where it ends, an element has the coordinate of
  that number, in the dimension that ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType
from tilewright.lines import Lines, lane, points_shape
from tilewright_analysis.async_ import forms
from tilewright_analysis.async_.forms import Form
from tilewright_analysis.async_.scalars import Scalars
from tilewright_analysis.async_.tables import Pattern
from tilewright_analysis.mixed_radix import upper_bounds

Copied = ir.Gather | ir.CpGather | ir.Scatter
_STEP = "~step"


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a tile that lies in the dimension of an extent, from `at` on; `step` says which steps it counts.

    `numbered`: the extent is that of a number which a mask compares with it, not of the tensor. `text`: the place as
    the kernel writes it, where it does.
    """

    extent: Form
    at: Form
    step: tuple[object, str] | None = None
    numbered: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Course:
    """The axes of a gathered tile that are known, by number, and the dimensions of the tensor that scalars fix.

    `along`: for each axis the extents of the dimensions whose index varies along it.
    """

    axes: dict[int, Axis]
    fixed: dict[int, ex.Expr]
    by_table: tuple[bool, ...]
    along: tuple[tuple[Form, ...], ...]


def course(scalars: Scalars, stmt: Copied) -> Course:
    """Where the axes of a gathered tile go, at the current place of a role."""
    kernel = scalars.t.kernel
    shape = points_shape(kernel, stmt)
    rank = len(shape)
    lines = scalars.t.lines
    tables = by_tables(kernel, lines, stmt)
    index = _forms(scalars, lines, stmt, rank)
    extents = tuple(forms.canonical(e, {}, scalars.t.facts) for e in kernel.param(stmt.tensor).type.shape)
    fixed = {d: i for d, i in enumerate(stmt.index) if isinstance(i, ex.Expr)}
    varying: dict[int, list[int]] = {axis: [] for axis in range(rank)}
    for d, form in enumerate(index):
        for axis in range(rank):
            if form is not None and lane(axis) in form.names():
                varying[axis].append(d)
    along = tuple(tuple(extents[d] for d in _varies(kernel, lines, stmt, index, axis, rank)) for axis in range(rank))
    counted = _single(stmt, index, shape, tables)
    for axis, dims in varying.items():
        form = index[dims[0]] if len(dims) == 1 and not tables[axis] else None
        start = _counts(form, axis) if form is not None else None
        if start is not None and not any(n.startswith("~") for n in start.names()):
            counted[axis] = dims[0], start
    slots = {n for form in index if form is not None for n in form.names() if n.startswith(("#", "$"))}
    steps = None if isinstance(stmt, ir.Scatter) else _step(scalars, stmt, index, slots)
    if steps is None and not _steady(index, slots, counted):
        return Course({}, {}, tables, along)
    axes: dict[int, Axis] = {}
    if steps is not None:
        pattern, number = steps
        steady = {d for d, form in enumerate(pattern.index) if form is not None and _STEP not in form.names()}
        fixed = {d: i for d, i in fixed.items() if d in steady}
        # The axis that is contracted counts the steps; a row that a step moves is the row that it is.
        contracted = scalars.t.contracted.get(id(stmt))
        if contracted in counted:
            assert contracted is not None
            dim, length = counted[contracted][0], shape[contracted]
            form = pattern.index[dim]
            assert form is not None
            step = (extents[dim], _counts(form, contracted), pattern.loop, pattern.trips)
            extent = forms.canonical(ex.mul(pattern.trips, ex.Int(length)), {}, scalars.t.facts)
            axes[contracted] = Axis(extent, forms.scale(number, length), (step, f"the step of {pattern.loop}"))
        counted = {a: at for a, at in counted.items() if a != contracted and at[0] in steady}
    for axis, (dim, start) in counted.items():
        at = stmt.index[dim]
        line = lines.of(at.name) if isinstance(at, ir.TileRef) else None
        axes[axis] = Axis(extents[dim], start, text="" if line is None else ex.show(line[1]))
    for axis, dims in varying.items():
        if axis in axes or tables[axis] or not dims:
            continue
        own = [(index[d], extents[d]) for d in dims]
        if (row := _row(scalars, stmt, own, rank, axis)) is not None:
            axes[axis] = row
    return Course(axes, fixed, tables, along)


def _varies(
    kernel: ir.Kernel, lines: Lines, stmt: Copied, index: Sequence[Form | None], axis: int, rank: int
) -> Iterator[int]:
    """The dimensions whose index varies along an axis, or may: it is not followed, and does not come from a table."""
    for d, (at, form) in enumerate(zip(stmt.index, index, strict=True)):
        if form is not None:
            if lane(axis) in form.names():
                yield d
        elif isinstance(at, ir.TileRef) and at.name not in lines.loaded:
            kind = kernel.types[at.name]
            assert isinstance(kind, TileType)
            own = axis - (rank - len(kind.shape))
            if own >= 0 and kind.shape[own] > 1:
                yield d


def _single(
    stmt: Copied, index: Sequence[Form | None], shape: tuple[int, ...], tables: tuple[bool, ...]
) -> dict[int, tuple[int, Form]]:
    """Axes of one element, with the dimension and the place of the index tile that is for them: in order, if as many
    index tiles have no coordinate in them.
    """
    axes = [axis for axis, extent in enumerate(shape) if extent == 1 and not tables[axis]]
    found = [
        (d, form) for d, form in enumerate(index)
        if form is not None and isinstance(stmt.index[d], ir.TileRef) and not any(map(_is_lane, form.names()))
    ]  # fmt: skip
    return dict(zip(axes, found, strict=True)) if len(axes) == len(found) else {}


def by_tables(kernel: ir.Kernel, lines: Lines, stmt: Copied) -> tuple[bool, ...]:
    """For each axis of the tile, whether an index that varies along it was loaded, or computed from what was."""
    shape = points_shape(kernel, stmt)
    axes = [False] * len(shape)
    for index in stmt.index:
        if isinstance(index, ir.TileRef) and index.name in lines.loaded:
            tile = kernel.types[index.name]
            assert isinstance(tile, TileType)
            for axis, extent in enumerate(tile.shape, len(shape) - len(tile.shape)):
                axes[axis] |= extent > 1 or shape[axis] == 1
    return tuple(axes)


def _forms(scalars: Scalars, lines: Lines, stmt: Copied, rank: int) -> tuple[Form | None, ...]:
    """Each index over sizes, positions in loops and the coordinates of the element; None where that is not known."""
    found: list[Form | None] = []
    for index in stmt.index:
        value = index if isinstance(index, ex.Expr) else None
        if isinstance(index, ir.TileRef):
            value = lines.elements(index.name, rank, stmt)
        found.append(None if value is None else scalars.form(value, stmt.span))
    return tuple(found)


def _counts(form: Form, axis: int) -> Form | None:
    """What a form counts from along an axis: the form without the coordinate, if it has that once, as it is."""
    own = ex.Var(lane(axis))
    rest = forms.add(form, forms.atom(own), -1)
    return rest if dict(form.terms).get(own) == 1 and lane(axis) not in rest.names() else None


def _known(form: Form | None) -> Form:
    assert form is not None
    return form


def _steady(index: Sequence[Form | None], slots: set[str], counted: dict[int, tuple[int, Form]]) -> bool:
    """Whether loops move the indices evenly, and those of counting axes only, but for scalars."""
    for d, form in enumerate(index):
        if form is None or not any(n in slots for n in form.names()):
            continue
        moving = [k for k, _ in form.terms if any(n in slots for n in ex.names(k))]
        plain = all(isinstance(k, ex.Var) and k.name in slots for k in moving)
        if not plain or not (any(d == at for at, _ in counted.values()) or not any(map(_is_lane, form.names()))):
            return False
    return True


def _is_lane(name: str) -> bool:
    return name.startswith("~")


def _step(
    scalars: Scalars, stmt: ir.Gather | ir.CpGather, index: tuple[Form | None, ...], slots: set[str]
) -> tuple[Pattern, Form] | None:
    """The pattern of a gather whose indices a loop does not move evenly, and the number of the iteration it is for."""
    t = scalars.t
    target = stmt.dst if isinstance(stmt, ir.Gather) else stmt.dst.buffer
    tables = tuple(ex.show(i) if isinstance(i, ex.Expr) else i.name for i, f in zip(stmt.index, index, strict=True)
                   if f is None and not isinstance(i, float | int))  # fmt: skip
    if not slots:
        # Ahead of a loop: one of the first iterations of a pattern that the loop goes on with.
        for pattern in t.known_patterns.get(target, ()):
            for number in range(t.stages(target)):
                if pattern.tables == tables and all(
                    (f is None) == (p is None) and (f is None or f == _at(scalars, _known(p), number))
                    for f, p in zip(index, pattern.index, strict=True)
                ):
                    return pattern, forms.constant(number)
        return None
    if len(slots) > 1 or not next(iter(slots)).startswith("#"):
        return None
    slot = next(iter(slots))
    loop = scalars.loop_of_slot[slot]
    if loop.oracle is None or loop.first != 0 or loop.step != 1:
        return None
    moved = [f for f in index if f is not None and slot in f.names()]
    uneven = any(
        any(slot in ex.names(k) and k != ex.Var(slot) for k, _ in f.terms) or any(map(_is_lane, _others(f, slot)))
        for f in moved
    )
    if not uneven:
        return None
    ahead = next(filter(None, (_ahead(f, slot) for f in moved)), 0)
    back = {slot: forms.add(forms.atom(ex.Var(_STEP)), forms.constant(-ahead))}
    pattern = Pattern(
        tuple(None if f is None else forms.canonical(forms.to_expr(f), back, t.facts) for f in index), tables, loop.var,
        t.oracles[loop.oracle].trip.expr,
    )  # fmt: skip
    t.patterns.setdefault(target, []).append(pattern)
    return pattern, forms.add(forms.atom(ex.Var(slot)), forms.constant(ahead))


def _others(form: Form, slot: str) -> Iterator[str]:
    """Names in the terms of a form that have the slot and more."""
    for key, _ in form.terms:
        if slot in ex.names(key) and key != ex.Var(slot):
            yield from ex.names(key)


def _at(scalars: Scalars, form: Form, number: int) -> Form:
    return forms.canonical(forms.to_expr(form), {_STEP: forms.constant(number)}, scalars.t.facts)


def _ahead(form: Form, slot: str) -> int:
    """The distance of the iteration that indices are for, as `i + 2` says it; 0 where nothing does."""
    for key, _ in form.terms:
        for e in ex.walk(key):
            match e:
                case ex.Bin("+", ex.Var(name), ex.Int(value)) | ex.Bin("+", ex.Int(value), ex.Var(name)) if (
                    name == slot
                ):
                    return value
                case _:
                    pass
    return 0


def _row(scalars: Scalars, stmt: Copied, own: Sequence[tuple[Form | None, Form]], rank: int, axis: int) -> Axis | None:
    """The axis as the dimension that the mask says a number ends in which counts along it, if there is one such number.

    Whatever indices are computed from it, an element of the axis stands for its number. That an index is in its own
    dimension (`own`) says nothing of the kind.
    """
    mask = scalars.t.lines.elements(stmt.mask.name, rank, stmt) if stmt.mask is not None else None
    found: dict[tuple[Form, Form], None] = {}
    for below, end in upper_bounds(mask) if mask is not None else ():
        number, bound = scalars.form(below, stmt.span), scalars.form(end, stmt.span)
        start = _counts(number, axis)
        if (number, bound) in own or start is None or any(n.startswith(("#", "$", "~")) for n in start.names()):
            continue
        if not any(n.startswith(("#", "$", "~", "%")) for n in bound.names()):
            found[bound, start] = None
    return Axis(*next(iter(found)), numbered=True) if len(found) == 1 else None
