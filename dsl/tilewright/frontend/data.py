"""Operations on data that decides where other data lies: elements read as scalars, and contracts about them."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from tilewright.frontend.bindings import SCALARS
from tilewright.frontend.tags import TagOperations
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import Condition, TensorSlice, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Item, Var
from tilewright.ir.types import ScalarType, TileType

# Scalars have 32 bits and a sign; wider elements would lose some.
_SCALAR_ELEMENTS = ("i32", "i16", "i8", "u16", "u8")


class DataOperations(TagOperations):
    """Elements of index tensors, in the body (`tw.load(OFFSETS[e])`) and in contracts (`tw.assume(lambda e: …)`)."""

    # -------------------------------------------------------------------------------- contracts

    def op_assume(self, node: Node, condition: Value) -> Value:
        bound: tuple[str, ...] = ()
        if isinstance(condition, Condition):
            bound, condition = condition.parameters, condition.body
        cond = ex.substitute(self.scalar(node, condition, "an assumption"), self.initial)
        loose = sorted({e.name for e in ex.walk(cond) if isinstance(e, Var)} - set(bound))
        if loose:
            raise self.fault(
                "TW005",
                "an assumption speaks of sizes, of scalar arguments or of elements of tensors; this one names "
                f"'{loose[0]}', a variable of the kernel",
                node,
            )
        if self.in_role or self.loop_depth:
            raise self.fault("TW005", "assumptions stand at the top of the kernel, outside loops and roles", node)
        if cond == Int(0):
            raise self.fault("TW006", "this assumption is never true", node)
        used = list(ex.items(cond))
        unused = [n for n in bound if not any(n in ex.names(i) for i in used)]
        if bound and unused:
            raise self.fault("TW005", f"'{unused[0]}' indexes no tensor in this assumption, so it has no range", node)
        if used:
            self.contracts.append(ir.Contract(cond, bound, self.span(node)))
        elif not isinstance(cond, Int) and cond not in [a.expr for a in self.assumptions]:
            self.assumptions.append(ir.Assumption(cond, self.span(node)))
        return None

    def lambda_node(self, node: Node) -> Value:
        """`lambda e: OFFSETS[e] <= OFFSETS[e + 1]`, the argument of `tw.assume`."""
        if not self.in_contract:
            raise self.fault("TW005", "lambda is not supported but in tw.assume, tw.tag and tw.expect", node)
        parameters = child(node, "parameters")
        names = [n for n in (parts(parameters) if parameters is not None else [])]
        if not names or any(n.type != "identifier" for n in names):
            raise self.fault("TW005", "the lambda of a contract names its indices: lambda e: …", node)
        bound = tuple(text(n) for n in names)
        if len(set(bound)) < len(bound):
            raise self.fault("TW005", "the lambda of a contract names an index twice", node)
        saved = dict(self.names)
        try:
            self.names |= {n: Var(n) for n in bound}
            body = self.evaluate(need(node, "body"))
        finally:
            self.names = saved
        if not isinstance(body, SCALARS):
            raise self.fault("TW003", f"a contract is a condition, not {describe(body)}", node)
        return Condition(bound, body)

    def element(self, node: Node, value: TensorSlice) -> Item:
        """An element of an index tensor inside a contract."""
        self.check_index_tensor(node, value, "a contract speaks of")
        return Item(value.param.name, value.prefix)

    def check_index_tensor(self, node: Node, value: TensorSlice, what: str) -> None:
        dtype = value.param.type.dtype
        if dtype.name not in _SCALAR_ELEMENTS:
            hint = "; convert the tensor to i32 before the launch" if dtype.kind in ("int", "uint") else ""
            raise self.fault(
                "TW004",
                f"{what} integers of at most 32 bits with a sign ({', '.join(_SCALAR_ELEMENTS)}), but "
                f"'{value.param.name}' holds {dtype}{hint}",
                node,
            )

    # -------------------------------------------------------------------------------- scalar loads

    def scalar_load(self, node: Node, value: TensorSlice) -> Value:
        """`tw.load(OFFSETS[e])`: one element as a scalar, which places and bounds may use, or a tile of shape ()."""
        if value.param.type.dtype.is_float:
            rank = len(value.prefix)
            dst, view = self.fresh(), ir.View(value.param.name, value.prefix, (1,) * rank, rank, self.span(node))
            self.types[dst] = TileType(value.param.type.dtype, ())
            self.emit(ir.Load(dst, view, None, "direct", span=self.span(node)))
            return ir.TileRef(dst)
        self.check_index_tensor(node, value, "a scalar is loaded from floating point or")
        dst = self.unique(f"{value.param.name}_at", ScalarType())
        self.loaded_scalars.add(dst)
        self.emit(ir.Assign(dst, Item(value.param.name, value.prefix), span=self.span(node)))
        return Var(dst)

    def stored_index_tensors(self) -> Iterator[tuple[str, str]]:
        """Tensors whose elements are taken as fixed although the kernel stores to them, and what takes them so."""
        block = tuple(self.block)
        stored: set[str] = set()
        for stmt in ir.walk(block):
            if isinstance(stmt, ir.Store | ir.TmaStore | ir.Atomic):
                stored.add(stmt.view.tensor)
            elif isinstance(stmt, ir.Scatter):
                stored.add(stmt.tensor)
        for stmt in ir.walk(block):
            if isinstance(stmt, ir.Assign) and isinstance(stmt.value, Item) and stmt.value.tensor in stored:
                yield stmt.value.tensor, f"loads scalars from '{stmt.value.tensor}'"
        for contract in self.contracts:
            for item in ex.items(contract.expr):
                if item.tensor in stored:
                    yield item.tensor, f"assumes something of the elements of '{item.tensor}'"
