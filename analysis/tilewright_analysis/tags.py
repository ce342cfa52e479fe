"""Coordinate tags of register tiles in words, for hovers.

Every element of a tensor carries its coordinates; this follows them through loads, products, elementwise operations and
reductions, statement by statement, in the kernel as written. It only describes: what the verifier decides about tags
comes from `async_`, on the explicit kernel and for all iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.tagging import shown
from tilewright.ir.types import TileType

_INDICES = "ijkl"
_TRANSPARENT = ir.ELEMENTWISE | frozenset(("convert_layout", "broadcast"))


@dataclass(frozen=True, slots=True)
class AxisTag:
    """What the elements along one axis of a tile carry: coordinate `origin` + index of the dimension `size`."""

    size: ex.Expr
    origin: ex.Expr


@dataclass(frozen=True, slots=True)
class TileTags:
    """Tags of a tile: one entry an axis, None where nothing is known; dimensions summed away; where tags were lost.

    `own` are those that `tw.tag` gives, in words.
    """

    axes: tuple[AxisTag | None, ...]
    contracted: tuple[ex.Expr, ...] = ()
    lost: str = ""
    own: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{ex.show(tag.size)} = {ex.show(ex.add(tag.origin, ex.Var(_INDICES[axis])))}"
            for axis, tag in enumerate(self.axes)
            if tag is not None
        ]
        parts += self.own
        index = ", ".join(_INDICES[: len(self.axes)])
        text = f"element [{index}] carries {', '.join(parts)}" if parts else "carries no coordinates"
        if self.contracted:
            text += f", contracted over {', '.join(ex.show(c) for c in self.contracted)}"
        return text + (f" ({self.lost})" if self.lost else "")


def coordinate_tags(kernel: ir.Kernel) -> Mapping[str, TileTags]:
    """Tags of the register tiles of a kernel, policy or explicit, by name; tiles without any are left out."""
    walker = _Walker(kernel)
    # Twice: accumulators carry, at their first use in a loop, what the loop gives them.
    for _ in range(2):
        walker.block(kernel.body)
    return {n: t for n, t in walker.tags.items() if (any(t.axes) or t.own) and not n.startswith("%")}


class _Walker:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.tags: dict[str, TileTags] = {}
        self.stages: dict[str, TileTags] = {}

    def block(self, block: ir.Block) -> None:
        for stmt in ir.walk(block):
            match stmt:
                case ir.Load(dst=dst, view=view):
                    self.tags[dst] = self.of_view(view)
                case ir.TmaLoad(view=view, dst=ref) | ir.CpAsync(view=view, dst=ref):
                    self.stages[ref.buffer] = self.of_view(view)
                case ir.SharedLoad(dst=dst, src=ref):
                    self.tags[dst] = self.stage(ref) or self.nothing(dst)
                case ir.Mma(dst=dst, a=a, b=b):
                    self.tags[dst] = self.product(dst, self.tags.get(a), self.tags.get(b))
                case ir.Wgmma(dst=dst, a=a, b=b):
                    left = self.tags.get(a.name) if isinstance(a, ir.TileRef) else self.stage(a)
                    self.tags[dst] = self.product(dst, left, self.stage(b))
                case ir.Compute():
                    self.compute(stmt)
                case ir.Tag(of=str(name)):
                    held = self.tags.get(name, self.nothing(name))
                    named = replace(stmt, names=tuple(_INDICES[: len(held.axes)]))
                    own = tuple(f"{tag} = {shown(named, value)}" for tag, value in stmt.tags)
                    self.tags[name] = replace(held, own=tuple(dict.fromkeys((*held.own, *own))))
                case _:
                    pass

    def stage(self, ref: ir.BufRef) -> TileTags | None:
        held = self.stages.get(ref.buffer)
        return replace(held, axes=held.axes[::-1]) if held is not None and ref.transposed else held

    def of_view(self, view: ir.View) -> TileTags:
        sizes = self.kernel.param(view.tensor).type.shape
        tags = [AxisTag(s, o) if not isinstance(s, ex.Int) else None for s, o in zip(sizes, view.origin, strict=True)]
        rank = len(getattr(view, "tile_shape", view.shape))
        return TileTags(tuple(tags[len(tags) - rank :]))

    def nothing(self, name: str, lost: str = "") -> TileTags:
        type_ = self.kernel.types.get(name)
        return TileTags((None,) * (len(type_.shape) if isinstance(type_, TileType) else 0), (), lost)

    def product(self, dst: str, a: TileTags | None, b: TileTags | None) -> TileTags:
        if a is None or b is None or len(a.axes) != 2 or len(b.axes) != 2:
            return self.nothing(dst)
        inner = a.axes[1]
        contracted = (inner.size,) if inner is not None and inner == b.axes[0] else ()
        lost = "" if inner == b.axes[0] else "the operands disagree along the contraction"
        return TileTags((a.axes[0], b.axes[1]), contracted, lost)

    def compute(self, stmt: ir.Compute) -> None:
        operands = [self.tags.get(a.name, self.nothing(a.name)) for a in stmt.args if isinstance(a, ir.TileRef)]
        if stmt.op in _TRANSPARENT and operands:
            self.tags[stmt.dst] = self.elementwise(stmt.dst, operands)
        elif stmt.op in ir.REDUCTIONS and len(operands) == 1 and stmt.axis is not None:
            (source,) = operands
            gone = source.axes[stmt.axis] if stmt.axis < len(source.axes) else None
            kept = (*source.axes[: stmt.axis], *((None,) if stmt.keep else ()), *source.axes[stmt.axis + 1 :])
            self.tags[stmt.dst] = TileTags(kept, source.contracted + ((gone.size,) if gone is not None else ()))
        elif stmt.op == "expand_dims" and len(operands) == 1 and stmt.axis is not None:
            (source,) = operands
            axes = (*source.axes[: stmt.axis], None, *source.axes[stmt.axis :])
            self.tags[stmt.dst] = TileTags(axes, source.contracted)
        elif stmt.op == "transpose" and len(operands) == 1:
            self.tags[stmt.dst] = TileTags(operands[0].axes[::-1], operands[0].contracted)
        elif stmt.op == "full" and stmt.dst in self.tags:
            pass  # An accumulator's start agrees with whatever is added to it.
        else:
            self.tags[stmt.dst] = self.nothing(stmt.dst)

    def elementwise(self, dst: str, operands: list[TileTags]) -> TileTags:
        rank = max(len(o.axes) for o in operands)
        padded = [(None,) * (rank - len(o.axes)) + o.axes for o in operands]
        axes: list[AxisTag | None] = []
        lost = ""
        for axis in range(rank):
            found = {p[axis] for p in padded if p[axis] is not None}
            if len(found) > 1:
                both = " and ".join(sorted(ex.show(t.origin) for t in found if t is not None))
                lost = f"lost along axis {axis}, where operands at {both} meet"
            axes.append(found.pop() if len(found) == 1 else None)
        contracted = tuple(dict.fromkeys(c for o in operands for c in o.contracted))
        return TileTags(tuple(axes), contracted, lost)
