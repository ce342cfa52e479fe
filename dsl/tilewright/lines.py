"""Index tiles that count along one axis, `offset, offset + 1, …`, and what follows for accesses by index tiles."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from math import gcd

from tilewright.divisibility import Known, divisor
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType

Line = tuple[int, ex.Expr]
"""The axis along which a tile counts, and what it counts from."""
_INFIX: dict[str, ex.Op] = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "minimum": "min", "maximum": "max", "and": "and",
    "or": "or", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
_FLIPPED: dict[str, ex.Op] = {"gt": "<", "ge": "<="}


def lane(axis: int) -> str:
    """The name of the coordinate of an element along an axis, in `Lines.elements`."""
    return f"~{axis}"


class Lines:
    """The index tiles of one kernel that count, computed from `arange` and scalars that have one value."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self._statements = statements = list(ir.walk(kernel.body))
        given = Counter(d for s in statements if isinstance(d := getattr(s, "dst", None), str))
        # Roles have scalars of their own, under one name: what each of them gives once has one value in each.
        roles = [r.body for s in statements if isinstance(s, ir.Roles) for r in s.roles]
        inside = [Counter(s.dst for s in ir.walk(body) if isinstance(s, ir.Assign)) for body in roles]
        apart = {
            n
            for role in inside
            for n in role
            if given[n] == sum(r[n] for r in inside) and max(r[n] for r in inside) == 1
        }
        self._once = {n for n, times in given.items() if times == 1} | apart
        self._scalars = {s.dst for s in statements if isinstance(s, ir.Assign)}
        self._made = {s.dst: s for s in statements if isinstance(s, ir.Compute) and s.dst in self._once}
        self._shapes = {n: t.shape for n, t in kernel.types.items() if isinstance(t, TileType)}
        self._integer = {
            n for n, t in kernel.types.items() if isinstance(t, TileType) and t.dtype.name in ("i32", "i1")
        }
        self._truth = {n for n, t in kernel.types.items() if isinstance(t, TileType) and t.dtype.name == "i1"}
        self._around: dict[int, frozenset[int]] = {}
        self._variables: dict[str, set[int]] = {}
        self._enter(kernel.body, frozenset())

    def _enter(self, block: ir.Block, around: frozenset[int]) -> None:
        for stmt in block:
            self._around[id(stmt)] = around
            inside = around
            if isinstance(stmt, ir.For | ir.Programs):
                inside = around | {id(stmt)}
                self._variables.setdefault(stmt.var, set()).add(id(stmt))
            for inner in ir.children(stmt):
                self._enter(inner, inside)

    @cached_property
    def loaded(self) -> frozenset[str]:
        """Register tiles that hold something loaded, or computed from it."""
        found: set[str] = set()
        grown = True
        while grown:
            before = len(found)
            for stmt in self._statements:
                match stmt:
                    case ir.Load(dst=dst) | ir.Gather(dst=dst) | ir.SharedLoad(dst=dst):
                        found.add(dst)
                    case ir.Compute(dst=dst, args=args) if any(
                        isinstance(a, ir.TileRef) and a.name in found for a in args
                    ):
                        found.add(dst)
                    case _:
                        pass
            grown = len(found) > before
        return frozenset(found)

    def elements(self, name: str, rank: int, use: ir.Stmt) -> ex.Expr | None:
        """The element of a tile of integers or truth values, over its coordinates (`lane`) and scalars, at a use of it.

        `rank` is that of what it broadcasts to. None where it is not computed from `arange` and scalars of one value.
        """
        at: list[ex.Expr] = [ex.Var(lane(a)) for a in range(rank)]
        return self._element(name, tuple(at), use)

    def _element(self, name: str, at: tuple[ex.Expr, ...], use: ir.Stmt) -> ex.Expr | None:
        made, shape = self._made.get(name), self._shapes.get(name)
        if made is None or shape is None or name not in self._integer:
            return None
        own = at[len(at) - len(shape) :]
        at = tuple(ex.Int(0) if n == 1 else e for n, e in zip(shape, own, strict=True))

        def of(operand: ir.Operand) -> ex.Expr | None:
            match operand:
                case ir.TileRef(name=source):
                    return self._element(source, at, use)
                case float() | int():
                    return ex.Int(int(operand)) if float(operand).is_integer() else None
                case _:
                    return operand if self._same_everywhere(operand, made, use) else None

        match made:
            case ir.Compute(op="arange"):
                return at[0]
            case ir.Compute(op="full" | "copy" | "convert_layout" | "broadcast", args=(source,)):
                return of(source)
            case ir.Compute(op="expand_dims", args=(ir.TileRef(source),), axis=int(axis)):
                return self._element(source, (*at[:axis], *at[axis + 1 :]), use)
            case ir.Compute(op="transpose", args=(ir.TileRef(source),)):
                return self._element(source, at[::-1], use)
            case ir.Compute(op="not", args=(source,)):
                value = of(source)
                return None if value is None or self._of_truth(name) is False else ex.negate(value)
            case ir.Compute(op=op, args=(one, other)) if op in _INFIX or op in _FLIPPED:
                left, right = of(one), of(other)
                if left is None or right is None or (op in ("and", "or") and not self._of_truth(name)):
                    return None
                try:
                    return (
                        ex.binary(_FLIPPED[op], right, left) if op in _FLIPPED else ex.binary(_INFIX[op], left, right)
                    )
                except ex.EvaluationError:
                    return None
            case _:
                return None

    def _of_truth(self, name: str) -> bool:
        return name in self._truth

    def _same_everywhere(self, scalar: ex.Expr, made: ir.Stmt, use: ir.Stmt) -> bool:
        """Whether a scalar has at a use the value that it had where a tile was made from it."""
        for n in ex.names(scalar):
            if n in self._scalars and n not in self._once:
                return False
            loops = self._variables.get(n, set())
            if not loops & self._around[id(made)] <= self._around.get(id(use), frozenset()):
                return False
        return True

    def of(self, name: str) -> Line | None:
        """The axis and the offset; None for tiles that do not count, or are not known to."""
        made = self._made.get(name)
        match made:
            case ir.Compute(op="arange"):
                return (0, ex.Int(0))
            case ir.Compute(op="expand_dims", args=(ir.TileRef(source),), axis=int(at)) if line := self.of(source):
                return (line[0] + (line[0] >= at), line[1])
            case ir.Compute(op="copy" | "broadcast" | "convert_layout", args=(ir.TileRef(source),)) if line := self.of(
                source
            ):
                return (line[0] + len(self._shapes[name]) - len(self._shapes[source]), line[1])
            case ir.Compute(op="add" | "sub" as op, args=(ir.TileRef(source), more)) if line := self._moved(
                source, more
            ):
                return (line[0], (ex.add if op == "add" else ex.sub)(line[1], line[2]))
            case ir.Compute(op="add", args=(more, ir.TileRef(source))) if line := self._moved(source, more):
                return (line[0], ex.add(line[1], line[2]))
            case _:
                return None

    def run(self, mask: str, known: Known) -> int:
        """A power of two: so many neighbours along the last axis, from multiples of it on, are alike."""
        shape = self._shapes[mask]
        if not shape or shape[-1] == 1:
            return 1 << 30
        made = self._made.get(mask)
        match made:
            case ir.Compute(op="and" | "or", args=(ir.TileRef(one), ir.TileRef(other))):
                return gcd(self.run(one, known), self.run(other, known))
            case ir.Compute(op="not" | "copy" | "broadcast" | "convert_layout", args=(ir.TileRef(source),)):
                return self.run(source, known)
            case ir.Compute(op="expand_dims", args=(ir.TileRef(source),), axis=int(at)) if at < len(shape) - 1:
                return self.run(source, known)
            case ir.Compute(op="lt" | "ge", args=(ir.TileRef(source), bound)) if isinstance(bound, ex.Expr):
                line = self.of(source)
                if line is not None and line[0] == len(shape) - 1:
                    return gcd(divisor(line[1], known), divisor(bound, known))
                return 1
            case _:
                return 1

    def _moved(self, source: str, by: ir.Operand) -> tuple[int, ex.Expr, ex.Expr] | None:
        """A tile that counts, and a scalar by which it is moved, no name in which is assigned again."""
        if not isinstance(by, ex.Expr) or (line := self.of(source)) is None:
            return None
        steady = all(n in self._once for n in ex.names(by) if n in self._scalars)
        return (*line, by) if steady else None


