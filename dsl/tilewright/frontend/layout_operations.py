"""Layouts that are written in a kernel: of shared memory, and of tiles in registers."""

from __future__ import annotations

from collections.abc import Callable

from tree_sitter import Node

from tilewright.frontend.order_operations import OrderOperations
from tilewright.frontend.values import Value, describe
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import GIVEN
from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    LayoutError,
    Mfma,
    MmaV2,
    Slice,
    Swizzled,
    SwizzledShared,
    Wgmma,
)

_ACCUMULATORS = "mma_v2, wgmma or mfma"


class LayoutOperations(OrderOperations):
    """Constructors of layouts, and the operation that puts a tile into one."""

    def op_convert_layout(self, node: Node, x: Value, layout: Value) -> Value:
        """The tile in a layout that is obeyed; what makes a tile for this alone makes it there."""
        source = self.tile(node, x, "the argument of convert_layout")
        type_ = self.tile_type(source)
        of = self.distributed(node, layout, "the layout of a tile")
        if not type_.shape:
            raise self.fault("TW003", "a value without dimensions has no layout", node)
        try:
            of.linear(type_.shape)
        except LayoutError as error:
            raise self.fault("TW505", f"this layout does not fit {type_}: {error}", node) from None
        given = type_.with_layout(of, GIVEN)
        last = self.block[-1] if self.block else None
        if source.name.startswith("%") and getattr(last, "dst", None) == source.name and makes_any_layout(last):
            self.types[source.name] = given
            return source
        dst = self.fresh()
        self.types[dst] = given
        self.emit(ir.Compute(dst, "convert_layout", (source,), span=self.span(node)))
        return ir.TileRef(dst)

    # -------------------------------------------------------------------------------- registers

    def op_blocked(
        self, node: Node, size_per_thread: Value, threads_per_warp: Value, warps: Value, order: Value
    ) -> Value:
        """Blocks for each thread, threads of a warp and warps."""
        parts = (
            self.integers(node, size_per_thread, "size_per_thread"),
            self.integers(node, threads_per_warp, "threads_per_warp"),
            self.integers(node, warps, "warps"),
            self.integers(node, order, "order"),
        )
        return self.layout(node, lambda: Blocked(*parts))

    def op_sliced(self, node: Node, dim: Value, parent: Value) -> Value:
        """A layout without one of its dimensions."""
        of, axis = self.distributed(node, parent, "the parent of a slice"), self.integer(node, dim, "dim")
        if axis < 0:
            raise self.fault("TW505", f"the dimension of a slice is not negative, {axis} is", node)
        return Slice(axis, of)

    def op_accumulator(
        self, node: Node, instr: Value, warps: Value, shape: Value = None, *, generation: Value = Int(3)
    ) -> Value:
        """The accumulator of a matrix instruction."""
        rows, columns = self.pair(node, warps, "warps")
        if instr == "mma_v2":
            if shape is not None:
                raise self.fault("TW505", "mma_v2 has one accumulator, 16×8, and takes no shape", node)
            return self.layout(node, lambda: MmaV2((rows, columns)))
        if instr not in ("wgmma", "mfma"):
            raise self.fault("TW505", f"an accumulator is of {_ACCUMULATORS}, not {describe(instr)}", node)
        size = self.integers(node, shape, "the shape of an instruction") if shape is not None else ()
        if len(size) != 3:
            raise self.fault("TW505", f"{instr} takes the shape (M, N, K) of one instruction", node)
        m, n, k = size
        if instr == "mfma":
            cdna = self.integer(node, generation, "generation")
            return self.layout(node, lambda: Mfma((rows, columns), (m, n, k), cdna))
        if m != 64:
            raise self.fault("TW505", f"wgmma writes 64 rows, not {m} (PTX ISA, wgmma.mma_async)", node)
        return self.layout(node, lambda: Wgmma((rows, columns), (m // 4, n, k)))

    def op_dot_operand(self, node: Node, index: Value, parent: Value, k_width: Value) -> Value:
        """An operand of a matrix instruction in registers."""
        of = self.distributed(node, parent, "the parent of an operand")
        if not isinstance(of, MmaV2 | Wgmma | Mfma):
            raise self.fault("TW505", f"an operand belongs to an accumulator of {_ACCUMULATORS}, not to {of}", node)
        which, width = self.integer(node, index, "index"), self.integer(node, k_width, "k_width")
        return self.layout(node, lambda: DotOperand(which, of, width))

    def distributed(self, node: Node, value: Value, what: str) -> DistributedLayout:
        """A layout of registers."""
        if isinstance(value, Blocked | MmaV2 | Wgmma | Mfma | DotOperand | Slice):
            return value
        raise self.fault(
            "TW505",
            f"{what} is a layout of registers (tw.blocked, tw.sliced, tw.accumulator, tw.dot_operand), not "
            f"{describe(value)}",
            node,
        )

    def layout(self, node: Node, make: Callable[[], DistributedLayout]) -> DistributedLayout:
        """What `make` makes, its error as a problem at `node`."""
        try:
            return make()
        except LayoutError as error:
            raise self.fault("TW505", str(error), node) from None

    def integers(self, node: Node, value: Value, what: str) -> tuple[int, ...]:
        """A tuple of compile-time integers."""
        return tuple(
            self.integer(node, v, f"an entry of {what}") for v in (value if isinstance(value, tuple) else (value,))
        )

    def pair(self, node: Node, value: Value, what: str) -> tuple[int, int]:
        """Two compile-time integers."""
        got = self.integers(node, value, what)
        if len(got) != 2:
            raise self.fault(
                "TW505", f"{what} of a matrix instruction are two, for rows and columns, not {list(got)}", node
            )
        return got

    # -------------------------------------------------------------------------------- shared memory

    def op_swizzled(self, node: Node, bytes: Value) -> Value:
        """The layout of TMA and wgmma."""
        width = self.integer(node, bytes, "the width of a swizzle")
        if width not in (0, 32, 64, 128):
            raise self.fault("TW505", f"a swizzle is 0, 32, 64 or 128 bytes wide, not {width}", node)
        return Swizzled(width, 16)

    def op_swizzled_shared(self, node: Node, vec: Value, per_phase: Value, max_phase: Value) -> Value:
        """The layout of cp.async and ldmatrix."""
        try:
            return SwizzledShared(
                self.integer(node, vec, "vec"),
                self.integer(node, per_phase, "per_phase"),
                self.integer(node, max_phase, "max_phase"),
            )
        except LayoutError as error:
            raise self.fault("TW505", str(error), node) from None


def makes_any_layout(stmt: ir.Stmt | None) -> bool:
    """Whether a statement makes its tile in any layout at no cost."""
    return isinstance(stmt, ir.Load | ir.Gather | ir.SharedLoad) or (
        isinstance(stmt, ir.Compute) and stmt.op in ("full", "arange")
    )
