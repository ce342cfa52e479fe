"""Operations on register tiles: creation, loads and stores, arithmetic functions, reductions, matrix products."""

from __future__ import annotations

from tree_sitter import Node

from tilewright.dtypes import DType, f32, f64, i32
from tilewright.frontend.expressions import Expressions
from tilewright.frontend.values import Barriers, SharedBuffer, TensorSlice, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.shapes import parts_of
from tilewright.ir.types import TileType
from tilewright.matrix import Precision, type_problem

# A tile in more pieces, or smaller ones, would be slower than a larger tile.
_MOST_PIECES = 3
_SMALLEST_PIECE = 8

_LOADS = '"auto", "direct", "cp_async", "tma" or "buffer"'
_STORES = '"auto", "direct", "tma" or "buffer"'


class TileOperations(Expressions):
    """Operations whose operands and results live in registers or global memory."""

    def scalar(self, node: Node, value: Value, what: str) -> ir.Expr:
        """Supplied by `Operations`."""
        raise AssertionError("Operations.scalar")

    def integer(self, node: Node, value: Value, what: str) -> int:
        """Supplied by `Operations`."""
        raise AssertionError("Operations.integer")

    def tile(self, node: Node, value: Value, what: str) -> ir.TileRef:
        """A register tile."""
        if isinstance(value, ir.TileRef):
            return value
        hint = ""
        if isinstance(value, ir.View):
            hint = "; load it first with tw.load"
        elif isinstance(value, ir.BufRef | SharedBuffer):
            hint = "; load it first with tw.load_shared"
        elif isinstance(value, Barriers | ir.BarRef):
            hint = "; barriers hold no data"
        raise self.fault("TW003", f"{what} is a register tile, not {describe(value)}{hint}", node)

    def extent(self, node: Node, value: Value) -> int:
        """The extent of a tile: a power of two, or a sum of few, which expansion keeps in pieces."""
        size = self.integer(node, value, "the extent of a tile")
        parts = parts_of(max(size, 0))
        if len(parts) == 1 or (2 <= len(parts) <= _MOST_PIECES and parts[-1] >= _SMALLEST_PIECE):
            return size
        below = 1 << (max(size, 1).bit_length() - 1)
        raise self.fault(
            "TW506",
            f"the extent of a tile is a power of two, or a sum of up to {_MOST_PIECES} of them from {_SMALLEST_PIECE} "
            f"on such as 96 = 64 + 32, not {size}; use {below} or {below * 2}",
            node,
        )

    def shape(self, node: Node, value: Value) -> tuple[int, ...]:
        """A tile shape."""
        shape = tuple(self.extent(node, v) for v in (value if isinstance(value, tuple) else (value,)))
        if not 1 <= len(shape) <= 4:
            raise self.fault("TW003", f"a tile has 1 to 4 dimensions, not {len(shape)}", node)
        return shape

    def whole_shape(self, node: Node, value: Value, where: str) -> tuple[int, ...]:
        """The shape of a tile in memory that its author lays out: powers of two only."""
        shape = self.shape(node, value)
        for size in shape:
            if size & (size - 1):
                raise self.fault("TW506", f"the extent of a tile in {where} is a power of two, not {size}", node)
        return shape

    def dtype(self, node: Node, value: Value) -> DType:
        """An element type."""
        if isinstance(value, DType):
            return value
        raise self.fault("TW004", f"an element type such as f16 is needed here, not {describe(value)}", node)

    def view(self, node: Node, value: Value) -> ir.View:
        """A tile of a tensor."""
        if isinstance(value, ir.View):
            return value
        if isinstance(value, TensorSlice) and len(value.prefix) == len(value.param.type.shape):
            return ir.View(value.param.name, value.prefix, (1,) * len(value.prefix), len(value.prefix), self.span(node))
        raise self.fault(
            "TW003",
            f"a tile of a tensor such as A.tile((row, column), (64, 64)) is needed, not {describe(value)}",
            node,
        )

    def scalar_load(self, node: Node, value: TensorSlice) -> Value:
        """One element as a scalar; supplied by `DataOperations`."""
        raise AssertionError("DataOperations.scalar_load")

    def view_type(self, view: ir.View) -> TileType:
        """The type of the tile that a view holds."""
        return TileType(self.tensors[view.tensor].type.dtype, view.tile_shape)

    # -------------------------------------------------------------------------------- creation

    def op_zeros(self, node: Node, dtype: Value, shape: Value) -> Value:
        return self.op_full(node, dtype, shape, Int(0))

    def op_full(self, node: Node, dtype: Value, shape: Value, value: Value) -> Value:
        type_ = TileType(self.dtype(node, dtype), self.shape(node, shape))
        if not type_.dtype.computes:
            raise self.fault("TW004", f"{type_.dtype} tiles are loaded or cast; fill f32 and cast it", node)
        if isinstance(value, ir.TileRef) and self.tile_type(value).shape == ():
            if self.tile_type(value).dtype != type_.dtype:
                raise self.fault(
                    "TW004", f"the tile is {type_.dtype}, its value {self.tile_type(value).dtype}: cast it first", node
                )
            return self.compute(node, "broadcast", (value,), type_)
        if not isinstance(value, float | Int | ex.Size | ex.Var | ex.Bin | ex.Not):
            raise self.fault("TW003", f"a tile is filled with a number, not {describe(value)}", node)
        number = float(value.value) if type_.dtype.is_float and isinstance(value, Int) else value
        return self.compute(node, "full", (number,), type_)

    def op_arange(self, node: Node, n: Value) -> Value:
        return self.compute(node, "arange", (), TileType(i32, (self.extent(node, n),)))

    # -------------------------------------------------------------------------------- memory

    def op_load(self, node: Node, view: Value, *, other: Value = None, via: Value = "auto") -> Value:
        if isinstance(view, TensorSlice) and len(view.prefix) == len(view.param.type.shape):
            if other is not None or via != "auto":
                raise self.fault("TW009", "the load of one element takes neither other= nor via=", node)
            return self.scalar_load(node, view)
        source = self.view(node, view)
        if via not in ("auto", "direct", "cp_async", "tma", "buffer"):
            raise self.fault("TW009", f"via is {_LOADS}, not {describe(via)}", node)
        fill = self.fill(node, other, self.view_type(source).dtype)
        if via in ("tma", "cp_async") and fill not in (None, 0.0):
            raise self.fault(
                "TW009",
                f'via="{via}" fills what lies outside the tensor with zeros; other={fill:g} needs via="direct"',
                node,
            )
        dst = self.fresh()
        self.types[dst] = self.view_type(source)
        self.emit(ir.Load(dst, source, fill, str(via), span=self.span(node)))  # pyright: ignore[reportArgumentType]
        return ir.TileRef(dst)

    def fill(self, node: Node, other: Value, dtype: DType) -> float | None:
        """The value of `other=` for elements of that type."""
        if other is None:
            return None
        if not isinstance(other, float | Int):
            raise self.fault("TW006", f"other= is a number known at compile time, not {describe(other)}", node)
        value = other if isinstance(other, float) else float(other.value)
        low, high = dtype.range
        if not dtype.is_float and not (low <= value <= high and value.is_integer()):
            raise self.fault("TW004", f"other={value:g} is no {dtype}: those are whole, from {low} to {high}", node)
        return value

    def op_store(self, node: Node, view: Value, tile: Value, *, via: Value = "auto") -> Value:
        target, source = self.view(node, view), self.tile(node, tile, "what is stored")
        if via not in ("auto", "direct", "tma", "buffer"):
            raise self.fault("TW009", f"a store goes via {_STORES}, not {describe(via)}", node)
        want, have = self.view_type(target), self.tile_type(source)
        if want.shape != have.shape:
            raise self.fault("TW003", f"the view is {list(want.shape)}, the tile {list(have.shape)}", node)
        if want.dtype != have.dtype:
            raise self.fault(
                "TW004",
                f"'{target.tensor}' holds {want.dtype}, the tile is {have.dtype}; cast it with .to({want.dtype})",
                node,
            )
        self.emit(ir.Store(target, source.name, str(via), span=self.span(node)))  # pyright: ignore[reportArgumentType]
        return None

    # -------------------------------------------------------------------------------- elementwise

    def floating(self, node: Node, name: ir.ComputeOp, x: Value) -> Value:
        """A function of floating-point tiles."""
        source = self.tile(node, x, f"the argument of {name}")
        type_ = self.tile_type(source)
        if not type_.dtype.is_float:
            raise self.fault("TW004", f"{name} of {type_.dtype}: cast with .to(f32) first", node)
        self.check_number(node, name, type_.dtype)
        return self.compute(node, name, (source,), type_)

    def op_exp(self, node: Node, x: Value) -> Value:
        return self.floating(node, "exp", x)

    def op_exp2(self, node: Node, x: Value) -> Value:
        return self.floating(node, "exp2", x)

    def op_log(self, node: Node, x: Value) -> Value:
        return self.floating(node, "log", x)

    def op_log2(self, node: Node, x: Value) -> Value:
        return self.floating(node, "log2", x)

    def op_sqrt(self, node: Node, x: Value) -> Value:
        return self.floating(node, "sqrt", x)

    def op_rsqrt(self, node: Node, x: Value) -> Value:
        return self.floating(node, "rsqrt", x)

    def op_sin(self, node: Node, x: Value) -> Value:
        return self.floating(node, "sin", x)

    def op_cos(self, node: Node, x: Value) -> Value:
        return self.floating(node, "cos", x)

    def op_tanh(self, node: Node, x: Value) -> Value:
        return self.floating(node, "tanh", x)

    def op_erf(self, node: Node, x: Value) -> Value:
        return self.floating(node, "erf", x)

    def op_sigmoid(self, node: Node, x: Value) -> Value:
        return self.floating(node, "sigmoid", x)

    def op_floor(self, node: Node, x: Value) -> Value:
        return self.floating(node, "floor", x)

    def op_abs(self, node: Node, x: Value) -> Value:
        source = self.tile(node, x, "the argument of abs")
        self.check_number(node, "abs", self.tile_type(source).dtype)
        return self.compute(node, "abs", (source,), self.tile_type(source))

    def op_maximum(self, node: Node, a: Value, b: Value) -> Value:
        return self.elementwise(node, "maximum", (a, b))

    def op_minimum(self, node: Node, a: Value, b: Value) -> Value:
        return self.elementwise(node, "minimum", (a, b))

    def op_where(self, node: Node, condition: Value, a: Value, b: Value) -> Value:
        cond = self.tile(node, condition, "the condition of where")
        type_ = self.tile_type(cond)
        if type_.dtype.kind != "bool":
            raise self.fault("TW004", f"the condition of where is a comparison, not {type_}", node)
        tiles = [self.tile_type(v) for v in (a, b) if isinstance(v, ir.TileRef)]
        if not tiles:
            raise self.fault("TW003", "where chooses between tiles, or a tile and a number", node)
        if len({t.dtype for t in tiles}) > 1:
            raise self.fault("TW004", f"where chooses between {tiles[0]} and {tiles[1]}: cast one with .to(…)", node)
        shape = self.broadcast_shapes(node, "where", [type_.shape, *(t.shape for t in tiles)])
        values: list[ir.Operand] = []
        for value in (a, b):
            if not isinstance(value, ir.TileRef | float | Int | ex.Size | ex.Var | ex.Bin | ex.Not):
                raise self.fault("TW003", f"where chooses between tiles and numbers, not {describe(value)}", node)
            values.append(value)
        return self.compute(node, "where", (cond, *values), TileType(tiles[0].dtype, shape))

    def method_to(self, node: Node, tile: Value, dtype: Value) -> Value:
        """`x.to(f16)`."""
        source, target = self.tile(node, tile, "what is cast"), self.dtype(node, dtype)
        type_ = self.tile_type(source)
        if type_.dtype == target:
            return source
        for one, other in ((type_.dtype, target), (target, type_.dtype)):
            if not one.computes and (not other.is_float or other == f64):
                raise self.fault("TW004", f"{type_.dtype} to {target}: cast by way of f32, .to(f32).to({target})", node)
        return self.compute(node, "cast", (source,), TileType(target, type_.shape))

    # -------------------------------------------------------------------------------- shape

    def op_broadcast(self, node: Node, x: Value, shape: Value) -> Value:
        source, target = self.tile(node, x, "the argument of broadcast"), self.shape(node, shape)
        type_ = self.tile_type(source)
        if self.broadcast_shapes(node, "broadcast", [type_.shape, target]) != target:
            raise self.fault("TW003", f"{list(type_.shape)} does not broadcast to {list(target)}", node)
        return self.compute(node, "broadcast", (source,), TileType(type_.dtype, target))

    def op_expand_dims(self, node: Node, x: Value, axis: Value) -> Value:
        source = self.tile(node, x, "the argument of expand_dims")
        type_, at = self.tile_type(source), self.integer(node, axis, "axis")
        if not 0 <= at <= len(type_.shape):
            raise self.fault("TW003", f"axis {at} is outside 0 … {len(type_.shape)}", node)
        return self.compute(
            node, "expand_dims", (source,), TileType(type_.dtype, (*type_.shape[:at], 1, *type_.shape[at:])), at
        )

    def op_transpose(self, node: Node, x: Value) -> Value:
        source = self.tile(node, x, "the argument of transpose")
        type_ = self.tile_type(source)
        if len(type_.shape) != 2:
            raise self.fault("TW003", f"transpose takes a tile of two dimensions, not {type_}", node)
        return self.compute(node, "transpose", (source,), TileType(type_.dtype, type_.shape[::-1]))

    def op_sum(self, node: Node, x: Value, axis: Value = None, *, keep_dims: Value = Int(0)) -> Value:
        return self.reduce(node, "sum", x, axis, keep_dims)

    def reduce(self, node: Node, name: ir.ComputeOp, x: Value, axis: Value, keep_dims: Value) -> Value:
        """A reduction over one axis; a tile of one dimension may leave the axis out."""
        source = self.tile(node, x, f"the argument of {name}")
        type_ = self.tile_type(source)
        if not type_.dtype.computes:
            self.check_number(node, name, type_.dtype)
        rank, at = len(type_.shape), self.axis(node, name, type_, axis)
        keep = bool(self.integer(node, keep_dims, "keep_dims"))
        if not keep and rank == 1:
            raise self.fault(
                "TW005",
                f"{name} over the only axis leaves one element, and scalars do not come from data; keep_dims=True "
                "keeps it as a tile, which broadcasts",
                node,
            )
        shape = (*type_.shape[:at], *((1,) if keep else ()), *type_.shape[at + 1 :])
        return self.compute(node, name, (source,), TileType(type_.dtype, shape), at, keep)

    def axis(self, node: Node, name: str, type_: TileType, axis: Value) -> int:
        """The axis that an operation works along, counted from the front; the only one may be left out."""
        rank = len(type_.shape)
        if axis is None and rank > 1:
            raise self.fault("TW005", f"{name} of {type_}: say which axis, for example axis={rank - 1}", node)
        at = 0 if axis is None else self.integer(node, axis, "axis")
        if not -rank <= at < rank:
            raise self.fault("TW003", f"axis {at} of a tile with {rank} dimension{'s' * (rank > 1)}", node)
        return at % rank

    # -------------------------------------------------------------------------------- matrix product

    def op_mma(self, node: Node, a: Value, b: Value, acc: Value, *, precision: Value = None) -> Value:
        left, right = self.tile(node, a, "a of mma"), self.tile(node, b, "b of mma")
        into = self.tile(node, acc, "the accumulator of mma")
        ta, tb, tc = self.tile_type(left), self.tile_type(right), self.tile_type(into)
        self.check_product(node, ta, tb, tc)
        rounding = self.precision(node, ta.dtype, precision)
        dst = self.fresh()
        self.types[dst] = tc
        self.emit(ir.Mma(dst, left.name, right.name, into.name, precision=rounding, span=self.span(node)))
        return ir.TileRef(dst)

    def precision(self, node: Node, element: DType, value: Value) -> Precision:
        """`precision=` of a product: f32 operands need one, as most matrix instructions round them to tf32."""
        if value not in (None, "tf32", "ieee"):
            raise self.fault("TW009", f'precision is "tf32" or "ieee", not {describe(value)}', node)
        if element != f32 and value is not None:
            raise self.fault("TW009", f"precision= is for f32 operands, these are {element}", node)
        if element == f32 and value is None:
            raise self.fault(
                "TW009",
                'say how f32 operands are multiplied: precision="tf32" (10 bits after the point, on tensor cores) or '
                '"ieee" (as they are, on AMD only)',
                node,
            )
        return "tf32" if value == "tf32" else "ieee" if value == "ieee" else ""

    def check_product(self, node: Node, ta: TileType, tb: TileType, tc: TileType) -> None:
        """Shapes (M, K) × (K, N) + (M, N), and element types that some target multiplies."""
        if any(len(t.shape) != 2 for t in (ta, tb, tc)):
            raise self.fault("TW003", f"a matrix product takes tiles of two dimensions, not {ta}, {tb}, {tc}", node)
        (m, k), (k2, n) = ta.shape, tb.shape
        if k != k2:
            raise self.fault(
                "TW003", f"a is {list(ta.shape)}, b is {list(tb.shape)}: {k} columns of a meet {k2} rows of b", node
            )
        if tc.shape != (m, n):
            raise self.fault("TW003", f"the product is {[m, n]}, the accumulator {list(tc.shape)}", node)
        if problem := type_problem(ta.dtype, tb.dtype, tc.dtype):
            raise self.fault("TW004", problem, node)
