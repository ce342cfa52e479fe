"""Operators of register tiles: arithmetic with broadcasting, comparisons, indexing, and the statement behind each."""

from __future__ import annotations

from tree_sitter import Node

from tilewright.dtypes import DType, i1
from tilewright.frontend.loops import Loops
from tilewright.frontend.tree import parts
from tilewright.frontend.values import Builtin, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType

_TILE_OPERATORS: dict[str, ir.ComputeOp] = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq",
    "!=": "ne", "&": "and", "|": "or", "and": "and", "or": "or", "//": "floordiv", "%": "mod", "<<": "shl", ">>": "shr",
    "^": "xor", "**": "pow",
}  # fmt: skip
_BITWISE = frozenset(("and", "or", "xor"))
_INTEGER = frozenset(("floordiv", "mod", "shl", "shr"))
_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))


class TileOperators(Loops):
    """What operators and brackets mean for tiles; `Expressions` evaluates the operands."""

    def call(self, node: Node, function: Value, args: list[Value], keywords: dict[str, Value]) -> Value:
        """The result of a call; supplied by `Operations`."""
        raise AssertionError("Operations.call")

    def evaluate(self, node: Node) -> Value:
        """The value of an expression node; supplied by `Expressions`."""
        raise AssertionError("Expressions.evaluate")

    def tile_binary(self, node: Node, operator: str, left: Value, right: Value) -> Value:
        if operator == "@":
            raise self.fault("TW005", "write tw.mma(a, b, acc): the accumulator is explicit", node)
        name = _TILE_OPERATORS.get(operator)
        if name is None:
            raise self.fault("TW005", f"'{operator}' is not supported for tiles", node)
        if name == "pow":
            return self.call(node, Builtin("pow"), [left, right], {})
        for value in (left, right):
            if isinstance(value, ir.TileRef):
                self.check_operator(node, operator, name, self.tile_type(value).dtype)
        if isinstance(left, ir.TileRef):
            self.check_right(node, operator, name, self.tile_type(left).dtype, right)
        return self.elementwise(node, name, (left, right), "i1" if name in _COMPARISONS else "same")

    def check_operator(self, node: Node, operator: str, name: str, dtype: DType) -> None:
        """Refuse an operator that has no meaning for the element type."""
        if (name in _BITWISE and dtype.is_float) or (operator in ("and", "or") and dtype != i1):
            kinds = "truth values" if operator in ("and", "or") else "integers and truth values"
            raise self.fault("TW004", f"'{operator}' combines {kinds}, not {dtype}", node)
        if name in _INTEGER and (dtype.is_float or dtype == i1):
            hint = "; tw.floor(a / b) of floating-point tiles" if operator == "//" and dtype.is_float else ""
            raise self.fault("TW004", f"'{operator}' is for integers, not {dtype}{hint}", node)
        if name == "div" and not dtype.is_float:
            raise self.fault("TW004", f"'/' gives a fraction; divide {dtype} with '//' or cast with .to(f32)", node)

    def check_right(self, node: Node, operator: str, name: str, dtype: DType, right: Value) -> None:
        """Refuse a number on the right for which an operation on integers has no value."""
        if not isinstance(right, Int) or name not in _INTEGER:
            return
        if name in ("floordiv", "mod") and right.value == 0:
            raise self.fault("TW004", f"'{operator}' by zero has no value", node)
        if name in ("shl", "shr") and not 0 <= right.value < dtype.bits:
            what = f"'{operator} {right.value}' of {dtype} has no value: it shifts by 0 to {dtype.bits - 1} bits"
            raise self.fault("TW004", what, node)

    def check_number(self, node: Node, name: str, dtype: DType) -> None:
        """Refuse arithmetic on elements that are only stored, or that are truth values."""
        if not dtype.computes:
            raise self.fault("TW004", f"{dtype} is stored and cast, not computed with; cast with .to(f32) first", node)
        if dtype == i1:
            raise self.fault("TW004", f"'{name}' of truth values: cast with .to(i32) first", node)

    def elementwise(
        self, node: Node, name: ir.ComputeOp, values: tuple[Value, ...], result: str = "same"
    ) -> ir.TileRef:
        """An elementwise operation with broadcasting. `result` is "same" (as the operands) or "i1"."""
        tiles = [self.tile_type(v) for v in values if isinstance(v, ir.TileRef)]
        operands: list[ir.Operand] = []
        for value in values:
            if not isinstance(value, ir.TileRef | float | Int | ex.Size | ex.Var | ex.Bin | ex.Not):
                raise self.fault("TW003", f"'{name}' takes tiles and numbers, not {describe(value)}", node)
            operands.append(value)
        if not tiles:
            raise self.fault("TW003", f"'{name}' needs at least one tile", node)
        dtypes = {t.dtype for t in tiles}
        if len(dtypes) > 1:
            both = " and ".join(sorted(str(t) for t in tiles))
            raise self.fault("TW004", f"'{name}' on {both}: cast one side with .to(…) first", node)
        dtype = tiles[0].dtype
        if not dtype.computes:
            self.check_number(node, name, dtype)
        for value in values if not dtype.is_float else ():
            if isinstance(value, float):
                raise self.fault("TW004", f"'{name}' mixes {dtype} with a fraction; cast with .to(f32) first", node)
            low, high = dtype.range
            if isinstance(value, Int) and not low <= value.value <= high:
                raise self.fault("TW004", f"{value.value} does not fit {dtype}, which holds {low} to {high}", node)
        shape = self.broadcast_shapes(node, name, [t.shape for t in tiles])
        return self.compute(node, name, tuple(operands), TileType(i1 if result == "i1" else dtype, shape))

    def broadcast_shapes(self, node: Node, name: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
        """NumPy's rule: axes align from the right; an extent of 1 stretches."""
        rank = max(len(s) for s in shapes)
        padded = [(1,) * (rank - len(s)) + s for s in shapes]
        result: list[int] = []
        for axis in range(rank):
            extents = {s[axis] for s in padded} - {1}
            if len(extents) > 1:
                both = " and ".join(str(list(s)) for s in shapes)
                raise self.fault(
                    "TW003", f"shapes {both} do not match in '{name}': {sorted(extents)} at axis {axis}", node
                )
            result.append(extents.pop() if extents else 1)
        return tuple(result)

    def compute(
        self,
        node: Node,
        name: ir.ComputeOp,
        args: tuple[ir.Operand, ...],
        type_: TileType,
        axis: int | None = None,
        keep: bool = False,
    ) -> ir.TileRef:
        """Emit a computation into a new temporary."""
        dst = self.fresh()
        self.types[dst] = type_
        self.emit(ir.Compute(dst, name, args, axis, keep, span=self.span(node)))
        return ir.TileRef(dst)

    def expand(self, node: Node, value: ir.TileRef, indices: list[Node]) -> Value:
        """`x[:, None]`: insert an axis of extent 1."""
        type_, result, source = self.tile_type(value), value, 0
        if indices and (last := self.half(node, value, indices)) is not None:
            return last
        kinds = ["new" if i.type == "none" else "keep" if i.type == "slice" and not parts(i) else "" for i in indices]
        if "" in kinds or kinds.count("keep") > len(type_.shape):
            raise self.fault(
                "TW005",
                "a tile is indexed with ':' and None, to add axes: x[:, None]; one of two by 0 or 1: x[:, 0]",
                node,
            )
        shape = list(type_.shape)
        for axis, kind in enumerate(kinds):
            if kind == "new":
                shape.insert(axis, 1)
                result = self.compute(node, "expand_dims", (result,), TileType(type_.dtype, tuple(shape)), axis)
            else:
                source += 1
        return result

    def half(self, node: Node, value: ir.TileRef, indices: list[Node]) -> Value:
        """`x[:, 0]` or `x[..., 0]` of a tile whose last axis has extent 2; None for any other index."""
        type_ = self.tile_type(value)
        *before, last = indices
        colons = all(i.type == "slice" and not parts(i) for i in before) and len(indices) == len(type_.shape)
        if last.type in ("none", "slice") or not (colons or [i.type for i in before] == ["ellipsis"]):
            return None
        index = self.evaluate(last)
        if not isinstance(index, Int) or index.value not in (0, 1) or type_.shape[-1] != 2 or len(type_.shape) < 2:
            return None
        return self.compute(node, "half", (value,), TileType(type_.dtype, type_.shape[:-1]), index.value)
