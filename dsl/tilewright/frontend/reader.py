"""Reads the top level of a file: declarations that kernels use, helpers, kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from tilewright.frontend.fault import Fault, Silenced
from tilewright.frontend.kernel import Elaborated, elaborate_kernel
from tilewright.frontend.operations import DECORATORS, PYTHON_FUNCTIONS, Operations, module_member
from tilewright.frontend.tree import child, need, parts, python_syntax_problems, syntax_problems, text
from tilewright.frontend.unit import KernelUnit
from tilewright.frontend.values import Builtin, Helper, TilewrightModule, Unusable, Value
from tilewright.ir import expr as ex
from tilewright.problem import Problem
from tilewright.source import SourceText, Span

# Expressions that may be compile-time values; everything else is ordinary Python without a look.
_EVALUATED = frozenset((
    "call", "identifier", "integer", "float", "true", "false", "none", "string", "parenthesized_expression", "tuple",
    "expression_list", "list", "binary_operator", "boolean_operator", "comparison_operator", "unary_operator",
    "not_operator", "conditional_expression", "attribute", "subscript",
))  # fmt: skip


class Reader:
    """Reads the top level of a file in order. Spans of nodes are shifted by `shift`, where their segment begins."""

    def __init__(self, source: SourceText, known: Mapping[str, KernelUnit]) -> None:
        self.source = source
        self.known = known
        self.work = Operations(0, {name: Builtin(name) for name in PYTHON_FUNCTIONS}, declarations=True)
        self.scope: dict[str, Value] = self.work.names
        self.shift = 0
        self.units: list[KernelUnit] = []
        self.problems: list[Problem] = []
        self.later: set[str] = set()
        self.fingerprint: str | None = None

    def read(self, roots: Sequence[tuple[int, Node]]) -> None:
        """Read the trees of consecutive segments, each with the byte where it begins."""
        self.later = {name for _, root in roots for node in root.children for name in _declared(node)}
        for self.shift, root in roots:
            for node in root.children:
                if node.type != "comment":
                    self.top_level(node)

    def report(self, *problems: Problem) -> None:
        """Add problems whose spans count from the segment's first byte."""
        self.problems.extend(p.shift(self.shift) for p in problems)

    def top_level(self, node: Node) -> None:
        match node.type:
            case "import_statement" | "import_from_statement":
                self.imports(node)
            case "expression_statement":
                inner = parts(node)
                if inner and inner[0].type == "assignment":
                    self.assignment(inner[0])
            case "decorated_definition":
                self.decorated(node)
            case "ERROR":
                self.broken(node)
            case _ if node.has_error and node.type not in ("function_definition", "class_definition"):
                self.report(*syntax_problems(node, 0))
            case _:
                pass

    def broken(self, node: Node) -> None:
        """A place that does not parse: report it if it belongs to a kernel, and look for kernels inside."""
        if b"tilewright" in self.source.data:
            self.report(*syntax_problems(node, 0))
        for c in node.named_children:
            if c.type == "decorated_definition":
                self.decorated(c)

    # -------------------------------------------------------------------------------- declarations

    def declare(self, name: str, value: Value) -> None:
        self.scope[name] = value
        self.later.discard(name)
        self.fingerprint = None

    def imports(self, node: Node) -> None:
        if node.type == "import_statement":
            for item in parts(node):
                name, alias = _alias(item)
                if name == "tilewright":
                    self.declare(alias, TilewrightModule())
            return
        module = text(need(node, "module_name"))
        for item in node.children_by_field_name("name"):
            name, alias = _alias(item)
            if module == "tilewright":
                value = module_member(name)
                if value is None:
                    self.report(Problem("TW002", f"tilewright has no '{name}'", Span(item.start_byte, item.end_byte)))
                    value = Unusable("has no value", silent=True)
                self.declare(alias, value)
            elif module == "typing" and name == "Annotated":
                self.declare(alias, Builtin("Annotated"))

    def assignment(self, node: Node) -> None:
        """Evaluate what kernels can use; leave other Python alone."""
        right, left = child(node, "right"), need(node, "left")
        if right is None or node.has_error:
            return
        if right.type not in _EVALUATED:
            self.unusable(left, "it is not a compile-time value")
            return
        try:
            self.work.bind(left, self.work.evaluate(right), node)
        except Fault as fault:
            if _speaks_tilewright(right, self.scope):
                self.report(fault.problem)
            self.unusable(left, fault.problem.message)
            return
        except (Silenced, ex.EvaluationError):
            self.unusable(left, "it is not a compile-time value")
            return
        for name in _targets(left):
            if name in self.scope:
                self.declare(name, self.scope[name])

    def unusable(self, left: Node, why: str) -> None:
        for name in _targets(left):
            self.declare(name, Unusable(f"is ordinary Python here, which kernels cannot use: {why}", span=None))

    def decorated(self, node: Node) -> None:
        kind = self.decorator_kind(node)
        definition = child(node, "definition")
        if kind == "" or definition is None or definition.type != "function_definition":
            return
        name = text(need(definition, "name"))
        if kind in ("func", "tag_function"):
            if node.has_error:
                self.report(*syntax_problems(node, 0))
                self.declare(name, Unusable("has no value", silent=True))
                return
            scope = dict(self.scope)
            helper = Helper(name, definition, node.text or b"", scope, kind == "tag_function")
            scope[name] = helper
            self.declare(name, helper)
            return
        self.kernel(node, name)

    def decorator_kind(self, node: Node) -> str:
        """What our decorator makes of a definition, "kernel", "func" or "tag_function"; empty for other definitions."""
        for decorator in (c for c in node.children if c.type == "decorator"):
            inner = parts(decorator)
            target = inner[0] if inner else None
            if target is not None and target.type == "call":
                target = child(target, "function")
            if target is None:
                continue
            value: Value = None
            if target.type == "identifier":
                value = self.scope.get(text(target))
            elif target.type == "attribute":
                owner = self.scope.get(text(need(target, "object")))
                value = module_member(text(need(target, "attribute"))) if owner == TilewrightModule() else None
            if isinstance(value, Builtin) and value.name in DECORATORS:
                return value.name
        return ""

    # -------------------------------------------------------------------------------- kernels

    def kernel(self, node: Node, name: str) -> None:
        base = node.start_byte
        data = node.text or b""
        key = hashlib.blake2b(self.scope_key() + b"\0" + data, digest_size=16).hexdigest()
        if any(u.name == name for u in self.units):
            at = need(need(node, "definition"), "name")
            message = f"a second kernel is called '{name}'; the first is not reachable"
            self.report(Problem("TW011", message, Span(at.start_byte, at.end_byte)))
        old = self.known.get(key)
        if old is not None and old.name == name:
            self.units.append(replace(old, offset=base + self.shift))
            return
        problems = syntax_problems(node, base) or python_syntax_problems(data)
        if problems:
            done = Elaborated(None, tuple(problems))
        else:
            done = elaborate_kernel(node, base, self.kernel_scope(name))
        unit = KernelUnit(
            name,
            base + self.shift,
            data.decode("utf-8", "replace"),
            key,
            done.kernel,
            done.problems,
            done.reference,
            self.source.path,
            dict(self.scope),
        )
        self.units.append(unit)

    def kernel_scope(self, name: str) -> Mapping[str, Value]:
        """The scope of the kernel `name`, with names that are declared only further down marked as such."""
        own = Unusable("is the kernel itself: kernels cannot call themselves; loop instead", code="TW007")
        late = Unusable("is declared only further down; move the declaration above the kernel")
        return {**self.scope, **{n: late for n in self.later if n not in self.scope}, name: own}

    def scope_key(self) -> bytes:
        """What the scope means for a kernel, as bytes."""
        if self.fingerprint is None:
            entries = [
                f"{n}={v.text!r}" if isinstance(v, Helper) else f"{n}={v!r}" for n, v in sorted(self.scope.items())
            ]
            self.fingerprint = "\n".join(entries + sorted(self.later))
        return self.fingerprint.encode()


def _alias(node: Node) -> tuple[str, str]:
    if node.type == "aliased_import":
        return text(need(node, "name")), text(need(node, "alias"))
    return text(node), text(node)


def _targets(left: Node) -> list[str]:
    nodes = [left] if left.type == "identifier" else parts(left)
    return [text(n) for n in nodes if n.type == "identifier"]


def _declared(node: Node) -> list[str]:
    """Names that a top-level statement declares."""
    if node.type == "expression_statement":
        inner = parts(node)
        if inner and inner[0].type == "assignment":
            return _targets(need(inner[0], "left"))
    return []


def _speaks_tilewright(node: Node, scope: Mapping[str, Value]) -> bool:
    """True when an expression calls into tilewright, so that a mistake in it is ours to report."""
    if node.type != "call":
        return False
    function = need(node, "function")
    owner = child(function, "object") if function.type == "attribute" else function
    value = scope.get(text(owner)) if owner is not None and owner.type == "identifier" else None
    return isinstance(value, TilewrightModule | Builtin) and value not in [Builtin(n) for n in PYTHON_FUNCTIONS]
