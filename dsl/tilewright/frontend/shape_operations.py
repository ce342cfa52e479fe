"""Operations that move the elements of register tiles to other places: reshape, permute, join and split."""

from __future__ import annotations

from math import prod

from tree_sitter import Node

from tilewright.dtypes import i8, u8
from tilewright.frontend.math_operations import MathOperations
from tilewright.frontend.values import Value
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType

_MOST_DIMENSIONS = 4


class ShapeOperations(MathOperations):
    """Operations that keep the elements of a tile and change its shape."""

    def op_reshape(self, node: Node, x: Value, shape: Value) -> Value:
        source, target = self.tile(node, x, "the argument of reshape"), self.shape(node, shape)
        type_ = self.tile_type(source)
        if prod(type_.shape) != prod(target):
            raise self.fault(
                "TW003",
                f"{list(type_.shape)} has {prod(type_.shape)} elements, {list(target)} has {prod(target)}",
                node,
            )
        if type_.shape == target:
            return source
        return self.compute(node, "reshape", (source,), TileType(type_.dtype, target))

    def op_permute(self, node: Node, x: Value, order: Value) -> Value:
        source = self.tile(node, x, "the argument of permute")
        type_ = self.tile_type(source)
        axes = tuple(self.integer(node, v, "an axis") for v in (order if isinstance(order, tuple) else (order,)))
        if sorted(axes) != list(range(len(type_.shape))):
            raise self.fault(
                "TW003", f"permute names each of the axes 0 … {len(type_.shape) - 1} of {type_} once, not {axes}", node
            )
        if axes == tuple(range(len(axes))):
            return source
        dst = self.fresh()
        self.types[dst] = TileType(type_.dtype, tuple(type_.shape[a] for a in axes))
        op: ir.ComputeOp = "transpose" if len(axes) == 2 else "permute"
        self.emit(ir.Compute(dst, op, (source,), order=() if len(axes) == 2 else axes, span=self.span(node)))
        return ir.TileRef(dst)

    def op_join(self, node: Node, a: Value, b: Value) -> Value:
        first, second = self.tile(node, a, "a of join"), self.tile(node, b, "b of join")
        left, right = self.tile_type(first), self.tile_type(second)
        if left != right:
            raise self.fault("TW003", f"join takes two tiles alike, not {left} and {right}", node)
        if len(left.shape) == _MOST_DIMENSIONS:
            raise self.fault("TW003", f"a tile has at most {_MOST_DIMENSIONS} dimensions; {left} has no room", node)
        return self.compute(node, "join", (first, second), TileType(left.dtype, (*left.shape, 2)))

    def op_split(self, node: Node, x: Value) -> Value:
        source = self.tile(node, x, "the argument of split")
        type_ = self.tile_type(source)
        if len(type_.shape) < 2 or type_.shape[-1] != 2:
            raise self.fault("TW003", f"split takes a tile whose last axis has extent 2, not {type_}", node)
        source = self.named(source, "pairs")
        part = TileType(type_.dtype, type_.shape[:-1])
        return tuple(self.compute(node, "half", (source,), part, i) for i in (0, 1))

    def op_interleave(self, node: Node, a: Value, b: Value) -> Value:
        pairs = self.op_join(node, a, b)
        assert isinstance(pairs, ir.TileRef)
        shape = self.tile_type(pairs).shape[:-1]
        return self.op_reshape(node, pairs, tuple(map(Int, (*shape[:-1], 2 * shape[-1]))))

    def op_flip(self, node: Node, x: Value, axis: Value = None) -> Value:
        tile = self.tile(node, x, "the argument of flip")
        type_ = self.tile_type(tile)
        at = self.axis(node, "flip", type_, axis)
        extent = type_.shape[at]
        if extent & (extent - 1):
            raise self.fault("TW506", f"flip goes along an axis of a power of two, not along {extent} of {type_}", node)
        rows, rest = prod(type_.shape[:at]), prod(type_.shape[at:])
        result: Value = tile
        # Exchanging the halves, the halves of these, and so on turns the order round.
        while rest > prod(type_.shape[at + 1 :]):
            rest //= 2
            pairs = self.op_reshape(node, result, (Int(rows), Int(2), Int(rest)))
            first, second = self.halves(node, self.op_permute(node, pairs, (Int(0), Int(2), Int(1))))
            joined = self.op_permute(node, self.op_join(node, second, first), (Int(0), Int(2), Int(1)))
            result, rows = joined, rows * 2
        return self.op_reshape(node, result, tuple(map(Int, type_.shape)))

    def halves(self, node: Node, x: Value) -> tuple[ir.TileRef, ir.TileRef]:
        """The two tiles along the last axis."""
        halves = self.op_split(node, x)
        assert isinstance(halves, tuple)
        first, second = halves
        assert isinstance(first, ir.TileRef) and isinstance(second, ir.TileRef)
        # Each is used by a statement of its own, and not in the order in which they are made.
        return self.named(first, "first"), self.named(second, "second")

    def op_unpack_int4(self, node: Node, x: Value) -> Value:
        source = self.tile(node, x, "the argument of unpack_int4")
        type_ = self.tile_type(source)
        if type_.dtype not in (i8, u8):
            raise self.fault("TW004", f"unpack_int4 takes bytes, i8 or u8, not {type_.dtype}", node)
        if len(type_.shape) == _MOST_DIMENSIONS:
            raise self.fault("TW003", f"unpack_int4 takes a tile of at most 3 dimensions, not {type_}", node)
        source = self.named(source, "packed")
        # Left and back again: the shift to the right copies the sign of the nibble for i8, and zeros for u8.
        low = self.compute(node, "shl", (source, Int(4)), type_)
        low = self.compute(node, "shr", (low, Int(4)), type_)
        high = self.compute(node, "shr", (source, Int(4)), type_)
        pairs = self.compute(node, "join", (low, high), TileType(type_.dtype, (*type_.shape, 2)))
        shape = (*type_.shape[:-1], 2 * type_.shape[-1])
        return self.compute(node, "reshape", (pairs,), TileType(type_.dtype, shape))
