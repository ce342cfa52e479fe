"""What elements of integer tiles are, as expressions over sizes, binders and their coordinates in the tile.

A tile that is computed by integer arithmetic from `arange`, scalars and elements of index tensors has such an
expression. Where one is missing (floating point, a name assigned more than once, a reshape) there is None, and nothing
may be concluded.

Elements wrap around the range of their type. What is shown to stay inside it, for all sizes that can be launched and
for lanes that are used, is written as it stands; anything else as the remainder that it comes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.dtypes import DType
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import TileType

from .context import KernelContext, Site
from .integers import MAX_SIZE, Binder, Decision, Question, conjunction
from .integers.magnitude import MAX_TENSOR_BYTES
from .integers.ranges import interval, interval_env

_INFIX: dict[str, ex.Op] = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "minimum": "min", "maximum": "max", "and": "and",
    "or": "or", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
_FLIPPED: dict[str, ex.Op] = {"gt": "<", "ge": "<="}
_ARITHMETIC = ("add", "sub", "mul", "floordiv")
_INTEGERS = ("i64", "i32", "i16", "i8", "u16", "u8", "i1")
Lane = tuple[ex.Expr, ...]


@dataclass(frozen=True, slots=True)
class Wrap:
    """A step of integer arithmetic that may leave its type: its value over the integers, and in the type."""

    exact: ex.Expr
    value: ex.Expr
    dtype: DType


@dataclass
class LaneValues:
    """Values of elements at the place of one statement, where lanes are used for which `known` holds.

    `facts`, `symbols` and `wraps` grow with every value asked for: a choice (`where`, a load with a mask) is a symbol
    of its own with a fact for either side. `lanes` are the binders of the coordinates.
    """

    context: KernelContext
    site: Site
    lanes: tuple[Binder, ...] = ()
    facts: list[ex.Expr] = field(default_factory=list[ex.Expr])
    symbols: list[Binder] = field(default_factory=list[Binder])
    suffix: str = ""
    known: tuple[ex.Expr, ...] = ()
    wraps: list[Wrap] = field(default_factory=list[Wrap])
    used: Site | None = None

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
                inner = self._at(made)
                chosen = inner.value(stmt.mask, lane) if stmt.mask is not None else None
                inner = self._at(made, *(() if chosen is None else (chosen,)))
                found = [inner.value(i, lane) for i in stmt.index]
                if any(f is None for f in found) or (stmt.mask is not None and chosen is None):
                    return None
                return self._element(stmt.tensor, tuple(f for f in found if f is not None), chosen, stmt.other)
            case _:
                return None

    def _computed(self, made: Site, stmt: ir.Compute, lane: Lane) -> ex.Expr | None:
        inner = self._at(made)
        kind = self.context.tile(stmt.dst)
        dtype = kind.dtype if kind is not None else None
        tiles = [t.dtype for a in stmt.args if isinstance(a, ir.TileRef) and (t := self.context.tile(a.name))]

        def at(operand: ir.Operand, where: Lane) -> ex.Expr | None:
            # In an operation on integers a compile-time number may stand as a float.
            if isinstance(operand, float | int):
                return ex.Int(int(operand)) if float(operand).is_integer() else None
            value = inner.value(operand, where)
            if value is None or isinstance(operand, ir.TileRef):
                return value
            # A scalar takes the type of the tiles that it meets, or of the tile that it fills.
            return inner.fitted(value, tiles[-1] if tiles and stmt.op != "where" else dtype)

        match stmt.op:
            case "arange":
                return lane[0]
            case "full" | "copy" | "convert_layout" | "broadcast":
                return at(stmt.args[0], lane)
            case "cast":
                source = stmt.args[0]
                if not isinstance(source, ir.TileRef) or not self._integer(source.name) or not self._integer(stmt.dst):
                    return None
                value = at(source, lane)
                if dtype is not None and dtype.name == "i1":
                    return None if value is None else ex.Bin("!=", value, ex.Int(0))
                return inner.fitted(value, dtype)
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
                if op in _FLIPPED:
                    return ex.binary(_FLIPPED[op], right, left)
                value = ex.binary(_INFIX[op], left, right)
                return inner.fitted(value, dtype) if op in _ARITHMETIC else value
            case _:
                return None

    def fitted(self, value: ex.Expr | None, dtype: DType | None) -> ex.Expr | None:
        """What an element of the type holds that was meant to hold `value`."""
        if value is None or dtype is None or dtype.kind not in ("int", "uint"):
            return value
        low, high = dtype.range
        claim = ex.Bin("and", ex.Bin("<=", ex.Int(low), value), ex.Bin("<=", value, ex.Int(high)))
        question = self.question(claim)
        least, most = interval(value, interval_env(question))
        if least is not None and most is not None and low <= least and most <= high and not _divides(value):
            return value
        if self.context.decider.proves(Question(claim, (*question.facts, *self._limits()), question.binders)):
            return value
        bits = ex.Int(high - low + 1)
        wrapped = ex.add(ex.binary("%", ex.sub(value, ex.Int(low)), bits), ex.Int(low))
        self.wraps.append(Wrap(value, wrapped, dtype))
        return wrapped

    def _limits(self) -> tuple[ex.Expr, ...]:
        """The most that sizes can be, of those that only contracts mention, too."""
        extents = (e for p in self.context.kernel.params for n in p.type.shape for e in ex.walk(n))
        sizes = dict.fromkeys(e for e in extents if isinstance(e, ex.Size) and e.least >= 1)
        return tuple(ex.Bin("<=", e, ex.Int(MAX_SIZE)) for e in sizes)

    def question(self, claim: ex.Expr) -> Question:
        """Does the claim hold for the lanes that are used?"""
        site = self.used or self.site
        known = (*self.facts, *self.known)
        own = {b.name for b in (*self.lanes, *self.symbols)}
        base = site.question(conjunction((claim, *known)))
        # The binders of the site, those of the lane, and what choices come to.
        outer = tuple(b for b in base.binders if b.name not in own)
        return Question(claim, (*base.facts, *known), (*outer, *self.lanes, *self.symbols))

    def _at(self, made: Site, *known: ex.Expr) -> LaneValues:
        """The values where another statement runs, for the same lanes."""
        return LaneValues(
            self.context, made, self.lanes, self.facts, self.symbols, self.suffix, (*self.known, *known), self.wraps,
            self.used or self.site,
        )  # fmt: skip

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
        return self._type(name) in _INTEGERS


def wrapped(wraps: Sequence[Wrap], model: Mapping[str, int]) -> str:
    """A sentence about the first step that leaves its type in the example, or nothing."""
    for wrap in wraps:
        exact, value = ex.evaluate(wrap.exact, model), ex.evaluate(wrap.value, model)
        if exact != value:
            low, high = wrap.dtype.range
            return f" It is computed in {wrap.dtype}, which holds {low} to {high}: {exact} wraps around to {value}."
    return ""


def narrowed(context: KernelContext, decision: Decision, wraps: Sequence[Wrap]) -> Decision:
    """The decision, open if it needs tensors larger than any memory, with a word about the step that may wrap."""
    if not wraps or decision.verdict == "proved":
        return decision
    if decision.verdict == "unknown":
        first = wraps[0]
        low, high = first.dtype.range
        text = f"whether {ex.show(first.exact)}, which is computed in {first.dtype}, stays between {low} and {high}"
        return Decision("unknown", missing=f"{decision.missing}; {text} is open" if decision.missing else text)
    for p in context.kernel.params:
        total = p.type.dtype.bytes
        for extent in p.type.shape:
            total *= ex.evaluate(extent, {**dict.fromkeys(context.kernel.sizes, 1), **decision.model})
        if total > MAX_TENSOR_BYTES:
            return Decision("unknown", missing="only tensors too large for any memory were found to break it")
    return decision


def _divides(value: ex.Expr) -> bool:
    """Whether an interval says something only if a divisor is positive."""
    return any(isinstance(e, ex.Bin) and e.op in ("//", "%", "cdiv") for e in ex.walk(value))


def lanes(shape: Sequence[int], suffix: str = "") -> tuple[tuple[Binder, ...], Lane]:
    """Binders for the coordinates of an element of a tile, and the coordinates."""
    names = [f"lane {axis}{suffix}" for axis in range(len(shape))]
    binders = tuple(
        Binder(name, f"lane {axis}", "loop", ex.Int(0), ex.Int(n))
        for axis, (name, n) in enumerate(zip(names, shape, strict=True))
        if n > 1
    )
    return binders, tuple(ex.Int(0) if n == 1 else ex.Var(name) for name, n in zip(names, shape, strict=True))
