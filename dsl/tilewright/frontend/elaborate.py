"""From the syntax tree of one kernel to Tile IR: statements, names and control flow.

Errors inside a statement become problems; elaboration goes on with the next statement, and names that the failed
statement would have bound stay silent, so that one mistake gives one message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager

from tree_sitter import Node

from tilewright.frontend.assignments import assigned_names, count_assignments
from tilewright.frontend.bindings import SCALARS, Bindings
from tilewright.frontend.fault import Fault, Silenced
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import RoleValue, Unusable, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int


class Elaborator(Bindings):
    """Elaborates statements into the block being filled.

    `Expressions` and `Operations` (the subclasses in their own modules) evaluate expressions and calls.
    """

    # -------------------------------------------------------------------------------- supplied by subclasses

    def evaluate(self, node: Node) -> Value:
        """The value of an expression; tile operations emit statements."""
        raise AssertionError("Expressions.evaluate")

    def binary_value(self, node: Node, operator: str, left: Value, right: Value) -> Value:
        """`left operator right` for an augmented assignment."""
        raise AssertionError("Expressions.binary_value")

    def for_statement(self, node: Node) -> None:
        """A loop over a range."""
        raise AssertionError("Loops.for_statement")

    def while_statement(self, node: Node) -> None:
        """A loop with a condition."""
        raise AssertionError("Loops.while_statement")

    # -------------------------------------------------------------------------------- statements

    def run_block(self, node: Node) -> None:
        """Elaborate the statements of a block."""
        statements = parts(node)
        index = 0
        while index < len(statements):
            stmt = statements[index]
            if stmt.type == "with_statement":
                group = [stmt]
                while index + 1 < len(statements) and statements[index + 1].type == "with_statement":
                    index += 1
                    group.append(statements[index])
                self.attempt(stmt, lambda _, group=group: self.roles(group))
            else:
                if self.returned:
                    self.problems.append(self.fault("TW005", "this statement can never run", stmt).problem)
                    return
                self.attempt(stmt, self.statement)
            index += 1

    def attempt(self, node: Node, action: Callable[[Node], None]) -> None:
        """Run `action`, turning a fault into a problem and silencing the names it leaves without value."""
        try:
            action(node)
        except Fault as fault:
            self.problems.append(fault.problem)
            self.silence(node)
        except Silenced:
            self.silence(node)
        except ex.EvaluationError as error:
            self.problems.append(self.fault("TW006", str(error), node).problem)
            self.silence(node)

    def silence(self, node: Node) -> None:
        """Mark the names that a failed statement would have bound."""
        for name in assigned_names(node):
            self.names[name] = Unusable("has no value", silent=True)

    def statement(self, node: Node) -> None:
        """Elaborate one statement."""
        match node.type:
            case "expression_statement":
                self.expression_statement(node)
            case "for_statement":
                self.for_statement(node)
            case "if_statement":
                self.if_statement(node, need(node, "condition"), need(node, "consequence"))
            case "pass_statement":
                pass
            case "return_statement":
                if self.returned is None:
                    raise self.fault("TW005", "a kernel returns nothing; write results with tw.store", node)
                if self.depth:
                    raise self.fault(
                        "TW005", "a helper returns once, at its end, not from inside a branch or loop", node
                    )
                values = parts(node)
                self.returned.append(self.evaluate(values[0]) if values else None)
            case "function_definition" | "class_definition" | "decorated_definition":
                raise self.fault("TW005", "definitions inside a kernel are not supported; put helpers above it", node)
            case "while_statement":
                self.while_statement(node)
            case "break_statement" | "continue_statement":
                word = node.type.removesuffix("_statement")
                raise self.fault(
                    "TW005", f"'{word}' is not supported: loops run to their end, which keeps barriers and pipelines "
                    "countable; bound the range, or put what may be left out under an 'if'", node,
                )  # fmt: skip
            case "assert_statement":
                raise self.fault("TW005", "'assert' is not supported; state facts about sizes with tw.assume(…)", node)
            case other:
                raise self.fault("TW005", f"{other.replace('_', ' ')} is not supported in a kernel", node)

    def expression_statement(self, node: Node) -> None:
        inner = parts(node)[0]
        if inner.type == "assignment":
            right = child(inner, "right")
            if right is None:
                raise self.fault("TW005", "a name needs a value here", inner)
            self.bind(need(inner, "left"), self.evaluate(right), inner)
        elif inner.type == "augmented_assignment":
            left = need(inner, "left")
            operator = text(need(inner, "operator")).removesuffix("=")
            value = self.binary_value(inner, operator, self.evaluate(left), self.evaluate(need(inner, "right")))
            self.bind(left, value, inner)
        elif inner.type != "string":
            value = self.evaluate(inner)
            if isinstance(value, ir.TileRef) and value.name.startswith("%"):
                raise self.fault("TW005", "the result of this operation is not used", inner)
            if value is not None and not isinstance(value, ir.TileRef):
                raise self.fault("TW005", f"{describe(value)} alone does nothing here", inner)

    def if_statement(self, node: Node, condition: Node, consequence: Node) -> None:
        """An `if` or `elif`; `node` holds what follows in its alternatives."""
        cond = self.scalar_condition(condition, "a branch needs a scalar condition; choose elements with tw.where")
        rest = [
            c
            for c in node.children
            if c.type in ("elif_clause", "else_clause") and c.start_byte > consequence.start_byte
        ]

        def otherwise() -> None:
            if not rest:
                return
            if rest[0].type == "else_clause":
                self.run_block(need(rest[0], "body"))
            else:
                self.if_statement(node, need(rest[0], "condition"), need(rest[0], "consequence"))

        if isinstance(cond, Int):
            if cond.value:
                self.run_block(consequence)
            else:
                otherwise()
            return
        before = dict(self.names)
        with self.filling() as then:
            self.run_block(consequence)
        after_then, self.names = self.names, dict(before)
        with self.filling() as orelse:
            otherwise()
        self.names = self.merge(before, after_then, self.names, node)
        self.emit(ir.If(cond, tuple(then), tuple(orelse), span=self.span(condition)))

    def scalar_condition(self, node: Node, advice: str) -> ir.Expr:
        """The value of a condition. Raises Fault for a tile, with the advice, and for what is no condition."""
        cond = self.evaluate(node)
        if isinstance(cond, ir.TileRef):
            raise self.fault("TW005", advice, node)
        if not isinstance(cond, SCALARS):
            raise self.fault("TW003", f"a condition is an integer or a comparison, not {describe(cond)}", node)
        return cond

    def guard(self, node: Node, begin: int, cond: ir.Expr) -> None:
        """Scalars that were loaded for the right side of `and` and `or` are loaded only if the left does not decide.

        They are what the block holds from `begin` on; `cond` says when the right side counts.
        """
        made, span = tuple(self.block[begin:]), self.span(node)
        loaded = {s.dst for s in ir.walk(made) if isinstance(s, ir.Assign)}
        if not loaded or isinstance(cond, Int) or not all(isinstance(s, ir.Assign | ir.If) for s in made):
            return
        self.changing |= loaded
        zeros = tuple(ir.Assign(n, Int(0), span=span) for n in sorted(loaded))
        self.block[begin:] = [ir.If(cond, made, zeros, span=span)]

    def merge(
        self, before: Mapping[str, Value], a: Mapping[str, Value], b: Mapping[str, Value], node: Node
    ) -> dict[str, Value]:
        """Names after a branch: those that agree on both sides keep their value."""
        merged: dict[str, Value] = {}
        for name in a.keys() | b.keys():
            left, right = a.get(name), b.get(name)
            if name in a and name in b and left == right:
                merged[name] = left
            elif (
                name in before
                and name in a
                and name in b
                and not isinstance(left, Unusable)
                and not isinstance(right, Unusable)
            ):
                merged[name] = Unusable(
                    "has different types or compile-time values on the two sides of this branch", span=self.span(node)
                )
            else:
                merged[name] = Unusable(
                    "may have no value: it is assigned on one side of a branch only", span=self.span(node)
                )
        return merged

    def describe_typed(self, value: Value) -> str:
        """A value with its type, for messages."""
        return f"a tile {self.types[value.name]}" if isinstance(value, ir.TileRef) else describe(value)

    def roles(self, group: list[Node]) -> None:
        """Consecutive `with tw.role(…):` blocks run at the same time."""
        if self.in_role or self.loop_depth or self.calls:
            raise self.fault(
                "TW603", "roles stand at the top level of a kernel, not inside loops or other roles", group[0]
            )
        before, counts, found = dict(self.names), self.counts, list[ir.Role]()
        for node in group:
            items = [i for c in node.children if c.type == "with_clause" for i in parts(c)]
            value = self.evaluate(need(items[0], "value")) if len(items) == 1 else None
            if not isinstance(value, RoleValue):
                raise self.fault("TW005", "'with' opens a role: with tw.role(\"load\", warps=1):", node)
            if any(r.name == value.name for r in found):
                raise self.fault("TW603", f"two roles are called '{value.name}'", items[0])
            body = need(node, "body")
            self.names, self.in_role, self.counts = dict(before), value.name, count_assignments(body)
            with self.filling() as filled:
                self.run_block(body)
            found.append(ir.Role(value.name, value.warps, value.registers, tuple(filled), self.span(items[0])))
        self.names, self.in_role, self.counts = before, "", counts
        span = self.span(group[0]).cover(self.span(group[-1]))
        self.emit(ir.Roles(tuple(found), span=span))

    @contextmanager
    def filling(self):
        """Collect what is emitted meanwhile into a block of its own."""
        saved, self.block = self.block, []
        self.depth += 1
        try:
            yield self.block
        finally:
            self.block = saved
            self.depth -= 1


__all__ = ["SCALARS", "Elaborator"]
