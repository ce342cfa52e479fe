"""A file of kernels: what it declares, its kernels, and what changes when its text does.

Module-level code is never executed. Declarations that kernels can use are evaluated by the front end: imports of
tilewright, `tw.sizes`, compile-time constants and helpers marked `@tw.func`. Everything else is ordinary Python and is
left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tree_sitter import Node, Tree

from tilewright.frontend.fault import Fault, Silenced
from tilewright.frontend.kernel import Elaborated, elaborate_kernel
from tilewright.frontend.operations import PYTHON_FUNCTIONS, Operations, module_member
from tilewright.frontend.tree import child, need, parse, parts, reparse, syntax_problems, text
from tilewright.frontend.values import Builtin, Helper, TilewrightModule, Unusable, Value
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.problem import Problem
from tilewright.source import SourceText, Span

MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class KernelUnit:
    """One kernel of a file, by itself: everything but `offset` and `line` depends only on its text and its scope.

    `text` is the kernel with its decorators; all spans (in `kernel`, in `problems`) are relative to its first byte,
    which is byte `offset` of the file. `key` identifies the content: units with equal keys have equal IR and verdicts.
    """

    name: str
    offset: int
    text: str
    key: str
    kernel: ir.Kernel | None
    problems: tuple[Problem, ...]
    reference: str
    path: str
    scope: Mapping[str, Value] = field(repr=False, compare=False)

    @property
    def span(self) -> Span:
        """The kernel's whole text, as an absolute span."""
        return Span(self.offset, self.offset + len(self.text.encode()))

    def with_consts(self, target: str | None = None, **consts: int) -> KernelUnit:
        """The unit with other compile-time values, or for another target, elaborated anew.

        An unknown name or target becomes a problem of the result.
        """
        data = self.text.encode()
        node = next((n for n in parts(parse(data).root_node) if n.type == "decorated_definition"), None)
        if node is None or node.has_error:
            return self
        done = elaborate_kernel(node, 0, self.scope, consts, target)
        suffix = ",".join(f"{k}={v}" for k, v in sorted(consts.items())) + f"@{target or ''}"
        return replace(self, kernel=done.kernel, problems=done.problems, key=f"{self.key}[{suffix}]")


@dataclass(frozen=True)
class Module:
    """A parsed file. `problems` are those outside of kernels, with absolute spans."""

    source: SourceText
    units: tuple[KernelUnit, ...]
    problems: tuple[Problem, ...]
    tree: Tree | None = field(repr=False, compare=False, default=None)

    @cached_property
    def all_problems(self) -> tuple[Problem, ...]:
        """Problems of the file and of its kernels, absolute, in file order."""
        inside = (p.shift(u.offset) for u in self.units for p in u.problems)
        return tuple(sorted((*self.problems, *inside), key=lambda p: p.span))

    def unit(self, name: str) -> KernelUnit | None:
        """The kernel of that name."""
        return next((u for u in self.units if u.name == name), None)

    def unit_at(self, offset: int) -> KernelUnit | None:
        """The kernel whose text holds the byte at `offset`."""
        return next((u for u in self.units if u.span.start <= offset <= u.span.end), None)


def parse_module(source: SourceText, previous: Module | None = None) -> Module:
    """Parse a file and elaborate its kernels. Never fails: what is wrong becomes problems.

    With `previous` (an earlier version of the same file) the tree is reparsed incrementally, and kernels whose text and
    scope are unchanged are taken over, so that one edit costs one kernel.
    """
    refused = _refuse(source)
    if refused is not None:
        return Module(source, (), (refused,))
    data = source.data
    if previous is not None and previous.tree is not None:
        tree = previous.tree if previous.source.data == data else reparse(data, previous.source, previous.tree)
    else:
        tree = parse(data)
    known = {u.key: u for u in previous.units} if previous is not None else {}
    reader = _Reader(source, known)
    reader.read(tree.root_node)
    return Module(source, tuple(reader.units), tuple(reader.problems), tree)


def _refuse(source: SourceText) -> Problem | None:
    if len(source.data) > MAX_BYTES:
        size = len(source.data) / (1 << 20)
        return Problem("TW010", f"the file has {size:.1f} MiB; at most {MAX_BYTES >> 20} MiB are read", Span(0, 0))
    try:
        source.data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = (
            f"the file is not UTF-8: byte 0x{source.data[error.start]:02x} at offset {error.start}; save it as UTF-8"
        )
        return Problem("TW010", message, Span(error.start, error.start + 1))
    if b"\0" in source.data:
        at = source.data.index(b"\0")
        return Problem("TW010", f"the file holds a zero byte at offset {at}; is it a text file?", Span(at, at + 1))
    return None


