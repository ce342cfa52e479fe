"""Edits of a kernel's source text: the policies that can be changed, where they stand, and the text with other ones.

Only the text under a knob changes; comments, spelling and layout of everything else stay as the person wrote them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir import nodes as ir
from tilewright.source import SourceText

Value = int | str | bool


@dataclass(frozen=True, slots=True)
class Knob:
    """One policy of a kernel.

    `kind` is "tile", "stages", "group" (compile-time arguments by their use, or literals), "choice" (one of another
    use, with declared values), "order" (0: row by row, else the rows of a group), "persistent", "roles" or "warps".
    `name` is what a table shows; `choices` are the values that the kernel declares, empty when it leaves them open.
    """

    kind: str
    name: str
    value: Value
    choices: tuple[int, ...] = ()


Point = tuple[tuple[str, Value], ...]
"""Values of knobs by name, sorted: one variant."""


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


class Source:
    """The text of a kernel, read for its knobs. Compile-time arguments have the values that the text gives them."""

    def __init__(self, text: str, kernel: ir.Kernel) -> None:
        """Raises SyntaxError for text that is no Python; a kernel that elaborates is."""
        self.text, self.kernel = text, kernel
        self._lines = SourceText.of(text)
        self._function = _function(ast.parse(text))
        self.knobs = {k.name: k for k in self._find()}

    def point(self) -> Point:
        """The variant that the text is."""
        return tuple(sorted((k.name, k.value) for k in self.knobs.values()))

    def with_point(self, point: Mapping[str, Value]) -> str:
        """The text with other values; knobs that `point` leaves out or repeats stay as written."""
        edits: list[_Edit] = []
        for name, value in point.items():
            knob = self.knobs[name]
            if knob.value != value:
                edits += self._edits(knob, value)
        data = self._lines.data
        for edit in sorted(edits, key=lambda e: -e.start):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        return data.decode()

    # ---------------------------------------------------------------------------------------- reading

    def _find(self) -> Iterator[Knob]:
        for const in self.kernel.consts:
            # What a person declares choices for is a knob, whatever it is used for.
            kind = self._use(const.name) or ("choice" if len(const.choices) > 1 else "")
            if kind:
                yield Knob(kind, const.name, const.default, const.choices if len(const.choices) > 1 else ())
        yield Knob("warps", "warps", self.kernel.warps)
        tiles, pipeline = self._loop("tiles"), self._loop("pipeline")
        if tiles is not None:
            grid = next(s for s in ir.walk(self.kernel.body) if isinstance(s, ir.Tiles))
            yield Knob("persistent", "persistent", grid.persistent)
            plain = isinstance(grid.order, ir.Grouped | ir.RowMajor)
            if plain and len(grid.counts) == 2 and not self._named(_keyword(tiles, "order")):
                yield Knob("order", "order", grid.order.rows if isinstance(grid.order, ir.Grouped) else 0)
        if pipeline is not None:
            loop = next(s for s in ir.walk(self.kernel.body) if isinstance(s, ir.Pipeline))
            yield Knob("roles", "roles", loop.roles)
            if isinstance(_keyword(pipeline, "stages"), ast.Constant):
                yield Knob("stages", "stages", loop.stages)

    def _use(self, name: str) -> str:
        """What a compile-time argument is for, by where it stands; empty when that is not a policy."""
        for call in self._calls("grouped"):
            if any(_is_name(a, name) for a in call.args):
                return "group"
        for call in self._calls("pipeline"):
            if _is_name(_keyword(call, "stages"), name):
                return "stages"
        for call in self._calls("tile"):
            shape = call.args[1] if len(call.args) == 2 else None
            if isinstance(shape, ast.Tuple) and any(_is_name(e, name) for e in shape.elts):
                return "tile"
        return ""

    def _named(self, order: ast.expr | None) -> bool:
        """Whether the order is grouped by a compile-time argument, which then is the knob."""
        return isinstance(order, ast.Call) and any(isinstance(a, ast.Name) for a in order.args)

    def _loop(self, policy: str) -> ast.Call | None:
        return next(iter(self._calls(policy)), None)

    def _calls(self, name: str) -> list[ast.Call]:
        """Calls of `tw.name(…)`, `name(…)` or `x.name(…)`, in source order."""
        calls = [n for n in ast.walk(self._function) if isinstance(n, ast.Call)]
        found = [c for c in calls if isinstance(c.func, ast.Attribute | ast.Name) and _last(c.func) == name]
        return sorted(found, key=lambda c: (c.lineno, c.col_offset))

    # ---------------------------------------------------------------------------------------- writing

    def _edits(self, knob: Knob, value: Value) -> Iterator[_Edit]:
        if any(c.name == knob.name for c in self.kernel.consts):
            yield self._default(knob, int(value))
            return
        match knob.kind:
            case "warps":
                decorator = next(
                    d for d in self._function.decorator_list if isinstance(d, ast.Call) and _last(d.func) == "kernel"
                )
                yield self._option(decorator, "warps", str(value))
            case "persistent":
                yield self._option(self._calls("tiles")[0], "persistent", str(value))
            case "order":
                module = ast.unparse(self._calls("tiles")[0].func).removesuffix("tiles")
                order = f"{module}grouped({value})" if value else f"{module}row_major()"
                yield self._option(self._calls("tiles")[0], "order", order)
            case "stages":
                yield self._option(self._calls("pipeline")[0], "stages", str(value))
            case "roles":
                yield self._option(self._calls("pipeline")[0], "roles", f'"{value}"')
                # Loading roles copy by TMA, a single role by cp.async.
                loop = self._calls("pipeline")[0]
                body = next(n for n in ast.walk(self._function) if isinstance(n, ast.For) and n.iter is loop)
                for call in self._calls("load"):
                    if any(call is n for n in ast.walk(body)):
                        yield self._option(call, "via", '"tma"' if value == "split" else '"cp_async"')
            case _:
                raise AssertionError(f"no edit for {knob}")

    def _default(self, knob: Knob, value: int) -> _Edit:
        """The default of a compile-time argument; among declared choices the first is the default."""
        arguments = self._function.args
        pairs = [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
        pairs += list(zip(reversed(arguments.args), reversed(arguments.defaults), strict=False))
        node = next(default for argument, default in pairs if argument.arg == knob.name and default is not None)
        if knob.choices and isinstance(node, ast.Call):
            others = [v for v in knob.choices if v != value]
            return self._replace(node, f"{ast.unparse(node.func)}({', '.join(map(str, [value, *others]))})")
        return self._replace(node, str(value))

    def _option(self, call: ast.Call, name: str, text: str) -> _Edit:
        """An option of a call, replaced or added at its end."""
        present = _keyword(call, name)
        if present is not None:
            return self._replace(present, text)
        last = max((*call.args, *(k.value for k in call.keywords)), key=lambda n: (n.end_lineno, n.end_col_offset))
        at = self._offset(last.end_lineno or 0, last.end_col_offset or 0)
        return _Edit(at, at, f", {name}={text}")

    def _replace(self, node: ast.expr, text: str) -> _Edit:
        start = self._offset(node.lineno, node.col_offset)
        return _Edit(start, self._offset(node.end_lineno or 0, node.end_col_offset or 0), text)

    def _offset(self, line: int, column: int) -> int:
        """Byte offset of a position of `ast`, whose columns count bytes of UTF-8."""
        return self._lines.line_starts[line - 1] + column


def _function(tree: ast.Module) -> ast.FunctionDef:
    return next(s for s in tree.body if isinstance(s, ast.FunctionDef))


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _last(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=attr):
            return attr
        case ast.Name(id=name):
            return name
        case _:
            return ""
