"""Operations on tensor memory: its allocation, tcgen05 products, and loads into registers (sm_100a)."""

from __future__ import annotations

from tree_sitter import Node

from tilewright.dtypes import f32
from tilewright.frontend.asynchronous import AsynchronousOperations
from tilewright.frontend.values import TensorBuffer, Value, describe
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TensorMemoryType, TileType
from tilewright.targets import TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_ROWS


class TensorMemoryOperations(AsynchronousOperations):
    """Accumulators outside of registers."""

    def op_tensor_memory(self, node: Node, dtype: Value, shape: Value) -> Value:
        """Tensor memory; it gets the name it is assigned to."""
        self.at_top(node, "tensor memory")
        element, full = self.dtype(node, dtype), shape if isinstance(shape, tuple) else (shape,)
        if element != f32:
            raise self.fault("TW004", f"accumulators in tensor memory are f32, not {element}", node)
        ring = len(full) == 3
        stages = self.integer(node, full[0], "the number of stages") if ring else 1
        tile = self.whole_shape(node, full[1:] if ring else full, "tensor memory")
        if stages < 1 or len(tile) != 2 or tile[0] not in TENSOR_MEMORY_ROWS or not 32 <= tile[1] <= 256:
            raise self.fault(
                "TW503",
                f"tensor memory holds accumulators of 64 or 128 rows and 32 to 256 columns, one or a ring "
                f"of at least one, not {list(tile)} {stages} times",
                node,
            )
        type_ = TensorMemoryType(element, tile, stages, ring)
        used = sum(t.columns for t in self.types.values() if isinstance(t, TensorMemoryType)) + type_.columns
        if used > TENSOR_MEMORY_COLUMNS:
            raise self.fault(
                "TW601",
                f"the accumulators take {used} columns of tensor memory; a block has {TENSOR_MEMORY_COLUMNS}: use "
                "fewer stages or narrower tiles",
                node,
            )
        name = self.allocation_name(node)
        self.types[name] = type_
        self.emit(ir.AllocTensor(name, span=self.span(node)))
        return TensorBuffer(name)

    def accumulator(self, node: Node, value: Value, what: str) -> ir.BufRef:
        """One stage of tensor memory."""
        if isinstance(value, ir.BufRef) and isinstance(self.types[value.buffer], TensorMemoryType):
            return value
        if isinstance(value, TensorBuffer):
            type_ = self.accumulator_type(value.name)
            if not type_.ring:
                return ir.BufRef(value.name, Int(0))
            raise self.fault(
                "TW003", f"'{value.name}' is a ring of {type_.stages} stages: say which, {value.name}[stage]", node
            )
        raise self.fault("TW003", f"{what} is in tensor memory (tw.tensor_memory), not {describe(value)}", node)

    def accumulator_type(self, name: str) -> TensorMemoryType:
        found = self.types[name]
        assert isinstance(found, TensorMemoryType)
        return found

    def op_tcgen05_mma(self, node: Node, a: Value, b: Value, acc: Value, bar: Value, *, accumulate: Value) -> Value:
        left, right = self.stage(node, a, "a of tcgen05_mma"), self.stage(node, b, "b of tcgen05_mma")
        into = self.accumulator(node, acc, "the accumulator of tcgen05_mma")
        ta, tb, tc = self.stage_type(left), self.stage_type(right), self.accumulator_type(into.buffer)
        self.check_product(
            node, TileType(ta.dtype, ta.shape), TileType(tb.dtype, tb.shape), TileType(tc.dtype, tc.shape)
        )
        again = self.scalar(node, accumulate, "accumulate")
        self.emit(ir.Tcgen05(into, left, right, again, self.slot_of(node, bar), span=self.span(node)))
        return None

    def op_tcgen05_commit(self, node: Node, bar: Value) -> Value:
        self.emit(ir.Tcgen05Commit(self.slot_of(node, bar), span=self.span(node)))
        return None

    def op_load_tensor(self, node: Node, src: Value) -> Value:
        ref = self.accumulator(node, src, "the source of load_tensor")
        type_, dst = self.accumulator_type(ref.buffer), self.fresh()
        self.types[dst] = TileType(type_.dtype, type_.shape)
        self.emit(ir.TensorLoad(dst, ref, span=self.span(node)))
        return ir.TileRef(dst)
