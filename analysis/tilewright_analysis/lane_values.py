"""What elements of integer tiles are, as expressions over sizes, binders and their coordinates in the tile.

A tile that is computed by integer arithmetic from `arange`, scalars and elements of index tensors has such an
expression. Where one is missing (floating point, a name assigned more than once, a reshape) there is None, and nothing
may be concluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from .context import KernelContext, Site
from .integers import Binder, conjunction

_INFIX: dict[str, ex.Op] = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "minimum": "min", "maximum": "max", "and": "and",
    "or": "or", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
_FLIPPED: dict[str, ex.Op] = {"gt": "<", "ge": "<="}
_WIDE_ENOUGH = ("i32", "i64")
Lane = tuple[ex.Expr, ...]


@dataclass
class LaneValues:
    """Values of elements at the place of one statement.

    `facts` and `symbols` grow with every value asked for: a choice (`where`, a load with a mask) is a symbol of its own
    with a fact for either side.
    """

    context: KernelContext
    site: Site
    facts: list[ex.Expr] = field(default_factory=list[ex.Expr])
    symbols: list[Binder] = field(default_factory=list[Binder])
    suffix: str = ""

    def value(self, operand: ir.Operand | None, lane: Lane) -> ex.Expr | None:
        """The element of a tile at coordinates `lane` of what it broadcasts to, or a scalar."""
        match operand:
            case ir.TileRef(name=name):
                type_ = self.context.tile(name)
                if type_ is None:
                    return None
                own = lane[len(lane) - len(type_.shape) :]
                return self._tile(
                    name, tuple(ex.Int(0) if n == 1 else e for n, e in zip(type_.shape, own, strict=True))
                )
            case None | float() | int():
                return None
            case _:
                return self.site.value(operand)

    def _tile(self, name: str, lane: Lane) -> ex.Expr | None:
        made = self._definition(name)
        if made is None:
            return None
        match made.stmt:
            case ir.Compute() as stmt:
                return self._computed(made, stmt, lane)
            case ir.Load(view=view, other=other):
                if not self._integer(name):
                    return None
                at = tuple(made.value(o) for o in view.origin[: view.lead])
                at += tuple(ex.add(made.value(o), e) for o, e in zip(view.origin[view.lead :], lane, strict=True))
                extents = self.context.kernel.param(view.tensor).type.shape
                inside = conjunction(ex.Bin("<", i, n) for i, n in list(zip(at, extents, strict=True))[view.lead :])
                if other is None:
                    # That the whole view is inside is the obligation of the load.
                    self.facts.append(inside)
                return self._element(view.tensor, at, None if other is None else inside, other)
            case ir.Gather() as stmt:
                if not self._integer(name):
                    return None
                inner = LaneValues(self.context, made, self.facts, self.symbols, self.suffix)
                found = [inner.value(i, lane) for i in stmt.index]
                chosen = inner.value(stmt.mask, lane) if stmt.mask is not None else None
                if any(f is None for f in found) or (stmt.mask is not None and chosen is None):
                    return None
                return self._element(stmt.tensor, tuple(f for f in found if f is not None), chosen, stmt.other)
            case _:
                return None

    def _computed(self, made: Site, stmt: ir.Compute, lane: Lane) -> ex.Expr | None:
        inner = LaneValues(self.context, made, self.facts, self.symbols, self.suffix)

        def at(operand: ir.Operand, where: Lane) -> ex.Expr | None:
            # In an operation on integers a compile-time number may stand as a float.
            if isinstance(operand, float | int):
                return ex.Int(int(operand)) if float(operand).is_integer() else None
            return inner.value(operand, where)

        match stmt.op:
            case "arange":
                return lane[0]
            case "full" | "copy" | "convert_layout" | "broadcast":
                return at(stmt.args[0], lane)
            case "cast":
                source = stmt.args[0]
                return (
                    at(source, lane) if isinstance(source, ir.TileRef) and self._kept(source.name, stmt.dst) else None
                )
            case "expand_dims" if stmt.axis is not None:
                return at(stmt.args[0], (*lane[: stmt.axis], *lane[stmt.axis + 1 :]))
            case "transpose":
                return at(stmt.args[0], lane[::-1])
            case "permute":
                back = tuple(lane[stmt.order.index(axis)] for axis in range(len(lane)))
                return at(stmt.args[0], back)
            case "not" if self._type(stmt.dst) == "i1":
                value = at(stmt.args[0], lane)
                return None if value is None else ex.negate(value)
            case "where" if self._integer(stmt.dst):
                cond, one, other = (at(a, lane) for a in stmt.args)
                return None if cond is None or one is None or other is None else self._chosen(cond, one, other)
            case op if op in _INFIX or op in _FLIPPED:
                if any(isinstance(a, ir.TileRef) and not self._integer(a.name) for a in stmt.args):
                    return None
                left, right = (at(a, lane) for a in stmt.args)
                if left is None or right is None or (op in ("and", "or") and self._type(stmt.dst) != "i1"):
                    return None
                return ex.binary(_FLIPPED[op], right, left) if op in _FLIPPED else ex.binary(_INFIX[op], left, right)
            case _:
                return None

    def _element(self, tensor: str, at: Lane, inside: ex.Expr | None, other: float | None) -> ex.Expr | None:
        item = ex.Item(tensor, at)
        if inside is None:
            return item
        return self._chosen(inside, item, ex.Int(int(other or 0)))

    def _chosen(self, cond: ex.Expr, one: ex.Expr, other: ex.Expr) -> ex.Expr:
        """A symbol that is `one` where `cond` holds, else `other`."""
        if isinstance(cond, ex.Int):
            return one if cond.value else other
        name = f"choice{len(self.symbols)}{self.suffix}"
        symbol = ex.Var(name)
        self.symbols.append(Binder(name, name, "data"))
        self.facts.append(ex.Bin("or", ex.negate(cond), ex.Bin("==", symbol, one)))
        self.facts.append(ex.Bin("or", cond, ex.Bin("==", symbol, other)))
        return symbol

    def _definition(self, name: str) -> Site | None:
        """The only statement that computes a tile, if it runs before each use with the values of the same iteration."""
        made = self.context.definitions.get(name)
        if made is None or made.role != self.site.role or len(made.loops) > len(self.site.loops):
            return None
        return made if made.loops == self.site.loops[: len(made.loops)] else None

    def _type(self, name: str) -> str:
        type_ = self.context.tile(name)
        return type_.dtype.name if isinstance(type_, TileType) else ""

    def _integer(self, name: str) -> bool:
        return self._type(name) in (*_WIDE_ENOUGH, "i16", "i8", "u16", "u8", "i1")

    def _kept(self, source: str, target: str) -> bool:
        """True for a cast that keeps every value."""
        return self._type(target) in _WIDE_ENOUGH and self._integer(source)


def lanes(shape: Sequence[int], suffix: str = "") -> tuple[tuple[Binder, ...], Lane]:
    """Binders for the coordinates of an element of a tile, and the coordinates."""
    names = [f"lane {axis}{suffix}" for axis in range(len(shape))]
    binders = tuple(
        Binder(name, f"lane {axis}", "loop", ex.Int(0), ex.Int(n))
        for axis, (name, n) in enumerate(zip(names, shape, strict=True))
        if n > 1
    )
    return binders, tuple(ex.Int(0) if n == 1 else ex.Var(name) for name, n in zip(names, shape, strict=True))
