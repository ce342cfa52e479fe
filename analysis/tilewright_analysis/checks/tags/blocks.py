"""TW101 for scales of blocks: what stands for block g of a dimension meets elements of that block.

`tw.assume(tw.cdiv(K, 128) == G)` says that an index of G stands for 128 elements of K, and so does an extent
`tw.cdiv(K, 128)`. Where a tile at index g is multiplied by one whose elements lie along K, or were contracted over a
part of it, that part must lie in block g. Another block may be meant, so it is open then, not refuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from ...context import KernelContext
from ...plain import plain
from ...report import Obligation
from ..outcome import proved, unknown
from .reduced import Reduced, Tiles, Value
from .stretches import Stretch

CODE = "TW101"
_MOST_SHOWN = 40
_SCALING = frozenset(("mul", "div", "sub"))
Blocks = dict[ex.Expr, tuple[ex.Expr, int]]
"""Dimensions whose indices stand for blocks, by their extents: of which dimension, and how many elements each."""


def check(context: KernelContext) -> Iterator[Obligation]:
    """One obligation for each place where blocks meet the elements that they are of."""
    blocks = _blocks(context.kernel)
    if not blocks or not any(isinstance(s, ir.Compute) and s.op in _SCALING for s in ir.walk(context.kernel.body)):
        return
    other = KernelContext(plain(context.written), context.decider, written=context.written, source=context.source)
    found = _Scaled(other, blocks=blocks)
    found.run()
    seen: set[object] = set()
    for meeting in found.meetings:
        key = (meeting.stmt.span, meeting.block, meeting.part)
        if key not in seen:
            seen.add(key)
            yield _decided(other, meeting, blocks)


def _blocks(kernel: ir.Kernel) -> Blocks:
    extents = dict.fromkeys(e for p in kernel.params for e in p.type.shape)
    found: Blocks = {}
    for extent in extents:
        if (whole := _divided(extent)) is not None:
            found[extent] = whole
    for assumption in kernel.assumptions:
        for left, right in _equal(assumption.expr):
            whole = _divided(right)
            if left in extents and whole is not None and whole[0] in extents:
                found[left] = whole
            match left, right:
                case ex.Bin("*", count, ex.Int(length)), whole_extent if count in extents and length > 1:
                    found[count] = whole_extent, length
                case _:
                    pass
    return found


def _divided(e: ex.Expr) -> tuple[ex.Expr, int] | None:
    match e:
        case ex.Bin("cdiv" | "//", whole, ex.Int(length)) if length > 1:
            return whole, length
        case _:
            return None


def _equal(e: ex.Expr) -> Iterator[tuple[ex.Expr, ex.Expr]]:
    match e:
        case ex.Bin("and", one, other):
            yield from _equal(one)
            yield from _equal(other)
        case ex.Bin("==", one, other):
            yield one, other
            yield other, one
        case _:
            pass


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A tile at an index that stands for a block, and the stretch of what it is multiplied by."""

    stmt: ir.Compute
    block: Stretch
    part: Stretch


@dataclass
class _Scaled(Reduced):
    """Notes where blocks meet elements. `places` has, for each tile, the single coordinates at which it lies, and
    `contracted` the part of a dimension that was contracted into it at once.
    """

    blocks: Blocks = field(default_factory=dict[ex.Expr, tuple[ex.Expr, int]])
    meetings: list[_Meeting] = field(default_factory=list[_Meeting])
    places: dict[str, tuple[Stretch, ...]] = field(default_factory=dict[str, tuple[Stretch, ...]])
    contracted: dict[str, tuple[Stretch, ...]] = field(default_factory=dict[str, tuple[Stretch, ...]])
    zeros: set[str] = field(default_factory=set[str])

    def _statement(self, stmt: ir.Stmt, tiles: Tiles) -> None:
        match stmt:
            case ir.Compute():
                self._before(stmt, tiles)
            case ir.Mma(dst=dst, a=a, acc=acc) if acc in self.zeros:
                along = (tiles.get(a) or Value((None, None))).axes[1]
                self.contracted[dst] = () if along is None else (along,)
            case ir.Mma(dst=dst):
                self.contracted.pop(dst, None)
            case _:
                pass
        super()._statement(stmt, tiles)
        if isinstance(stmt, ir.Load):
            self.places[stmt.dst] = tiles[stmt.dst].fixed
            self.contracted.pop(stmt.dst, None)

    def _before(self, stmt: ir.Compute, tiles: Tiles) -> None:
        names = [a.name for a in stmt.args if isinstance(a, ir.TileRef)]
        self.zeros -= {stmt.dst}
        if stmt.op == "full":
            self.zeros |= {stmt.dst}
        values = [tiles.get(n) or Value(()) for n in names]
        places = [self._places(n, v) for n, v in zip(names, values, strict=True)]
        if stmt.op in _SCALING and not any(v.carried for v in values):
            for i, mine in enumerate(places):
                for j, theirs in enumerate(values):
                    if i != j:
                        more = (*theirs.axes, *self.contracted.get(names[j], ()))
                        self._meet(stmt, mine, [s for s in more if s is not None])
        self.places[stmt.dst] = tuple(dict.fromkeys(p for own in places for p in own))
        self.contracted[stmt.dst] = tuple(dict.fromkeys(c for n in names for c in self.contracted.get(n, ())))

    def _places(self, name: str, value: Value) -> tuple[Stretch, ...]:
        kind = self.context.kernel.types[name]
        shape = kind.shape if isinstance(kind, TileType) else ()
        single = (a for a, n in zip(value.axes, shape, strict=False) if a is not None and n == 1)
        return tuple(dict.fromkeys((*self.places.get(name, ()), *single)))

    def _meet(self, stmt: ir.Compute, places: Sequence[Stretch], parts: Sequence[Stretch]) -> None:
        for place in places:
            of = self.blocks.get(place.dim)
            for part in parts if of is not None else ():
                if of is not None and part.dim == of[0] and part.dim != place.dim and not part.lost and not place.lost:
                    self.meetings.append(_Meeting(stmt, place, part))


def _decided(context: KernelContext, meeting: _Meeting, blocks: Blocks) -> Obligation:
    block, part = meeting.block, meeting.part
    whole, length = blocks[block.dim]
    site = next(s for s in context.sites if s.stmt is meeting.stmt)
    begin = ex.mul(block.start, ex.Int(length))
    inside = ex.Bin(
        "and", ex.Bin("<=", begin, part.start), ex.Bin("<=", part.end, ex.add(begin, ex.Int(length)))
    )  # fmt: skip
    name, of = ex.show(block.dim), ex.show(whole)
    what = f"what {block.tensor} holds for a block of {of} meets elements of that block"
    if context.decider.proves(site.question(inside)):
        return proved(CODE, "tags", what, meeting.stmt.span, "integers")
    missing = (
        f"{block.tensor} at {_at(name, block.start)}, which stands for {length} elements of {of}, meets elements of "
        f"{part.tensor} from {_at(of, part.start)} on; whether these belong together is not known"
    )
    return unknown(context, CODE, "tags", what, meeting.stmt.span, missing)


def _at(dim: str, start: ex.Expr) -> str:
    """A place in words; a long one, as that of a grouped tile, says nothing to anybody."""
    text = ex.show(start)
    return f"{dim} = {text}" if len(text) <= _MOST_SHOWN else f"some {dim}"
