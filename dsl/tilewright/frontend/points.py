"""Views of single elements, `A.at((rows, cols))`, and accesses with masks."""

from __future__ import annotations

from tree_sitter import Node

from tilewright.dtypes import i1, i32
from tilewright.frontend.bindings import SCALARS
from tilewright.frontend.data import DataOperations
from tilewright.frontend.values import Points, Tensor, TensorSlice, Value, describe
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType


class PointOperations(DataOperations):
    """Loads and stores whose elements lie where index tiles say."""

    def method_at(self, node: Node, tensor: Value, index: Value) -> Value:
        """`A.at((rows, cols))`, also of `A[b]`: one element for each element of the index tiles."""
        assert isinstance(tensor, Tensor | TensorSlice)
        prefix = tensor.prefix if isinstance(tensor, TensorSlice) else ()
        name, rank = tensor.param.name, len(tensor.param.type.shape) - len(prefix)
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != rank:
            raise self.fault(
                "TW003",
                f"'{name}' has {rank} dimension{'s' * (rank != 1)}{' left' * bool(prefix)}; .at takes as many indices, "
                f"not {len(given)}",
                node,
            )
        shapes: list[tuple[int, ...]] = []
        for value in given:
            if isinstance(value, ir.TileRef):
                type_ = self.tile_type(value)
                if type_.dtype != i32:
                    raise self.fault("TW004", f"an index is an i32 tile, not {type_}; cast it with .to(i32)", node)
                shapes.append(type_.shape)
            elif not isinstance(value, SCALARS):
                raise self.fault("TW003", f"an index is an i32 tile or an integer scalar, not {describe(value)}", node)
        if not shapes:
            raise self.fault(
                "TW003", f"all indices are scalars; write {name}[…] for one element, or give .tile(…) a shape", node
            )
        shape = self.broadcast_shapes(node, "at", shapes)
        rank = len(shape)
        index = tuple(self.lifted(node, v, rank) if isinstance(v, ir.TileRef) else v for v in given)
        return Points(name, (*prefix, *(v for v in index if isinstance(v, ir.TileRef | ir.Expr))), shape)

    def lifted(self, node: Node, tile: ir.TileRef, rank: int) -> ir.TileRef:
        """The tile with axes of extent 1 in front, up to `rank` axes, under a name of its own."""
        type_ = self.tile_type(tile)
        while len(type_.shape) < rank:
            type_ = TileType(type_.dtype, (1, *type_.shape))
            tile = self.compute(node, "expand_dims", (tile,), type_, 0)
        return self.named(tile, "index")

    def mask_of(self, node: Node, mask: Value, shape: tuple[int, ...]) -> ir.TileRef | None:
        """`mask=`: truth values that broadcast to the shape of a view."""
        if mask is None:
            return None
        found = self.tile(node, mask, "mask=")
        type_ = self.tile_type(found)
        if type_.dtype != i1:
            raise self.fault("TW004", f"mask= is a comparison, not {type_}", node)
        if self.broadcast_shapes(node, "mask", [type_.shape, shape]) != shape:
            raise self.fault("TW003", f"the mask is {list(type_.shape)}, the view {list(shape)}", node)
        return self.lifted(node, found, len(shape))

    def points_of(self, node: Node, view: ir.View) -> tuple[Points, ir.TileRef]:
        """A rectangular view element by element, and the truth values of its elements inside of the tensor."""
        shape, extents = view.tile_shape, self.tensors[view.tensor].type.shape
        index: list[ir.Operand] = list(view.origin[: view.lead])
        inside: ir.TileRef | None = None
        for axis, (origin, length) in enumerate(zip(view.origin[view.lead :], shape, strict=True)):
            tile = self.compute(node, "arange", (), TileType(i32, (length,)))
            if origin != Int(0):
                tile = self.compute(node, "add", (tile, origin), TileType(i32, (length,)))
            for other in range(len(shape)):
                if other != axis:
                    before = self.tile_type(tile).shape
                    at = 0 if other < axis else len(before)
                    tile = self.compute(
                        node, "expand_dims", (tile,), TileType(i32, (*before[:at], 1, *before[at:])), at
                    )
            tile = self.named(tile, f"{view.tensor}_at")
            index.append(tile)
            own = TileType(i1, self.tile_type(tile).shape)
            bound = self.compute(node, "lt", (tile, extents[view.lead + axis]), own)
            if inside is None:
                inside = self.named(bound, f"{view.tensor}_inside")
            else:
                whole = TileType(i1, self.broadcast_shapes(node, "mask", [self.tile_type(inside).shape, own.shape]))
                inside = self.named(self.compute(node, "and", (inside, bound), whole), f"{view.tensor}_inside")
        assert inside is not None
        return Points(view.tensor, tuple(index), shape), inside

    def chosen_points(self, node: Node, view: Value, mask: Value) -> tuple[Points, ir.TileRef | None]:
        """The elements of a view, and which of them are accessed; those of a rectangular view must be inside."""
        if isinstance(view, Points):
            return view, self.mask_of(node, mask, view.shape)
        points, inside = self.points_of(node, self.view(node, view))
        return points, self.both(node, inside, self.mask_of(node, mask, points.shape))

    # -------------------------------------------------------------------------------- accesses

    def op_load(
        self, node: Node, view: Value, *, mask: Value = None, other: Value = None, via: Value = "auto"
    ) -> Value:
        if mask is None and not isinstance(view, Points):
            return super().op_load(node, view, other=other, via=via)
        if via not in ("auto", "direct", "cp_async"):
            raise self.fault(
                "TW009",
                f'a load by index tiles or with a mask goes via "auto", "direct" or "cp_async", not {describe(via)}',
                node,
            )
        if mask is not None and other is None:
            raise self.fault("TW005", "a load with mask= needs other=, the value of the elements left out", node)
        points, chosen = self.chosen_points(node, view, mask)
        fill = self.fill(node, other, self.tensors[points.tensor].type.dtype)
        if chosen is None and fill is not None:
            raise self.fault(
                "TW005", "other= of a load by index tiles is the value where mask= is false; there is no mask", node
            )
        if via == "cp_async" and fill:
            raise self.fault(
                "TW009",
                f"copies into shared memory fill with zeros what is left out; other={fill:g} is not possible here",
                node,
            )
        type_ = TileType(self.tensors[points.tensor].type.dtype, points.shape)
        dst = self.fresh()
        self.types[dst] = type_
        way = "cp_async" if via == "cp_async" else "direct"
        self.emit(ir.Gather(dst, points.tensor, points.index, chosen, fill, way, span=self.span(node)))
        return ir.TileRef(dst)

    def op_cp_async(self, node: Node, view: Value, dst: Value, *, mask: Value = None) -> Value:
        if mask is None and not isinstance(view, Points):
            return super().op_cp_async(node, view, dst)
        ref = self.whole_stage(node, dst, "the target of cp_async")
        want = self.stage_type(ref)
        points, chosen = self.chosen_points(node, view, mask)
        have = TileType(self.tensors[points.tensor].type.dtype, points.shape)
        if have.shape != want.shape or have.dtype != want.dtype:
            raise self.fault(
                "TW003", f"the view is {have}, a stage of '{ref.buffer}' is {want.dtype}{list(want.shape)}", node
            )
        self.emit(ir.CpGather(ref, points.tensor, points.index, chosen, span=self.span(node)))
        return None

    def op_store(self, node: Node, view: Value, tile: Value, *, mask: Value = None, via: Value = "auto") -> Value:
        if mask is None and not isinstance(view, Points):
            return super().op_store(node, view, tile, via=via)
        if via not in ("auto", "direct"):
            raise self.fault(
                "TW009", f'a store by index tiles or with a mask goes via "auto" or "direct", not {describe(via)}', node
            )
        source = self.named(self.tile(node, tile, "what is stored"), "stored")
        points, chosen = self.chosen_points(node, view, mask)
        want, have = TileType(self.tensors[points.tensor].type.dtype, points.shape), self.tile_type(source)
        if want.shape != have.shape:
            raise self.fault("TW003", f"the view is {list(want.shape)}, the tile {list(have.shape)}", node)
        if want.dtype != have.dtype:
            raise self.fault(
                "TW004",
                f"'{points.tensor}' holds {want.dtype}, the tile is {have.dtype}; cast it with .to({want.dtype})",
                node,
            )
        self.emit(ir.Scatter(points.tensor, points.index, source.name, chosen, span=self.span(node)))
        return None

    def both(self, node: Node, inside: ir.TileRef, mask: ir.TileRef | None) -> ir.TileRef:
        """The elements inside of the tensor that the mask chooses."""
        if mask is None:
            return inside
        shape = self.broadcast_shapes(node, "mask", [self.tile_type(inside).shape, self.tile_type(mask).shape])
        return self.named(self.compute(node, "and", (inside, mask), TileType(i1, shape)), "mask")
