"""What a kernel does to global memory besides loads and stores: atomic updates, and what its arguments hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from tree_sitter import Node

from tilewright.dtypes import bf16, f16, f32, i1, i32, u32
from tilewright.frontend.points import PointOperations
from tilewright.frontend.values import Points, Tensor, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import TileType

# What every target has an instruction for, or what the compiler makes of it exactly (Triton 3.6, atomic_rmw).
_ADDED, _ORDERED = (f16, bf16, f32, i32, u32), (f32, i32, u32)


class MemoryOperations(PointOperations):
    """Atomic updates, and declarations about tensor arguments."""

    def op_atomic_add(self, node: Node, view: Value, value: Value, *, mask: Value = None) -> Value:
        return self.atomic(node, "add", view, value, mask)

    def op_atomic_max(self, node: Node, view: Value, value: Value, *, mask: Value = None) -> Value:
        return self.atomic(node, "max", view, value, mask)

    def op_atomic_min(self, node: Node, view: Value, value: Value, *, mask: Value = None) -> Value:
        return self.atomic(node, "min", view, value, mask)

    def atomic(
        self, node: Node, op: Literal["add", "max", "min"], view: Value, value: Value, mask: Value
    ) -> Value:  # fmt: skip
        target, name = view if isinstance(view, Points) else self.view(node, view), f"atomic_{op}"
        shape = target.shape if isinstance(target, Points) else target.tile_shape
        want = TileType(self.tensors[target.tensor].type.dtype, shape)
        fit = _ADDED if op == "add" else _ORDERED
        if want.dtype not in fit:
            raise self.fault(
                "TW004", f"{name} updates {', '.join(map(str, fit[:-1]))} or {fit[-1]}; '{target.tensor}' holds "
                f"{want.dtype}", node,
            )  # fmt: skip
        if not isinstance(value, ir.TileRef):
            value = self.filled(node, name, want, value)
        have = self.tile_type(value)
        if have.dtype != want.dtype:
            raise self.fault(
                "TW004", f"'{target.tensor}' holds {want.dtype}, the tile is {have.dtype}; cast it with "
                f".to({want.dtype})", node,
            )  # fmt: skip
        if have.shape == ():
            value = self.compute(node, "broadcast", (value,), want)
        elif have.shape != want.shape:
            raise self.fault("TW003", f"the view is {list(want.shape)}, the tile {list(have.shape)}", node)
        if isinstance(target, Points):
            value = self.named(value, "added")
            chosen = self.mask_of(node, mask, want.shape)
            self.emit(ir.Scatter(target.tensor, target.index, value.name, chosen, op, span=self.span(node)))
        else:
            chosen = None if mask is None else self.chosen(node, name, want, mask)
            self.emit(ir.Atomic(target, op, value.name, chosen, span=self.span(node)))
        return None

    def filled(self, node: Node, name: str, want: TileType, value: Value) -> ir.TileRef:
        """A tile of one number."""
        if not isinstance(value, float | Int | ex.Size | ex.Var | ex.Bin | ex.Not):
            raise self.fault("TW003", f"{name} takes a tile or a number, not {describe(value)}", node)
        if isinstance(value, float) and not want.dtype.is_float:
            raise self.fault("TW004", f"{value} is a fraction, and the view is {want.dtype}", node)
        if isinstance(value, Int) and not want.dtype.is_float:
            low, high = want.dtype.range
            if not low <= value.value <= high:
                raise self.fault(
                    "TW004", f"{value.value} does not fit {want.dtype}, which holds {low} to {high}", node
                )  # fmt: skip
        number = float(value.value) if want.dtype.is_float and isinstance(value, Int) else value
        return self.compute(node, "full", (number,), want)

    def chosen(self, node: Node, name: str, want: TileType, mask: Value) -> str:
        """The name of a tile of truth values in the shape of the view."""
        tile = self.tile(node, mask, f"the mask of {name}")
        have = self.tile_type(tile)
        if have.dtype != i1:
            raise self.fault("TW004", f"the mask of {name} is a comparison, not {have}", node)
        if self.broadcast_shapes(node, f"{name} with a mask", [have.shape, want.shape]) != want.shape:
            raise self.fault("TW003", f"the mask is {list(have.shape)}, the view {list(want.shape)}", node)
        if have.shape == want.shape:
            return tile.name
        return self.compute(node, "broadcast", (tile,), TileType(i1, want.shape)).name

    # -------------------------------------------------------------------------------- declarations

    def op_zeroed(self, node: Node, tensor: Value) -> Value:
        return self.holding(node, "zeroed", tensor, "zeros")

    def op_initialized(self, node: Node, tensor: Value) -> Value:
        return self.holding(node, "initialized", tensor, "values")

    def op_strides(self, node: Node, tensor: Value, strides: Value) -> Value:
        """`tw.strides(A, (LD, 1))`: where the elements of a tensor lie, in elements."""
        param = self.declared(node, "strides", tensor)
        values = strides if isinstance(strides, tuple) else (strides,)
        rank = len(param.type.shape)
        if len(values) != rank:
            raise self.fault(
                "TW003", f"'{param.name}' has {rank} dimension{'s' * (rank > 1)}, and {len(values)} "
                f"stride{'s are' if len(values) > 1 else ' is'} given", node,
            )  # fmt: skip
        found: list[ex.Expr] = []
        for value in values:
            if not isinstance(value, Int | ex.Size | ex.Var | ex.Bin | ex.Not) or not _is_positive(value):
                raise self.fault(
                    "TW003", "a stride is a size, a positive integer, or a product of them, in elements, not "
                    f"{describe(value)}", node,
                )  # fmt: skip
            found.append(value)
        self.tensors[param.name] = replace(param, type=replace(param.type, strides=tuple(found)))
        for room in apart(param.type.shape, found):
            if room == Int(0):
                text = ", ".join(map(ex.show, found))
                raise self.fault("TW006", f"with strides ({text}), elements of '{param.name}' share memory", node)
            assumption = ir.Assumption(room, self.span(node))
            if assumption.expr not in [a.expr for a in self.assumptions]:
                self.assumptions.append(assumption)
        return None

    def holding(self, node: Node, name: str, tensor: Value, given: Literal["zeros", "values"]) -> Value:
        """`tw.zeroed(C)`, `tw.initialized(C)`: what a tensor holds when the kernel starts."""
        param = self.declared(node, name, tensor)
        if param.given not in ("", given):
            raise self.fault("TW005", f"'{param.name}' is said to hold zeros and the caller's values", node)
        self.tensors[param.name] = replace(param, given=given)
        return None

    def declared(self, node: Node, name: str, tensor: Value) -> ir.Param:
        """The tensor argument of a declaration at the top of the kernel."""
        if not isinstance(tensor, Tensor):
            raise self.fault("TW003", f"tw.{name} is for a tensor argument, not {describe(tensor)}", node)
        if self.in_role or self.loop_depth or self.depth:
            raise self.fault("TW005", f"tw.{name} stands at the top of the kernel, outside loops and branches", node)
        return self.tensors[tensor.param.name]


def _is_positive(stride: ex.Expr) -> bool:
    match stride:
        case Int(value):
            return value >= 1
        case ex.Size(least=least):
            return least >= 1
        case ex.Bin("*", lhs, rhs):
            return _is_positive(lhs) and _is_positive(rhs)
        case _:
            return False


def apart(shape: Sequence[ex.Expr], strides: Sequence[ex.Expr]) -> list[ex.Expr]:
    """What must hold for the elements of a tensor not to share memory: each row ends before the next begins.

    Dimensions nest in the order of their strides where that is evident, else the last is the innermost. What always
    holds is left out.
    """
    order = list(reversed(range(len(strides))))
    for i in range(1, len(order)):
        at = i
        while at and _is_less(strides[order[at]], strides[order[at - 1]]):
            order[at - 1 : at + 1] = [order[at], order[at - 1]]
            at -= 1
    found: list[ex.Expr] = []
    for inner, outer in pairwise(order):
        needed = ex.mul(shape[inner], strides[inner])
        claim = ex.binary("<=", needed, strides[outer])
        if claim != Int(1) and _factors(needed) != _factors(strides[outer]):
            found.append(claim)
    return found


def _is_less(a: ex.Expr, b: ex.Expr) -> bool:
    """Whether one stride is evidently less than another: a factor of it."""
    if isinstance(a, Int) and isinstance(b, Int):
        return a.value < b.value
    mine, other = Counter(_factors(a)), Counter(_factors(b))
    return mine != other and mine <= other


def _factors(e: ex.Expr) -> list[str]:
    match e:
        case Int(1):
            return []
        case ex.Bin("*", lhs, rhs):
            return sorted(_factors(lhs) + _factors(rhs))
        case _:
            return [ex.show(e)]
