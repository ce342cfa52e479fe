"""Operations of the instruction level: shared memory, barriers, asynchronous copies, wgmma, fences."""

from __future__ import annotations

from dataclasses import replace

from tree_sitter import Node

from tilewright.frontend.layout_operations import LayoutOperations
from tilewright.frontend.values import Barriers, SharedBuffer, Value, describe
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.stages import seen
from tilewright.ir.types import BarrierType, SharedType, TileType
from tilewright.layout import LayoutError, Swizzled, SwizzledShared, default_swizzle


class AsynchronousOperations(LayoutOperations):
    """Operations that name hardware resources."""

    # -------------------------------------------------------------------------------- allocation

    def op_shared(
        self, node: Node, dtype: Value, shape: Value, *, layout: Value = None, ring: Value = Int(-1)
    ) -> Value:
        """Shared memory; it gets the name it is assigned to."""
        self.at_top(node, "shared memory")
        element, full = self.dtype(node, dtype), shape if isinstance(shape, tuple) else (shape,)
        flag = self.integer(node, ring, "ring")
        # Three dimensions read as a ring of two-dimensional tiles; ring= decides for other ranks.
        is_ring = len(full) == 3 if flag < 0 else bool(flag)
        stages = self.integer(node, full[0], "the number of stages") if is_ring else 1
        if stages < 1:
            raise self.fault("TW003", f"a ring has at least one stage, not {stages}", node)
        tile = self.whole_shape(node, full[1:] if is_ring else full, "shared memory")
        if layout is None:
            chosen = default_swizzle(tile, element.bits)
        elif isinstance(layout, Swizzled):
            chosen = replace(layout, element_bits=element.bits, rank=len(tile))
        elif isinstance(layout, SwizzledShared):
            chosen = layout
        else:
            raise self.fault(
                "TW505", f"shared memory takes tw.swizzled(…) or tw.swizzled_shared(…), not {describe(layout)}", node
            )
        try:
            chosen.linear(tile)
        except LayoutError as error:
            raise self.fault(
                "TW505", f"this layout does not fit a tile of {list(tile)} {element}: {error}", node
            ) from None
        name = self.allocation_name(node)
        self.types[name] = SharedType(element, tile, stages, is_ring, chosen)
        self.emit(ir.AllocShared(name, span=self.span(node)))
        return SharedBuffer(name)

    def op_barrier(self, node: Node, slots: Value = Int(1), *, arrivals: Value = Int(1)) -> Value:
        """Barriers; they get the name they are assigned to."""
        self.at_top(node, "barriers")
        count, needed = self.integer(node, slots, "the number of barriers"), self.integer(node, arrivals, "arrivals")
        if not 1 <= count <= 64 or not 1 <= needed < 1 << 20:
            raise self.fault(
                "TW009", f"1 to 64 barriers with at least one arrival each, not {count} with {needed}", node
            )
        name = self.allocation_name(node)
        self.types[name] = BarrierType(count, needed)
        self.emit(ir.AllocBarrier(name, span=self.span(node)))
        return Barriers(name)

    def at_top(self, node: Node, what: str) -> None:
        if self.in_role or self.loop_depth or self.depth:
            raise self.fault(
                "TW005", f"{what} is allocated at the top of the kernel, outside roles, loops and branches", node
            )

    def allocation_name(self, node: Node) -> str:
        parent = node.parent
        left = parent.child_by_field_name("left") if parent is not None and parent.type == "assignment" else None
        if left is None or left.type != "identifier" or self.calls:
            raise self.fault("TW005", "an allocation is assigned to a name of its own", node)
        name = (left.text or b"").decode()
        if name in self.types:
            raise self.fault("TW005", f"'{name}' is allocated or assigned already", node)
        return name

    # -------------------------------------------------------------------------------- operands

    def op_transpose(self, node: Node, x: Value) -> Value:
        if not isinstance(x, ir.BufRef | SharedBuffer):
            return super().op_transpose(node, x)
        ref = self.stage(node, x, "what is transposed")
        try:
            seen(self.types, replace(ref, transposed=True))
        except LayoutError as error:
            raise self.fault("TW505", f"'{ref.buffer}': {error}", node) from None
        return replace(ref, transposed=not ref.transposed)

    def op_trans(self, node: Node, x: Value) -> Value:
        return self.op_transpose(node, x)

    def stage(self, node: Node, value: Value, what: str) -> ir.BufRef:
        """One stage of a shared buffer, as it lies or transposed."""
        if isinstance(value, ir.BufRef) and isinstance(self.types[value.buffer], SharedType):
            return value
        if isinstance(value, SharedBuffer):
            type_ = self.types[value.name]
            assert isinstance(type_, SharedType)
            if not type_.ring:
                return ir.BufRef(value.name, Int(0))
            raise self.fault(
                "TW003", f"'{value.name}' is a ring of {type_.stages} stages: say which, {value.name}[stage]", node
            )
        raise self.fault("TW003", f"{what} is a stage of shared memory, not {describe(value)}", node)

    def whole_stage(self, node: Node, value: Value, what: str) -> ir.BufRef:
        """One stage as it lies, for what writes or copies it."""
        ref = self.stage(node, value, what)
        if ref.transposed:
            raise self.fault(
                "TW003",
                f"{what} is a stage as it lies; '{ref.buffer}' transposed can be read by load_shared and by matrix "
                "instructions",
                node,
            )
        return ref

    def stage_type(self, ref: ir.BufRef) -> SharedType:
        return seen(self.types, ref)

    def slot_of(self, node: Node, value: Value) -> ir.BarRef:
        """One slot of a barrier."""
        if isinstance(value, ir.BarRef):
            return value
        if isinstance(value, Barriers):
            type_ = self.types[value.name]
            assert isinstance(type_, BarrierType)
            if type_.slots == 1:
                return ir.BarRef(value.name, Int(0))
            raise self.fault("TW003", f"'{value.name}' has {type_.slots} barriers: say which, {value.name}[slot]", node)
        raise self.fault("TW003", f"a barrier is needed here, not {describe(value)}", node)

    def matching(self, node: Node, view: Value, buffer: Value, what: str) -> tuple[ir.View, ir.BufRef]:
        """A view and a stage of the same shape and element type."""
        source, ref = self.view(node, view), self.whole_stage(node, buffer, what)
        have, want = self.view_type(source), self.stage_type(ref)
        if have.shape != want.shape or have.dtype != want.dtype:
            raise self.fault(
                "TW003", f"the view is {have}, a stage of '{ref.buffer}' is {want.dtype}{list(want.shape)}", node
            )
        return source, ref

    # -------------------------------------------------------------------------------- barriers

    def op_wait(self, node: Node, bar: Value, parity: Value) -> Value:
        ref = self.slot_of(node, bar)
        self.emit(ir.BarrierWait(ref, self.scalar(node, parity, "the parity"), span=self.span(node)))
        return None

    def op_arrive(self, node: Node, bar: Value) -> Value:
        self.emit(ir.BarrierArrive(self.slot_of(node, bar), span=self.span(node)))
        return None

    def op_expect(self, node: Node, bar: Value, bytes: Value) -> Value:
        ref = self.slot_of(node, bar)
        self.emit(ir.BarrierExpect(ref, self.scalar(node, bytes, "the number of bytes"), span=self.span(node)))
        return None

    # -------------------------------------------------------------------------------- copies

    def op_tma_load(self, node: Node, view: Value, dst: Value, bar: Value) -> Value:
        source, ref = self.matching(node, view, dst, "the target of tma_load")
        self.emit(ir.TmaLoad(source, ref, self.slot_of(node, bar), span=self.span(node)))
        return None

    def op_tma_store(self, node: Node, view: Value, src: Value) -> Value:
        target, ref = self.matching(node, view, src, "the source of tma_store")
        self.emit(ir.TmaStore(target, ref, span=self.span(node)))
        return None

    def op_tma_store_wait(self, node: Node, pending: Value) -> Value:
        self.emit(ir.TmaStoreWait(self.pending(node, pending), span=self.span(node)))
        return None

    def op_cp_async(self, node: Node, view: Value, dst: Value) -> Value:
        source, ref = self.matching(node, view, dst, "the target of cp_async")
        self.emit(ir.CpAsync(source, ref, span=self.span(node)))
        return None

    def op_cp_commit(self, node: Node) -> Value:
        self.emit(ir.CpCommit(span=self.span(node)))
        return None

    def op_cp_wait(self, node: Node, pending: Value) -> Value:
        self.emit(ir.CpWait(self.pending(node, pending), span=self.span(node)))
        return None

    def pending(self, node: Node, value: Value) -> int:
        count = self.integer(node, value, "the number of pending groups")
        if count < 0:
            raise self.fault("TW003", f"the number of pending groups is not negative, {count} is", node)
        return count

    def op_load_shared(self, node: Node, src: Value) -> Value:
        ref = self.stage(node, src, "the source of load_shared")
        type_, dst = self.stage_type(ref), self.fresh()
        self.types[dst] = TileType(type_.dtype, type_.shape)
        self.emit(ir.SharedLoad(dst, ref, span=self.span(node)))
        return ir.TileRef(dst)

    def op_store_shared(self, node: Node, dst: Value, tile: Value) -> Value:
        ref = self.whole_stage(node, dst, "the target of store_shared")
        source = self.tile(node, tile, "what is stored")
        want, have = self.stage_type(ref), self.tile_type(source)
        if want.shape != have.shape or want.dtype != have.dtype:
            raise self.fault(
                "TW003", f"a stage of '{ref.buffer}' is {want.dtype}{list(want.shape)}, the tile {have}", node
            )
        self.emit(ir.SharedStore(ref, source.name, span=self.span(node)))
        return None

    # -------------------------------------------------------------------------------- wgmma, fences

    def op_wgmma(self, node: Node, a: Value, b: Value, acc: Value) -> Value:
        # Operand A may be in registers; B never is (PTX ISA, wgmma.mma_async).
        left = a if isinstance(a, ir.TileRef) else self.stage(node, a, "a of wgmma")
        if isinstance(b, ir.TileRef):
            raise self.fault("TW003", "b of wgmma is read from shared memory; only a may be a register tile", node)
        right = self.stage(node, b, "b of wgmma")
        into = self.tile(node, acc, "the accumulator of wgmma")
        ta = self.tile_type(left) if isinstance(left, ir.TileRef) else self.stage_type(left)
        tb, tc = self.stage_type(right), self.tile_type(into)
        self.check_product(node, TileType(ta.dtype, ta.shape), TileType(tb.dtype, tb.shape), tc)
        dst = self.fresh()
        self.types[dst] = tc
        self.emit(ir.Wgmma(dst, left, right, into.name, span=self.span(node)))
        return ir.TileRef(dst)

    def op_wgmma_wait(self, node: Node, pending: Value) -> Value:
        self.emit(ir.WgmmaWait(self.pending(node, pending), span=self.span(node)))
        return None

    def op_fence_async(self, node: Node) -> Value:
        self.emit(ir.FenceAsync(span=self.span(node)))
        return None

    def op_sync(self, node: Node) -> Value:
        self.emit(ir.Sync(span=self.span(node)))
        return None
