"""Which contractions a stored value must have been through, read off the statements without executing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.ir import nodes as ir
from tilewright.ir.shapes import reshaped_axes
from tilewright_analysis.async_ import code as c

# For each axis the dimensions that it may be of; an axis without any has no coordinate, or one that a reshape lost.
Axes = tuple[frozenset[int], ...]
Dims = dict[tuple[str, int], frozenset[int]]
"""Dimensions by the name of a role and the number of one of its instructions."""
_NONE: frozenset[int] = frozenset()


def _instructions(role: c.RoleCode) -> Iterator[c.Instr]:
    for o in role.code:
        yield from (*o.then, *o.orelse) if isinstance(o, c.Choice) else (o,)


def _joined(one: Axes, other: Axes) -> Axes:
    """What an axis may be of when the value is one or the other."""
    if len(one) != len(other):
        return one if len(one) > len(other) else other
    return tuple(a | b for a, b in zip(one, other, strict=True))


def _elementwise(operands: Sequence[tuple[Axes, tuple[int, ...]]], shape: tuple[int, ...]) -> Axes:
    """Axes of operands that are broadcast along one only scale: they are not those of the result."""
    axes: Axes = (_NONE,) * len(shape)
    for dims, own in operands:
        shift = len(shape) - len(own)
        mine = [_NONE] * len(shape)
        for i, found in enumerate(dims):
            if own[i] == shape[i + shift]:
                mine[i + shift] = found
        axes = _joined(axes, tuple(mine))
    return axes


def _computed(op: ir.Compute, operands: Sequence[tuple[Axes, tuple[int, ...]]], shape: tuple[int, ...]) -> Axes:
    """The axes of the result of an operation. Of one without a rule nothing is known."""
    if not operands:
        return ()
    (first, old), axis = operands[0], op.axis or 0
    if op.op in ir.ELEMENTWISE or op.op == "broadcast":
        return _elementwise(operands, shape)
    if not first:
        return ()
    match op.op:
        case "transpose":
            return first[::-1]
        case "permute":
            return tuple(first[i] for i in op.order)
        case "expand_dims":
            return (*first[:axis], _NONE, *first[axis:])
        case "half":
            return first[:-1]
        case "join":
            return (*_elementwise(operands, shape[:-1]), _NONE)
        case "reshape":
            return tuple(_NONE if s.kept is None else first[s.kept] for s in reshaped_axes(old, shape)[0])
        case name if name in ir.REDUCTIONS:
            return (*first[:axis], *((_NONE,) if op.keep else ()), *first[axis + 1 :])
        case name if name == "convert_layout" or name in ir.SCANS:
            return first
        case name if name in ir.ORDERS:
            return (*first[:axis], _NONE, *first[axis + 1 :])
        case _:
            return ()


def _of_box(box: c.Box) -> Axes:
    return tuple(frozenset((d,)) for d in box.dims)


@dataclass(frozen=True, slots=True)
class Contractions:
    """`needs`: the dimensions that a stored value (also one in shared memory) is contracted over. `over`: those that a
    product of registers contracts. `inside`: those that its operands were contracted over before, by each of `over`.
    """

    needs: Dims = field(default_factory=dict[tuple[str, int], frozenset[int]])
    over: Dims = field(default_factory=dict[tuple[str, int], frozenset[int]])
    inside: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])


def contractions(program: c.Program) -> Contractions:
    """Which dimensions are contracted where.

    A fixpoint over names and buffers of all roles: the dimensions of axes come from views, a product contracts the last
    axis of its left operand, everything else passes its operands' contractions on.
    """
    axes: dict[str, Axes] = {}
    done: dict[str, frozenset[int]] = {}
    found = Contractions()
    needs = found.needs
    changed = True

    def put(name: str, dims: Axes, contracted: frozenset[int]) -> None:
        nonlocal changed
        before = axes.get(name, ()), done.get(name, _NONE)
        axes[name], done[name] = _joined(before[0], dims), before[1] | contracted
        changed = changed or before != (axes[name], done[name])

    def stage(place: c.Place) -> Axes:
        held = axes.get(place.buffer.name, ())
        return held[::-1] if place.transposed else held

    def product(left: Axes, right: Axes) -> tuple[Axes, frozenset[int]]:
        left, right = left or (_NONE, _NONE), right or (_NONE, _NONE)
        return (left[0], right[-1]), left[-1] | right[0]

    while changed:
        changed = False
        for role in program.roles:
            # Tiles belong to their role, buffers to all.
            def tile(name: str, role: c.RoleCode = role) -> str:
                return f"{role.name}:{name}"

            for o in _instructions(role):
                match o:
                    case c.CpAsync(box=box, dst=dst, spread=c.Spread() as spread):
                        put(dst.buffer.name, _spread(box, spread), _NONE)
                    case c.Gather(box=box, dst=name, spread=spread):
                        put(tile(name), _spread(box, spread), _NONE)
                    case c.TmaLoad(box=box, dst=dst) | c.CpAsync(box=box, dst=dst):
                        put(dst.buffer.name, _of_box(box), _NONE)
                    case c.Load(box=box, dst=name):
                        put(tile(name), _of_box(box), _NONE)
                    case c.SharedLoad(dst=name, src=src):
                        put(tile(name), stage(src), done.get(src.buffer.name, _NONE))
                    case c.SharedStore(dst=dst, src=name):
                        contracted = done.get(tile(name), _NONE)
                        put(dst.buffer.name, axes.get(tile(name), ()), contracted)
                        needs[role.name, o.number] = contracted
                    case c.Wgmma() | c.Mma():
                        left = axes.get(tile(o.a), ()) if isinstance(o.a, str) else stage(o.a)
                        right = axes.get(tile(o.b), ()) if isinstance(o.b, str) else stage(o.b)
                        dims, over = product(left, right)
                        put(tile(o.dst), dims, over | done.get(tile(o.acc), _NONE))
                        found.over[role.name, o.number] = over
                        for d in over:
                            before = (done.get(tile(n), _NONE) for n in (o.a, o.b) if isinstance(n, str))
                            found.inside[d] = found.inside.get(d, _NONE).union(*before)
                    case c.TensorProduct(a=a, b=b, acc=acc):
                        put(acc.buffer.name, *product(stage(a), stage(b)))
                    case c.TensorLoad(dst=name, src=src):
                        put(tile(name), axes.get(src.buffer.name, ()), done.get(src.buffer.name, _NONE))
                    case c.Compute(writes=name, reads=reads) if name is not None:
                        operands = [(axes.get(tile(r), ()), own) for r, own in zip(reads, o.shapes, strict=True)]
                        contracted = frozenset(d for r in reads for d in done.get(tile(r), _NONE))
                        put(tile(name), _computed(o.op, operands, o.shape), contracted)
                    case c.TmaStore(src=src):
                        needs[role.name, o.number] = done.get(src.buffer.name, _NONE)
                    case c.Store(src=name):
                        needs[role.name, o.number] = done.get(tile(name), _NONE)
                    case _:
                        pass
    return found


def _spread(box: c.Box, spread: c.Spread) -> Axes:
    """Those of a gathered tile."""
    known = dict(zip(spread.lines, box.dims, strict=True))
    return tuple(frozenset((known[a],)) if a in known else _NONE for a in range(len(spread.by_table)))
