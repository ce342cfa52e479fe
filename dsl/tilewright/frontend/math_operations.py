"""Functions of register tiles beyond the plain ones: rounding, powers, bits, scans, positions of extremes, random."""

from __future__ import annotations

from tree_sitter import Node

from tilewright.dtypes import f32, i1, i32, u32
from tilewright.frontend.elaborate import SCALARS
from tilewright.frontend.tile_operations import TileOperations
from tilewright.frontend.values import Value, describe
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType


class MathOperations(TileOperations):
    """Operations whose results have the shape of their operands, and positions along an axis."""

    # -------------------------------------------------------------------------------- elementwise

    def op_ceil(self, node: Node, x: Value) -> Value:
        return self.floating(node, "ceil", x)

    def op_round(self, node: Node, x: Value) -> Value:
        return self.floating(node, "round", x)

    def op_trunc(self, node: Node, x: Value) -> Value:
        return self.floating(node, "trunc", x)

    def op_log1p(self, node: Node, x: Value) -> Value:
        return self.floating(node, "log1p", x)

    def op_expm1(self, node: Node, x: Value) -> Value:
        return self.floating(node, "expm1", x)

    def op_isnan(self, node: Node, x: Value) -> Value:
        tile = self.floating(node, "isnan", x)
        assert isinstance(tile, ir.TileRef)
        self.types[tile.name] = TileType(i1, self.tile_type(tile).shape)
        return tile

    def op_pow(self, node: Node, x: Value, y: Value) -> Value:
        return self.floating_elementwise(node, "pow", (x, y))

    def op_fma(self, node: Node, a: Value, b: Value, c: Value) -> Value:
        return self.floating_elementwise(node, "fma", (a, b, c))

    def op_clamp(self, node: Node, x: Value, lo: Value, hi: Value) -> Value:
        if isinstance(lo, Int | float) and isinstance(hi, Int | float):
            low, high = (v.value if isinstance(v, Int) else v for v in (lo, hi))
            if low > high:
                raise self.fault("TW006", f"clamp to [{low}, {high}] has no value: the bounds are exchanged", node)
        return self.elementwise(node, "minimum", (self.elementwise(node, "maximum", (x, lo)), hi))

    def op_softmax(self, node: Node, x: Value, axis: Value = None) -> Value:
        tile = self.tile(node, x, "the argument of softmax")
        type_ = self.tile_type(tile)
        if not type_.dtype.is_float:
            raise self.fault("TW004", f"softmax of {type_.dtype}: cast with .to(f32) first", node)
        tile = self.named(tile, "scores")
        greatest = self.reduce(node, "max", tile, axis, Int(1))
        weights = self.floating(node, "exp", self.elementwise(node, "sub", (tile, greatest)))
        assert isinstance(weights, ir.TileRef)
        weights = self.named(weights, "weights")
        return self.elementwise(node, "div", (weights, self.reduce(node, "sum", weights, axis, Int(1))))

    def floating_elementwise(self, node: Node, name: ir.ComputeOp, values: tuple[Value, ...]) -> Value:
        """A function of several floating-point tiles and numbers, with broadcasting."""
        for value in values:
            if isinstance(value, ir.TileRef) and not self.tile_type(value).dtype.is_float:
                raise self.fault("TW004", f"{name} of {self.tile_type(value).dtype}: cast with .to(f32) first", node)
        return self.elementwise(node, name, values)

    def op_bitcast(self, node: Node, x: Value, dtype: Value) -> Value:
        source, target = self.tile(node, x, "the argument of bitcast"), self.dtype(node, dtype)
        type_ = self.tile_type(source)
        if type_.dtype.bits != target.bits or i1 in (type_.dtype, target):
            raise self.fault(
                "TW004", f"bitcast keeps the bits of an element: {type_.dtype} has {type_.dtype.bits}, {target} "
                f"{target.bits}", node,
            )  # fmt: skip
        if type_.dtype == target:
            return source
        return self.compute(node, "bitcast", (source,), TileType(target, type_.shape))

    # -------------------------------------------------------------------------------- along an axis

    def op_cumsum(self, node: Node, x: Value, axis: Value = None, *, reverse: Value = Int(0)) -> Value:
        return self.scan(node, "cumsum", x, axis, reverse)

    def op_cumprod(self, node: Node, x: Value, axis: Value = None, *, reverse: Value = Int(0)) -> Value:
        return self.scan(node, "cumprod", x, axis, reverse)

    def op_cummax(self, node: Node, x: Value, axis: Value = None, *, reverse: Value = Int(0)) -> Value:
        return self.scan(node, "cummax", x, axis, reverse)

    def op_cummin(self, node: Node, x: Value, axis: Value = None, *, reverse: Value = Int(0)) -> Value:
        return self.scan(node, "cummin", x, axis, reverse)

    def scan(self, node: Node, name: ir.ComputeOp, x: Value, axis: Value, reverse: Value) -> Value:
        """A running result along an axis; a tile of one dimension may leave the axis out."""
        source = self.tile(node, x, f"the argument of {name}")
        type_ = self.tile_type(source)
        self.check_number(node, name, type_.dtype)
        at, back = self.axis(node, name, type_, axis), bool(self.integer(node, reverse, "reverse"))
        dst = self.fresh()
        self.types[dst] = type_
        self.emit(ir.Compute(dst, name, (source,), at, reverse=back, span=self.span(node)))
        return ir.TileRef(dst)

    def op_argmax(self, node: Node, x: Value, axis: Value = None, *, keep_dims: Value = Int(0)) -> Value:
        return self.position(node, "argmax", x, axis, keep_dims)

    def op_argmin(self, node: Node, x: Value, axis: Value = None, *, keep_dims: Value = Int(0)) -> Value:
        return self.position(node, "argmin", x, axis, keep_dims)

    def position(self, node: Node, name: ir.ComputeOp, x: Value, axis: Value, keep_dims: Value) -> Value:
        tile = self.reduce(node, name, x, axis, keep_dims)
        assert isinstance(tile, ir.TileRef)
        self.types[tile.name] = TileType(i32, self.tile_type(tile).shape)
        return tile

    # -------------------------------------------------------------------------------- random numbers

    def op_rand(self, node: Node, seed: Value, offsets: Value) -> Value:
        return self.random(node, "rand", seed, offsets)

    def op_randint(self, node: Node, seed: Value, offsets: Value) -> Value:
        return self.random(node, "randint", seed, offsets)

    def random(self, node: Node, name: ir.ComputeOp, seed: Value, offsets: Value) -> Value:
        """Philox of a seed (an integer or integers) and a tile of offsets."""
        source = self.tile(node, offsets, f"the offsets of {name}")
        type_ = self.tile_type(source)
        shapes = [type_.shape]
        if isinstance(seed, ir.TileRef):
            shapes.append(self.tile_type(seed).shape)
        elif not isinstance(seed, SCALARS):
            raise self.fault("TW003", f"the seed of {name} is an integer or a tile of them, not {describe(seed)}", node)
        for tile in (seed, source):
            if isinstance(tile, ir.TileRef) and self.tile_type(tile).dtype.kind not in ("int", "uint"):
                raise self.fault("TW004", f"{name} takes integers, not {self.tile_type(tile).dtype}", node)
        shape = self.broadcast_shapes(node, name, shapes)
        return self.compute(node, name, (seed, source), TileType(f32 if name == "rand" else u32, shape))
