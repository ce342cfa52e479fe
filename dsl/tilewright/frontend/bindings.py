"""The names of a kernel under elaboration: what they stand for, and their names and types in Tile IR.

Python's names stand for values; Tile IR has variables that are overwritten. Where a value would be read after its
variable has changed (a swap, a tuple or a tile view kept in a name), it is stored under a name of its own first.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from tree_sitter import Node

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.frontend.fault import Fault, Silenced
from tilewright.frontend.tree import parts, text
from tilewright.frontend.values import (
    ElementTypes,
    Helper,
    Method,
    Points,
    RangeValue,
    RoleValue,
    TensorSlice,
    Unusable,
    Value,
    describe,
)
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir import tagging
from tilewright.ir.expr import Int, Var
from tilewright.ir.types import ScalarType, TileType, Type
from tilewright.problem import Problem, Related
from tilewright.source import Span

SCALARS_UNION = ex.Int | ex.Size | ex.Var | ex.Bin | ex.Not | ex.Item
SCALARS = (ex.Int, ex.Size, ex.Var, ex.Bin, ex.Not, ex.Item)
# Names that printed kernels use for something else.
_PRINTED = frozenset(("tw", "range", "min", "max", "float", "Global", "Const", *dtypes.ALL))


class Bindings:
    """The state of elaborating one kernel: names in scope, types given so far, the block being filled."""

    def __init__(self, base: int, scope: Mapping[str, Value], declarations: bool = False) -> None:
        self.base = base
        self.declarations = declarations  # at module level: names stand for values, nothing is emitted
        self.names: dict[str, Value] = dict(scope)
        self.types: dict[str, Type] = {}
        self.tensors: dict[str, ir.Param] = {}
        self.block: list[ir.Stmt] = []
        self.problems: list[Problem] = []
        self.wanted_types: Mapping[str, str] = {}  # for names of tw.element_types, what this instance is made for
        self.type_params: dict[str, ir.TypeParam] = {}  # those that the kernel uses
        self.types_read: list[str] = []
        self.assumptions: list[ir.Assumption] = []
        self.contracts: list[ir.Contract] = []
        self.in_contract = False  # inside the argument of tw.assume: elements of tensors are values
        self.loaded_scalars: set[str] = set()  # variables of the IR that scalar loads gave a name of their own
        self.counts: Counter[str] = Counter()
        self.temporaries = 0
        self.calls: list[Helper] = []
        self.call_span: Span | None = None
        self.returned: list[Value] | None = None
        self.uses: list[ir.TagUse] | None = None  # mentions of tags in the lambda being read
        self.own_tags: set[str] = set()  # names that tw.tag has given
        self.in_role = ""
        self.loop_depth: int = 0
        self.depth = 0  # blocks open inside the kernel or the helper being inlined
        self.call_number = 0  # the number of the helper call being inlined; 0 in the kernel itself
        self.helper_calls = 0
        self.static_depth = 0
        self.owners: dict[str, tuple[int, str]] = {}  # which name of which call a variable of the IR stands for
        self.changing: set[str] = set()  # variables of the IR that are assigned more than once
        self.initial: dict[str, ir.Expr] = {}  # variables that still have the value of a scalar argument
        self.reserved = _PRINTED | {v.name for v in scope.values() if isinstance(v, ex.Size)}

    # -------------------------------------------------------------------------------- places and problems

    def span(self, node: Node) -> Span:
        """The node's place relative to the kernel; inside an inlined helper, the place of the call."""
        return self.call_span or Span(node.start_byte - self.base, node.end_byte - self.base)

    def fault(self, code: str, message: str, node: Node, related: tuple[Related, ...] = ()) -> Fault:
        """An error to raise."""
        if self.call_span is not None and self.calls:
            message += f" (in the helper '{self.calls[-1].name}', at '{text(node).splitlines()[0][:60]}')"
        return Fault(Problem(code, message, self.span(node), "error", related))

    def emit(self, stmt: ir.Stmt) -> None:
        """Append a statement to the block being filled."""
        self.block.append(stmt)

    # -------------------------------------------------------------------------------- names

    def lookup(self, node: Node) -> Value:
        """The value of a name. Raises Fault for unknown and unusable names."""
        name = text(node)
        if name not in self.names:
            raise self.fault("TW002", f"'{name}' is not defined{self.suggestion(name)}", node)
        value = self.names[name]
        if isinstance(value, Unusable):
            if value.silent:
                raise Silenced
            related = (Related(value.span, "here"),) if value.span else ()
            raise self.fault(value.code, f"'{name}' {value.why}", node, related)
        return self.element_type(value, node) if isinstance(value, ElementTypes) and not self.declarations else value

    def element_type(self, types: ElementTypes, node: Node) -> DType:
        """The type that a name of `tw.element_types` stands for in this instance of the kernel."""
        held = self.type_params.get(types.name)
        if held is None:
            wanted = self.wanted_types.get(types.name, types.choices[0].name)
            value = next((t for t in types.choices if t.name == wanted), None)
            if value is None:
                known = ", ".join(map(str, types.choices))
                raise self.fault("TW009", f"'{types.name}' is one of the element types {known}, not {wanted}", node)
            held = self.type_params[types.name] = ir.TypeParam(types.name, value, types.choices)
        if held.choices != types.choices:
            raise self.fault(
                "TW004",
                f"two names '{types.name}' of element types meet here, of {', '.join(map(str, held.choices))} and of "
                f"{', '.join(map(str, types.choices))}; give one of them another name",
                node,
            )
        self.types_read.append(types.name)
        return held.value

    def suggestion(self, name: str) -> str:
        """' — did you mean …?' when a known name is close."""
        if hasattr(builtins, name):
            return ": this is Python's, and the body of a kernel is not run as Python"
        close = get_close_matches(name, [n for n, v in self.names.items() if not isinstance(v, Unusable)], 1, 0.7)
        return f"; did you mean '{close[0]}'?" if close else ""

    def fresh(self) -> str:
        """The name of a new temporary."""
        self.temporaries += 1
        return f"%{self.temporaries}"

    def new_name(self, wanted: str, type_: Type) -> str:
        """The variable of the IR for a name of the source; numbered when another value or type has that variable."""
        owner = self.call_number, wanted
        base = f"{self.calls[-1].name}_{wanted}" if self.calls else wanted
        name, n = base, 1
        while not self.free(name) and (self.types.get(name), self.owners.get(name)) != (type_, owner):
            n += 1
            name = f"{base}_{n}"
        self.types[name], self.owners[name] = type_, owner
        if self.counts[wanted] > 1 or self.static_depth:
            self.changing.add(name)
        return name

    def free(self, name: str) -> bool:
        """True for a variable that nothing uses yet."""
        return name not in self.types and name not in self.reserved and name not in self.tensors

    def unique(self, wanted: str, type_: Type) -> str:
        """A new variable of the IR, assigned once."""
        name, n = wanted, 1
        while not self.free(name):
            n += 1
            name = f"{wanted}_{n}"
        self.types[name] = type_
        return name

    def tile_type(self, ref: ir.TileRef) -> TileType:
        """Element type and shape of a register tile; what is computed from it does not take its layout along."""
        found = self.types[ref.name]
        assert isinstance(found, TileType)
        return found.bare

    # -------------------------------------------------------------------------------- assignment

    def bind(self, target: Node, value: Value, node: Node) -> None:
        """Bind a value to the target of an assignment."""
        if target.type in ("pattern_list", "tuple_pattern"):
            targets = parts(target)
            if not isinstance(value, tuple) or len(value) != len(targets):
                raise self.fault("TW003", f"{len(targets)} names on the left, {describe(value)} on the right", node)
            written: set[str] = set()
            values: list[Value] = []
            for t, v in zip(targets, value, strict=True):
                # All values are those from before the assignment: a, b = b, a.
                values.append(self.kept(v, text(t), node, written.__contains__) if written else v)
                written |= {n for n, owner in self.owners.items() if owner == (self.call_number, text(t))}
            for t, v in zip(targets, values, strict=True):
                self.bind(t, v, node)
            return
        if target.type != "identifier":
            raise self.fault(
                "TW005", "only names can be assigned; write to memory with tw.store or tw.store_shared", target
            )
        name = text(target)
        if isinstance(value, SCALARS):
            self.bind_scalar(name, value, node)
        elif isinstance(value, ir.TileRef):
            self.names[name] = self.bind_tile(name, value, node)
        elif isinstance(value, Unusable | RoleValue | RangeValue):
            raise self.fault("TW005", f"{describe(value)} cannot be assigned to a name", node)
        else:
            self.names[name] = value if self.declarations else self.kept(value, name, node, self.changing.__contains__)

    def bind_scalar(self, name: str, value: ir.Expr, node: Node) -> None:
        """A scalar assigned once with a known value stays a compile-time value; others become variables."""
        if self.declarations or (isinstance(value, Int | ex.Size) and self.counts[name] <= 1):
            self.names[name] = value
            return
        last = self.block[-1] if self.block else None
        fresh = isinstance(last, ir.Assign) and value == Var(last.dst) and last.dst in self.loaded_scalars
        if isinstance(last, ir.Assign) and fresh:
            # The scalar just loaded gets the name it is assigned to.
            del self.types[last.dst]
            target = self.new_name(name, ScalarType())
            self.block[-1] = replace(last, dst=target)
            self.loaded_scalars.discard(last.dst)
        else:
            target = self.new_name(name, ScalarType())
            self.emit(ir.Assign(target, value, span=self.span(node)))
        self.initial.pop(target, None)
        self.names[name] = Var(target)

    def bind_tile(self, name: str, value: ir.TileRef, node: Node) -> ir.TileRef:
        """Give the tile just computed its name; copy when it already has one."""
        last = next((s for s in reversed(self.block) if not isinstance(s, ir.ExpectTags)), None)
        if value.name.startswith("%") and getattr(last, "dst", None) != value.name:
            value = self.named(value, name)
        target = self.new_name(name, self.type_in(name, value))
        if value.name.startswith("%"):
            self.rename(next(i for i, s in enumerate(self.block) if s is last), target)
        elif value.name != target:
            self.emit(ir.Compute(target, "copy", (value,), span=self.span(node)))
        return ir.TileRef(target)

    def type_in(self, name: str, value: ir.TileRef) -> Type:
        """The type of `value` in the variable `name`: a variable with a layout keeps it."""
        type_, held = self.types[value.name], self.names.get(name)
        before = self.types[held.name] if isinstance(held, ir.TileRef) else None
        return before if isinstance(before, TileType) and before.bare == type_ else type_

    def rename(self, index: int, target: str) -> None:
        """Let the statement at `index` of the block give its result to `target`."""
        stmt = self.block[index]
        del self.types[stmt.dst]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        self.block[index] = replace(stmt, dst=target)  # pyright: ignore[reportCallIssue]
        old: str = stmt.dst  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        for i in range(index + 1, len(self.block)):
            later = self.block[i]
            if isinstance(later, ir.Tag | ir.ExpectTags):
                self.block[i] = tagging.moved(later, lambda h: target if h == old else h)

    def named(self, value: ir.TileRef, wanted: str) -> ir.TileRef:
        """The tile, under a variable of its own if it is a temporary; those are used once only."""
        if not value.name.startswith("%"):
            return value
        index = next(i for i in reversed(range(len(self.block))) if getattr(self.block[i], "dst", None) == value.name)
        target = self.unique(wanted, self.types[value.name])
        self.rename(index, target)
        return ir.TileRef(target)

    def stored(self, expr: ir.Expr, wanted: str, node: Node) -> ir.Expr:
        """The value that an expression has now, under a name of its own."""
        target = self.unique(wanted, ScalarType())
        self.emit(ir.Assign(target, expr, span=self.span(node)))
        return Var(target)

    def kept(self, value: Value, wanted: str, node: Node, changes: Callable[[str], bool]) -> Value:
        """The value, with what it reads of variables that change stored under names of its own."""

        def scalar(expr: ir.Expr) -> ir.Expr:
            if not any(isinstance(e, Var) and changes(e.name) for e in ex.walk(expr)):
                return expr
            return self.stored(expr, wanted, node)

        match value:
            case ex.Int() | ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
                return scalar(value)
            case ir.TileRef(name=name):
                if not changes(name):
                    return self.named(value, wanted)
                target = self.unique(wanted, self.types[name])
                self.emit(ir.Compute(target, "copy", (value,), span=self.span(node)))
                return ir.TileRef(target)
            case tuple():
                return tuple(self.kept(v, wanted, node, changes) for v in value)
            case ir.View():
                return replace(value, origin=tuple(scalar(o) for o in value.origin))
            case Points():
                held = [self.kept(i, wanted, node, changes) if not isinstance(i, float) else i for i in value.index]
                return replace(value, index=tuple(i for i in held if isinstance(i, ir.TileRef | SCALARS_UNION)))
            case TensorSlice():
                return replace(value, prefix=tuple(scalar(e) for e in value.prefix))
            case ir.BufRef():
                return replace(value, stage=scalar(value.stage))
            case ir.BarRef():
                return replace(value, slot=scalar(value.slot))
            case Method(value=owner):
                return replace(value, value=self.kept(owner, wanted, node, changes))
            case _:
                return value
