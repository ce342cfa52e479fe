"""Operations that put the elements of register tiles in order: sort, argsort and topk."""

from __future__ import annotations

from math import prod

from tree_sitter import Node

from tilewright.dtypes import i32
from tilewright.frontend.shape_operations import ShapeOperations
from tilewright.frontend.values import Value
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType


class OrderOperations(ShapeOperations):
    """Operations whose result depends on the order of the elements along one axis."""

    def op_sort(self, node: Node, x: Value, axis: Value = None, descending: Value = Int(0)) -> Value:
        return self.ordered(node, "sort", x, axis, descending)

    def op_argsort(self, node: Node, x: Value, axis: Value = None, descending: Value = Int(0)) -> Value:
        return self.ordered(node, "argsort", x, axis, descending)

    def op_topk(self, node: Node, x: Value, k: Value, axis: Value = None) -> Value:
        tile = self.tile(node, x, "the argument of topk")
        type_ = self.tile_type(tile)
        at, count = self.axis(node, "topk", type_, axis), self.integer(node, k, "k")
        if count < 1 or count & (count - 1) or count > type_.shape[at]:
            raise self.fault(
                "TW506", f"topk takes a power of two from 1 to the {type_.shape[at]} of {type_}, not {count}", node
            )
        tile = self.named(tile, "values")
        names: tuple[tuple[ir.ComputeOp, str], ...] = (("sort", "greatest"), ("argsort", "indices"))
        parts = [self.named(self.ordered(node, op, tile, Int(at), Int(1)), name) for op, name in names]
        return tuple(self.first_along(node, part, at, count) for part in parts)

    def ordered(self, node: Node, name: ir.ComputeOp, x: Value, axis: Value, descending: Value) -> ir.TileRef:
        """The elements along an axis in order, or where they come from."""
        source = self.tile(node, x, f"the argument of {name}")
        type_ = self.tile_type(source)
        self.check_number(node, name, type_.dtype)
        at, falling = self.axis(node, name, type_, axis), bool(self.integer(node, descending, "descending"))
        extent = type_.shape[at]
        if extent & (extent - 1):
            raise self.fault(
                "TW506", f"{name} goes along an axis of a power of two, not along {extent} of {type_}", node
            )
        dst = self.fresh()
        self.types[dst] = type_ if name == "sort" else TileType(i32, type_.shape)
        self.emit(ir.Compute(dst, name, (source,), at, reverse=falling, span=self.span(node)))
        return ir.TileRef(dst)

    def first_along(self, node: Node, x: ir.TileRef, axis: int, count: int) -> ir.TileRef:
        """The first `count` elements along an axis; both extents are powers of two."""
        shape = list(self.tile_type(x).shape)
        while shape[axis] > count:
            shape[axis] //= 2
            pairs = self.op_reshape(node, x, (Int(prod(shape[:axis])), Int(2), Int(prod(shape[axis:]))))
            x = self.halves(node, self.op_permute(node, pairs, (Int(0), Int(2), Int(1))))[0]
        result = self.op_reshape(node, x, tuple(map(Int, shape)))
        assert isinstance(result, ir.TileRef)
        return result
