"""Expressions of a kernel: literals, names, operators, attributes, subscripts and calls.

Scalars fold at compile time where they can; operations on tiles emit `Compute` statements and give the new tile.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable

from tree_sitter import Node

from tilewright.dtypes import DType, f32, i1, i32
from tilewright.frontend.assignments import count_assignments
from tilewright.frontend.elaborate import SCALARS
from tilewright.frontend.fault import Silenced
from tilewright.frontend.literals import Literals
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import (
    AnnotationValue,
    Barriers,
    Builtin,
    Helper,
    Lambda,
    Method,
    SharedBuffer,
    Tagged,
    Tensor,
    TensorBuffer,
    TensorSlice,
    TilewrightModule,
    Value,
    describe,
)
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import BarrierType, SharedType, TensorMemoryType

_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": op.add, "-": op.sub, "*": op.mul, "/": lambda a, b: a / b, "**": math.pow,
    "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge, "==": op.eq, "!=": op.ne,
}  # fmt: skip


class Expressions(Literals):
    """Evaluates expressions; `Operations` adds the built-in operations."""

    def evaluate(self, node: Node) -> Value:
        """The value of an expression node."""
        match node.type:
            # The frequent kinds come first.
            case "identifier":
                return self.lookup(node)
            case "integer" | "float":
                return self.number(node)
            case "attribute":
                return self.attribute(node)
            case "call":
                return self.call_node(node)
            case "tuple" | "expression_list" | "list":
                return tuple([self.evaluate(c) for c in parts(node)])
            case "binary_operator" | "boolean_operator":
                operator = text(need(node, "operator"))
                if operator in ("&", "^"):
                    return self.bitwise(node)
                left, begin = self.evaluate(need(node, "left")), len(self.block)
                right = self.evaluate(need(node, "right"))
                if operator in ("and", "or") and isinstance(left, SCALARS):
                    self.guard(node, begin, left if operator == "and" else ex.negate(left))
                return self.binary_value(node, operator, left, right)
            case "true" | "false":
                return Int(int(node.type == "true"))
            case "none":
                return None
            case "string":
                return self.string(node)
            case "parenthesized_expression":
                return self.evaluate(parts(node)[0])
            case "comparison_operator":
                return self.comparison(node)
            case "unary_operator" | "not_operator":
                sign = "not" if node.type == "not_operator" else text(need(node, "operator"))
                return self.unary(node, sign, self.evaluate(need(node, "argument")))
            case "conditional_expression":
                then, cond, orelse = parts(node)
                value = self.evaluate(cond)
                if not isinstance(value, Int):
                    raise self.fault(
                        "TW006", "'a if c else b' needs a condition known at compile time; use an if statement", cond
                    )
                return self.evaluate(then if value.value else orelse)
            case "subscript":
                return self.subscript(node)
            case "type":
                return self.evaluate(parts(node)[0])
            case "generic_type":
                # What the grammar makes of `Global[f16, M, K]` where a type stands.
                head, arguments = parts(node)[:2]
                return self.parametrized(node, self.evaluate(head), parts(arguments))
            case "lambda":
                return self.lambda_node(node)
            case "list_comprehension" | "dictionary" | "set" | "await" | "generator_expression":
                raise self.fault("TW005", f"{node.type.replace('_', ' ')} is not supported in a kernel", node)
            case other:
                raise self.fault("TW005", f"{other.replace('_', ' ')} is not supported in a kernel", node)

    def bitwise(self, node: Node) -> Value:
        """A chain of `&` and `^`: in Python `&` binds tighter, in the grammar of tree-sitter `^` does."""
        items = _chain(node)
        values, signs = [self.evaluate(n) for n in items[0::2]], [text(n) for n in items[1::2]]
        for sign in ("&", "^"):
            at = 0
            while at < len(signs):
                if signs[at] == sign:
                    values[at : at + 2] = [self.binary_value(node, sign, values[at], values[at + 1])]
                    del signs[at]
                else:
                    at += 1
        return values[0]

    # -------------------------------------------------------------------------------- operators

    def unary(self, node: Node, sign: str, value: Value) -> Value:
        if isinstance(value, ir.TileRef):
            if sign == "-":
                self.check_number(node, "-", self.tile_type(value).dtype)
                return self.compute(node, "neg", (value,), self.tile_type(value))
            if sign == "+":
                return value
            dtype = self.tile_type(value).dtype
            if (sign == "~" and not dtype.is_float) or (sign == "not" and dtype == i1):
                return self.compute(node, "not", (value,), self.tile_type(value))
        elif isinstance(value, float):
            if sign in "+-":
                return -value if sign == "-" else value
        elif isinstance(value, SCALARS):
            if sign == "-":
                return ex.sub(Int(0), value)
            if sign == "+":
                return value
            if sign == "not":
                return ex.negate(value)
        raise self.fault("TW003", f"'{sign}' does not apply to {describe(value)}", node)

    def comparison(self, node: Node) -> Value:
        items = [c for c in node.children if c.type != "comment"]
        values = [self.evaluate(c) for c in items[0::2]]
        # What stands between two signs is used twice.
        values[1:-1] = [self.named(v, "middle") if isinstance(v, ir.TileRef) else v for v in values[1:-1]]
        signs = [text(c) for c in items[1::2]]
        result = self.binary_value(node, signs[0], values[0], values[1])
        for i, sign in enumerate(signs[1:], 1):
            result = self.binary_value(node, "and", result, self.binary_value(node, sign, values[i], values[i + 1]))
        return result

    def binary_value(self, node: Node, operator: str, left: Value, right: Value) -> Value:
        """`left operator right` for scalars, floats and tiles."""
        if isinstance(left, ir.TileRef) or isinstance(right, ir.TileRef):
            return self.tile_binary(node, operator, left, right)
        if isinstance(left, SCALARS) and isinstance(right, SCALARS):
            return self.bounded(node, self.scalar_binary(node, operator, left, right))
        if isinstance(left, float | Int) and isinstance(right, float | Int) and operator in _FLOATS:
            a = left if isinstance(left, float) else left.value
            b = right if isinstance(right, float) else right.value
            try:
                result = _FLOATS[operator](a, b)
            except (ArithmeticError, ValueError) as error:
                raise self.fault("TW006", f"{a} {operator} {b} has no value: {error}", node) from None
            return Int(int(result)) if isinstance(result, bool) else float(result)
        if isinstance(left, str | DType | None) and isinstance(right, str | DType | None) and operator in ("==", "!="):
            return Int(int((left == right) == (operator == "==")))
        raise self.fault("TW003", f"'{operator}' does not apply to {describe(left)} and {describe(right)}", node)

    def scalar_binary(self, node: Node, operator: str, left: ir.Expr, right: ir.Expr) -> Value:
        match operator:
            case ">" | ">=":
                return ex.binary("<" if operator == ">" else "<=", right, left)
            case "+" | "-" | "*" | "//" | "%" | "^" | "<" | "<=" | "==" | "!=" | "and" | "or":
                return ex.binary(operator, left, right)
            case "**" if isinstance(left, Int) and isinstance(right, Int) and 0 <= right.value <= 64:
                return Int(left.value**right.value)
            case "<<" if isinstance(right, Int) and 0 <= right.value <= 31:
                return ex.mul(left, Int(1 << right.value))
            case ">>" if isinstance(right, Int) and 0 <= right.value <= 31:
                return ex.floordiv(left, Int(1 << right.value))
            case "&" if isinstance(right, Int) and right.value >= 0 and (right.value + 1) & right.value == 0:
                # Masking with 2^n - 1 is a remainder, also for negative numbers.
                return ex.mod(left, Int(right.value + 1))
            case "&" | "|" if isinstance(left, Int) and isinstance(right, Int):
                return Int(left.value & right.value if operator == "&" else left.value | right.value)
            case "/" if isinstance(left, Int) and isinstance(right, Int):
                if right.value == 0:
                    raise self.fault("TW006", "division by zero", node)
                return left.value / right.value
            case "/":
                raise self.fault("TW003", "'/' gives a fraction; integer scalars divide with '//' or tw.cdiv", node)
            case _:
                raise self.fault("TW005", f"'{operator}' is not supported for integer scalars", node)

    # -------------------------------------------------------------------------------- attributes and subscripts

    def attribute(self, node: Node) -> Value:
        value, name = self.evaluate(need(node, "object")), text(need(node, "attribute"))
        where = need(node, "attribute")
        match value, name:
            case TilewrightModule(), _:
                return self.module_attribute(where, name)
            case (Tensor(param=param), "shape"):
                return param.type.shape
            case (TensorSlice(param=param, prefix=prefix), "shape"):
                return param.type.shape[len(prefix) :]
            case (Tensor(param=param) | TensorSlice(param=param), "dtype"):
                return param.type.dtype
            case (ir.TileRef(), "shape"):
                return tuple(Int(n) for n in self.tile_type(value).shape)
            case (ir.TileRef(), "dtype"):
                return self.tile_type(value).dtype
            case (ir.TileRef() | ir.BufRef() | SharedBuffer(), "T"):
                return self.call(node, Builtin("transpose"), [value], {})
            case (ir.TileRef(), "to") | (Tensor() | TensorSlice(), "tile" | "at"):
                return Method(value, name)
            case _:
                hint = "; tensors have .tile, .at, .shape and .dtype" if isinstance(value, Tensor | TensorSlice) else ""
                raise self.fault("TW002", f"{describe(value)} has no '{name}'{hint}", where)

    def module_attribute(self, node: Node, name: str) -> Value:
        """`tw.name`; supplied by `Operations`."""
        raise AssertionError("Operations.module_attribute")

    def subscript(self, node: Node) -> Value:
        value = self.evaluate(need(node, "value"))
        indices = node.children_by_field_name("subscript")
        match value:
            case SharedBuffer(name):
                type_ = self.types[name]
                assert isinstance(type_, SharedType)
                if not type_.ring:
                    raise self.fault("TW003", f"'{name}' is a single tile and takes no index", node)
                return ir.BufRef(name, self.slot(node, indices, type_.stages, f"stage of '{name}'"))
            case TensorBuffer(name):
                type_ = self.types[name]
                assert isinstance(type_, TensorMemoryType)
                if not type_.ring:
                    raise self.fault("TW003", f"'{name}' is a single accumulator and takes no index", node)
                return ir.BufRef(name, self.slot(node, indices, type_.stages, f"stage of '{name}'"))
            case Barriers(name):
                type_ = self.types[name]
                assert isinstance(type_, BarrierType)
                return ir.BarRef(name, self.slot(node, indices, type_.slots, f"slot of '{name}'"))
            case tuple():
                index = self.evaluate(indices[0])
                if not isinstance(index, Int) or not -len(value) <= index.value < len(value) or len(indices) != 1:
                    raise self.fault(
                        "TW003", f"the index of a tuple of {len(value)} is a constant below {len(value)}", node
                    )
                return value[index.value]
            case ir.TileRef():
                return self.expand(node, value, indices)
            case Tensor() | TensorSlice():
                given = TensorSlice(value.param, ()) if isinstance(value, Tensor) else value
                found = self.leading(node, given, indices)
                whole = len(found.prefix) == len(found.param.type.shape)
                return self.element(node, found) if self.in_contract and whole else found
            case _:
                return self.parametrized(node, value, indices)

    def parametrized(self, node: Node, value: Value, indices: list[Node]) -> Value:
        """`Global[f16, M, K]` or `Annotated[Global, f16, M, K]`; `Scalar[f32]` or `Annotated[Scalar, f32]`."""
        if value in (Builtin("Global"), Builtin("Scalar")):
            return self.annotation(node, value, [self.evaluate(i) for i in indices])
        if value == Builtin("Annotated") and indices:
            first, *rest = [self.evaluate(i) for i in indices]
            return self.annotation(node, first, rest) if first in (Builtin("Global"), Builtin("Scalar")) else first
        raise self.fault("TW003", f"{describe(value)} takes no index", node)

    def leading(self, node: Node, value: TensorSlice, indices: list[Node]) -> TensorSlice:
        """`A[b, h]`; supplied by `Operations`."""
        raise AssertionError("Operations.leading")

    def lambda_node(self, node: Node) -> Value:
        """`lambda e: …`; supplied by `DataOperations`."""
        raise AssertionError("DataOperations.lambda_node")

    def element(self, node: Node, value: TensorSlice) -> ex.Item:
        """`OFFSETS[e]` inside a contract; supplied by `DataOperations`."""
        raise AssertionError("DataOperations.element")

    def slot(self, node: Node, indices: list[Node], limit: int, what: str) -> ir.Expr:
        index = self.evaluate(indices[0]) if len(indices) == 1 else None
        if not isinstance(index, SCALARS):
            raise self.fault("TW003", f"the index of a {what} is one integer", node)
        if isinstance(index, Int) and not 0 <= index.value < limit:
            raise self.fault("TW003", f"{what}: index {index.value} is outside 0 … {limit - 1}", node)
        return index

    def annotation(self, node: Node, kind: Value, values: list[Value]) -> AnnotationValue:
        """`Global[dtype, size, …]` or `Scalar[dtype]`."""
        if kind == Builtin("Scalar"):
            if len(values) != 1 or values[0] not in (f32, i32):
                what = ", ".join(map(describe, values)) or "nothing"
                raise self.fault(
                    "TW003", f"a scalar argument is Scalar[f32] or Scalar[i32], not of {what}; cast a Scalar[f32] with "
                    ".to(f16) where another type is needed", node,
                )  # fmt: skip
            return AnnotationValue("Scalar", f32 if values[0] == f32 else i32)
        if not values or not isinstance(values[0], DType):
            raise self.fault("TW003", "Global[…] begins with an element type: Global[f16, M, K]", node)
        shape: list[ir.Expr] = []
        for value in values[1:]:
            if not isinstance(value, SCALARS):
                raise self.fault(
                    "TW003", f"an extent of Global[…] is a size or an integer, not {describe(value)}", node
                )
            if any(isinstance(e, ex.Size) and e.least < 1 for e in ex.walk(value)):
                raise self.fault(
                    "TW003", f"an extent of Global[…] is a size, not the scalar argument {ex.show(value)}, which may "
                    "be negative; declare it with tw.sizes", node,
                )  # fmt: skip
            if isinstance(value, Int) and value.value < 1:
                raise self.fault("TW003", f"an extent of Global[…] is at least 1, not {value.value}", node)
            shape.append(value)
        if not shape:
            raise self.fault("TW003", "Global[…] names the extents after the element type: Global[f16, M, K]", node)
        return AnnotationValue("Global", values[0], tuple(shape))

    # -------------------------------------------------------------------------------- calls

    def call_node(self, node: Node) -> Value:
        function = self.evaluate(need(node, "function"))
        if function == Builtin("assume") and not self.in_contract:
            self.in_contract = True
            try:
                return self.call_with(node, function)
            finally:
                self.in_contract = False
        return self.call_with(node, function)

    def call_with(self, node: Node, function: Value) -> Value:
        """The call of `function` with the arguments that stand in `node`."""
        args: list[Value] = []
        keywords: dict[str, Value] = {}
        arguments = need(node, "arguments")
        if arguments.type != "argument_list":
            raise self.fault("TW005", "generator expressions are not supported in a kernel", arguments)
        for argument in parts(arguments):
            if argument.type == "keyword_argument":
                keywords[text(need(argument, "name"))] = self.argument(function, need(argument, "value"))
            elif argument.type in ("list_splat", "dictionary_splat"):
                raise self.fault("TW005", "'*' and '**' arguments are not supported in a kernel", argument)
            else:
                args.append(self.argument(function, argument))
        if isinstance(function, Helper):
            return self.inline(node, function, args, keywords)
        return self.call(node, function, args, keywords)

    def argument(self, function: Value, node: Node) -> Value:
        """The value of an argument; some operations take functions of elements."""
        if node.type == "lambda" and function in (Builtin("tag"), Builtin("expect")):
            return self.read_lambda(node)
        return self.evaluate(node)

    def read_lambda(self, node: Node) -> Lambda:
        """A function of elements; supplied by `TagOperations`."""
        raise AssertionError("TagOperations.read_lambda")

    def inline(self, node: Node, helper: Helper, args: list[Value], keywords: dict[str, Value]) -> Value:
        """Elaborate the body of a helper in place of its call."""
        if any(h.name == helper.name for h in self.calls):
            chain = " → ".join([h.name for h in self.calls] + [helper.name])
            raise self.fault("TW007", f"helpers are inlined and cannot call themselves: {chain}", node)
        bound: dict[str, Value] = {}
        names: list[str] = []
        defaults: dict[str, Node] = {}
        for p in parts(need(helper.node, "parameters")):
            if p.type == "keyword_separator":
                continue
            name = text(p) if p.type == "identifier" else text(child(p, "name") or parts(p)[0])
            names.append(name)
            if (default := child(p, "value")) is not None:
                defaults[name] = default
        if len(args) > len(names) or any(k not in names for k in keywords):
            raise self.fault("TW005", f"'{helper.name}' takes {', '.join(names)}", node)
        bound.update(zip(names, args, strict=False))
        bound.update(keywords)
        saved = self.names, self.counts, self.call_span, self.returned, self.depth, self.call_number
        known = len(self.problems)
        self.depth = 0
        self.helper_calls += 1
        self.call_number = self.helper_calls
        self.call_span = self.span(node)
        self.calls.append(helper)
        try:
            self.names = dict(helper.scope)
            for name in names:
                if name not in bound:
                    if name not in defaults:
                        raise self.fault("TW005", f"'{helper.name}' needs a value for '{name}'", node)
                    bound[name] = self.evaluate(defaults[name])
            for name, value in bound.items():
                # A parameter may be used more than once; what a tag function tags is the result that gets a name.
                kept = helper.only_tags and name == names[0]
                self.names[name] = (
                    self.named(value, f"{helper.name}_{name}") if isinstance(value, ir.TileRef) and not kept else value
                )
            body, emitted = need(helper.node, "body"), len(self.block)
            self.counts, self.returned = count_assignments(body), []
            self.run_block(body)
            if len(self.problems) > known:
                raise Silenced
            if helper.only_tags:
                self.check_only_tags(node, helper, emitted)
            return self.returned[0] if self.returned else None
        finally:
            self.calls.pop()
            self.names, self.counts, self.call_span, self.returned, self.depth, self.call_number = saved

    def check_only_tags(self, node: Node, helper: Helper, emitted: int) -> None:
        """A tag function states tags and computes nothing."""
        if any(not isinstance(s, ir.Tag | ir.ExpectTags) for s in self.block[emitted:]):
            raise self.fault(
                "TW005",
                f"the tag function '{helper.name}' computes something; it may only use tw.tag and tw.expect. Mark "
                "helpers that compute with @tw.func",
                node,
            )
        result = self.returned[0] if self.returned else None
        if result is not None and not isinstance(result, Tagged):
            raise self.fault(
                "TW005",
                f"the tag function '{helper.name}' returns {describe(result)}; it returns tw.tag(…) or nothing",
                node,
            )


def _chain(node: Node) -> list[Node]:
    """Operands and signs, in turn, of `&` and `^` that no brackets separate."""
    if node.type == "binary_operator" and text(sign := need(node, "operator")) in ("&", "^"):
        return [*_chain(need(node, "left")), sign, *_chain(need(node, "right"))]
    return [node]
