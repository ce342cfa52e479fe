"""Tiles whose extents are no powers of two become several tiles whose extents are.

Layouts spread a tile over threads by the bits of its coordinates, so hardware and back end take powers of two alone. A
tile of 128 × 192 is therefore kept as one of 128 × 128 and one of 128 × 64: what is done with it is done with each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.expand.errors import ExpansionError
from tilewright.expand.names import Names
from tilewright.expand.tag_pieces import tagging_of_pieces
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.shapes import parts_of
from tilewright.ir.tagging import holders
from tilewright.ir.types import TileType
from tilewright.source import Span

Shape = tuple[int, ...]
Index = tuple[int, ...]  # the number of a piece along each axis

_COMBINE: dict[str, ir.ComputeOp] = {"sum": "add", "max": "maximum", "min": "minimum"}


def split_tiles(block: ir.Block, names: Names) -> ir.Block:
    """`block` with tiles of powers of two only; new names get their types in `names`.

    Raises ExpansionError [TW506] where an operation needs such a tile as a whole.
    """
    if not any(isinstance(t, TileType) and _is_odd(t.shape) for t in names.types.values()):
        return block
    return ir.rewrite(block, _Pieces(names).change)


def _is_odd(shape: Shape) -> bool:
    return any(n & (n - 1) for n in shape)


def _indices(shape: Shape) -> Iterator[Index]:
    return product(*(range(len(parts_of(n))) for n in shape))


def _shape_at(shape: Shape, index: Index) -> Shape:
    return tuple(parts_of(n)[i] for n, i in zip(shape, index, strict=True))


def _offsets_at(shape: Shape, index: Index) -> Shape:
    return tuple(sum(parts_of(n)[:i]) for n, i in zip(shape, index, strict=True))


class _Pieces:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.made: dict[tuple[str, Index], str] = {}

    def change(self, stmt: ir.Stmt) -> ir.Block | None:
        """What a statement becomes; None where it touches no tile that is split."""
        tiles = [n for n in _register_tiles(stmt) if isinstance(self.names.types.get(n), TileType)]
        if not any(_is_odd(self.shape(n)) for n in tiles):
            return None
        match stmt:
            case ir.Load(dst=dst, view=view):
                return tuple(
                    replace(stmt, dst=self.piece(dst, i), view=_part_of(view, i)) for i in _indices(self.shape(dst))
                )
            case ir.Store(view=view, src=src):
                return tuple(
                    replace(stmt, src=self.piece(src, i), view=_part_of(view, i)) for i in _indices(self.shape(src))
                )
            case ir.Atomic(view=view, src=src, mask=mask):
                return tuple(
                    replace(stmt, src=self.piece(src, i), view=_part_of(view, i), mask=mask and self.piece(mask, i))
                    for i in _indices(self.shape(src))
                )
            case ir.Mma():
                return tuple(self.product(stmt))
            case ir.Tag() | ir.ExpectTags():
                return tuple(tagging_of_pieces(stmt, self.shape, self.piece))
            case ir.Compute(op=op) if op in ir.REDUCTIONS:
                return tuple(self.reduction(stmt))
            case ir.Compute():
                return tuple(self.compute(stmt))
            case _:
                raise _refused(type(stmt).__name__, self.shape(tiles[0]), stmt.span)

    def shape(self, name: str) -> Shape:
        """The shape of a register tile as written."""
        type_ = self.names.types[name]
        assert isinstance(type_, TileType)
        return type_.shape

    def piece(self, name: str, index: Index) -> str:
        """The name of a piece, which says where it begins; of a tile that is not split, its own."""
        shape = self.shape(name)
        if not _is_odd(shape):
            return name
        if (name, index) not in self.made:
            type_ = self.names.types[name]
            assert isinstance(type_, TileType)
            begins = (str(o) for o, n in zip(_offsets_at(shape, index), shape, strict=True) if len(parts_of(n)) > 1)
            own = self.names.new("_".join((name, *begins)), TileType(type_.dtype, _shape_at(shape, index)))
            self.made[name, index] = own
        return self.made[name, index]

    def operand(self, arg: ir.Operand, result: Shape, index: Index) -> ir.Operand:
        """The piece of an operand that broadcasts to a piece of the result."""
        if not isinstance(arg, ir.TileRef):
            return arg
        shape = self.shape(arg.name)
        own = index[len(result) - len(shape) :]
        return ir.TileRef(self.piece(arg.name, tuple(0 if n == 1 else i for n, i in zip(shape, own, strict=True))))

    def compute(self, stmt: ir.Compute) -> Iterator[ir.Stmt]:
        """An operation that works on each piece by itself."""
        shape = self.shape(stmt.dst)
        for index in _indices(shape):
            dst = self.piece(stmt.dst, index)
            match stmt.op:
                case "arange":
                    yield replace(stmt, dst=dst)
                    if begin := _offsets_at(shape, index)[0]:
                        yield ir.Compute(dst, "add", (ir.TileRef(dst), Int(begin)), span=stmt.span)
                case (
                    "expand_dims"
                    | "transpose"
                    | "permute"
                    | "join"
                    | "half"
                    | "cumsum"
                    | "cumprod"
                    | "cummax"
                    | "cummin"
                    | "sort"
                    | "argsort"
                ):
                    args = (ir.TileRef(self.piece(a.name, self.source(stmt, a.name, index))) for a in _tiles(stmt))
                    yield replace(stmt, dst=dst, args=tuple(args))
                case "reshape" | "convert_layout":
                    (arg,) = _tiles(stmt)
                    odd = shape if _is_odd(shape) else self.shape(arg.name)
                    raise _refused(stmt.op, odd, stmt.span)
                case _:
                    yield replace(stmt, dst=dst, args=tuple(self.operand(a, shape, index) for a in stmt.args))

    def source(self, stmt: ir.Compute, operand: str, index: Index) -> Index:
        """The piece of the operand that a piece of the result comes from, for operations that move elements."""
        match stmt.op:
            case "expand_dims":
                assert stmt.axis is not None
                return (*index[: stmt.axis], *index[stmt.axis + 1 :])
            case "transpose":
                return index[::-1]
            case "permute":
                return tuple(index[stmt.order.index(axis)] for axis in range(len(index)))
            case "join":
                return index[:-1]
            case "half":
                return (*index, 0)
            case _:
                assert stmt.axis is not None
                if len(parts_of(self.shape(operand)[stmt.axis])) > 1:
                    raise _refused(f"{stmt.op} along axis {stmt.axis}", self.shape(operand), stmt.span)
                return index

    def reduction(self, stmt: ir.Compute) -> Iterator[ir.Stmt]:
        """Each piece is reduced, then the results of the pieces along the axis."""
        (arg,) = _tiles(stmt)
        shape, axis = self.shape(arg.name), stmt.axis
        assert axis is not None
        parts = range(len(parts_of(shape[axis])))
        if len(parts) > 1 and stmt.op not in _COMBINE:
            raise _refused(f"{stmt.op} along axis {axis}", shape, stmt.span)
        for index in _indices(self.shape(stmt.dst)):
            dst = self.piece(stmt.dst, index)
            whole = index if stmt.keep else (*index[:axis], 0, *index[axis:])
            for part in parts:
                piece = self.piece(arg.name, (*whole[:axis], part, *whole[axis + 1 :]))
                if part == 0:
                    yield replace(stmt, dst=dst, args=(ir.TileRef(piece),))
                    continue
                partial = self.names.new(f"%{dst.lstrip('%')}_part", self.names.types[dst])
                yield replace(stmt, dst=partial, args=(ir.TileRef(piece),))
                yield ir.Compute(dst, _COMBINE[stmt.op], (ir.TileRef(dst), ir.TileRef(partial)), span=stmt.span)

    def product(self, stmt: ir.Mma) -> Iterator[ir.Stmt]:
        """Each piece of the accumulator takes the products of all pieces along the contraction."""
        depth = len(parts_of(self.shape(stmt.a)[1]))
        for m, n in _indices(self.shape(stmt.dst)):
            dst, acc = self.piece(stmt.dst, (m, n)), self.piece(stmt.acc, (m, n))
            for k in range(depth):
                yield replace(stmt, dst=dst, a=self.piece(stmt.a, (m, k)), b=self.piece(stmt.b, (k, n)), acc=acc)
                acc = dst


def _part_of(view: ir.View, index: Index) -> ir.View:
    """The view of a piece."""
    shape, begins = _shape_at(view.tile_shape, index), _offsets_at(view.tile_shape, index)
    origin = (ex.add(o, Int(b)) if b else o for o, b in zip(view.origin[view.lead :], begins, strict=True))
    return replace(view, origin=(*view.origin[: view.lead], *origin), shape=(*view.shape[: view.lead], *shape))


def _register_tiles(stmt: ir.Stmt) -> Iterator[str]:
    if isinstance(stmt, ir.Tag | ir.ExpectTags):
        yield from (of for of in holders(stmt) if isinstance(of, str))
        return
    for value in ir.operands(stmt):
        match value:
            case str():
                yield value
            case ir.TileRef(name=name):
                yield name
            case _:
                pass


def _tiles(stmt: ir.Compute) -> tuple[ir.TileRef, ...]:
    return tuple(a for a in stmt.args if isinstance(a, ir.TileRef))


def _refused(what: str, shape: Shape, span: Span) -> ExpansionError:
    whole = " and ".join(f"{n} = {' + '.join(map(str, parts_of(n)))}" for n in shape if n & (n - 1))
    return ExpansionError(
        "TW506",
        f"{what} needs the tile {list(shape)} as a whole, but it is kept in pieces ({whole}); use powers of two here",
        span,
    )