class _Reader:
    """Reads the top level of a file in order."""

    def __init__(self, source: SourceText, known: Mapping[str, KernelUnit]) -> None:
        self.source = source
        self.known = known
        self.scope: dict[str, Value] = {name: Builtin(name) for name in PYTHON_FUNCTIONS}
        self.units: list[KernelUnit] = []
        self.problems: list[Problem] = []
        self.later: dict[str, Span] = {}
        self.fingerprint: str | None = None

    def read(self, root: Node) -> None:
        nodes = [n for n in root.children if n.type != "comment"]
        self.later = {name: Span(n.start_byte, n.end_byte) for n in reversed(nodes) for name in _declared(n)}
        for node in nodes:
            self.top_level(node)

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
                self.problems.extend(self.absolute_syntax(node))
            case _:
                pass

    def broken(self, node: Node) -> None:
        """A place that does not parse: report it if it belongs to a kernel, and look for kernels inside."""
        if b"tilewright" in self.source.data:
            self.problems.extend(self.absolute_syntax(node))
        for c in node.named_children:
            if c.type == "decorated_definition":
                self.decorated(c)

    def absolute_syntax(self, node: Node) -> list[Problem]:
        return syntax_problems(node, 0)

    # -------------------------------------------------------------------------------- declarations

    def declare(self, name: str, value: Value) -> None:
        self.scope[name] = value
        self.later.pop(name, None)
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
                    self.problems.append(
                        Problem("TW002", f"tilewright has no '{name}'", Span(item.start_byte, item.end_byte))
                    )
                    value = Unusable("has no value", silent=True)
                self.declare(alias, value)
            elif module == "typing" and name == "Annotated":
                self.declare(alias, Builtin("Annotated"))

    def assignment(self, node: Node) -> None:
        """Evaluate what kernels can use; leave other Python alone."""
        right, left = child(node, "right"), need(node, "left")
        if right is None:
            return
        work = Operations(0, self.scope, declarations=True)
        try:
            work.bind(left, work.evaluate(right), node)
        except Fault as fault:
            if _speaks_tilewright(right, self.scope):
                self.problems.append(fault.problem)
            self.unusable(left, fault.problem.message)
            return
        except (Silenced, ex.EvaluationError):
            self.unusable(left, "it is not a compile-time value")
            return
        for name in _targets(left):
            if name in work.names:
                self.declare(name, work.names[name])

    def unusable(self, left: Node, why: str) -> None:
        for name in _targets(left):
            self.declare(name, Unusable(f"is ordinary Python here, which kernels cannot use: {why}", span=None))

    def decorated(self, node: Node) -> None:
        kind = self.decorator_kind(node)
        definition = child(node, "definition")
        if kind == "" or definition is None or definition.type != "function_definition":
            return
        name = text(need(definition, "name"))
        if kind == "func":
            if node.has_error:
                self.problems.extend(self.absolute_syntax(node))
                self.declare(name, Unusable("has no value", silent=True))
                return
            scope = dict(self.scope)
            helper = Helper(name, definition, node.text or b"", scope)
            scope[name] = helper
            self.declare(name, helper)
            return
        self.kernel(node, name)

    def decorator_kind(self, node: Node) -> str:
        """What our decorator makes of a definition, "kernel" or "func"; empty for other definitions."""
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
            if value in (Builtin("kernel"), Builtin("func")):
                assert isinstance(value, Builtin)
                return value.name
        return ""

    # -------------------------------------------------------------------------------- kernels

    def kernel(self, node: Node, name: str) -> None:
        base = node.start_byte
        data = node.text or b""
        key = hashlib.blake2b(self.scope_key() + b"\0" + data, digest_size=16).hexdigest()
        if any(u.name == name for u in self.units):
            at = need(need(node, "definition"), "name")
            self.problems.append(
                Problem(
                    "TW011",
                    f"a second kernel is called '{name}'; the first is not reachable",
                    Span(at.start_byte, at.end_byte),
                )
            )
        old = self.known.get(key)
        if old is not None and old.name == name:
            self.units.append(replace(old, offset=base))
            return
        if node.has_error:
            done = Elaborated(None, tuple(syntax_problems(node, base)))
        else:
            done = elaborate_kernel(node, base, self.kernel_scope(base))
        unit = KernelUnit(
            name,
            base,
            data.decode("utf-8", "replace"),
            key,
            done.kernel,
            done.problems,
            done.reference,
            self.source.path,
            dict(self.scope),
        )
        self.units.append(unit)

    def kernel_scope(self, base: int) -> Mapping[str, Value]:
        """The scope, with names that are declared only further down marked as such."""
        if not self.later:
            return self.scope
        scope = dict(self.scope)
        for name, span in self.later.items():
            if name not in scope:
                line = self.source.line_of(span.start) + 1
                scope[name] = Unusable(
                    f"is used before it is declared in line {line}; move the declaration up", span=span.shift(-base)
                )
        return scope

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


__all__ = ["KernelUnit", "Module", "parse_module"]