def copied_at_once(kernel: ir.Kernel, stmt: ir.CpGather, known: Known) -> int:
    """Elements that one cp.async moves: neighbours in memory and in the row of the tile, all of them or none, aligned.

    At most 16 bytes. `known` are the divisors of `divisibility.kernel_divisors`.
    """
    lines, param, last = Lines(kernel), kernel.param(stmt.tensor), stmt.index[-1]
    rank = len(param.type.shape)
    if not isinstance(last, ir.TileRef) or param.type.contiguous != rank - 1:
        return 1
    line, tile = lines.of(last.name), kernel.types[last.name]
    assert isinstance(tile, TileType)
    others = [kernel.types[i.name] for i in stmt.index[:-1] if isinstance(i, ir.TileRef)]
    if line is None or line[0] != len(tile.shape) - 1 or any(n > 1 for n in tile.shape[:-1]):
        return 1
    if any(isinstance(t, TileType) and t.shape[-1] > 1 for t in others):
        return 1
    found = gcd(divisor(line[1], known), *(divisor(s, known) for s in param.type.strides[:-1]), tile.shape[-1])
    if stmt.mask is not None:
        found = gcd(found, lines.run(stmt.mask.name, known))
    return min(max(1, 16 // param.type.dtype.bytes), found)


def points_shape(kernel: ir.Kernel, stmt: ir.Gather | ir.CpGather | ir.Scatter) -> tuple[int, ...]:
    """The shape of the tile that a gather makes, or a scatter stores."""
    match stmt:
        case ir.Gather(dst=name) | ir.Scatter(src=name) | ir.CpGather(dst=ir.BufRef(buffer=name)):
            kind = kernel.types[name]
    assert isinstance(kind, TileType | SharedType)
    return kind.shape
