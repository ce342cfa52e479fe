"""The tree-sitter edge: parsing, incremental reparsing and syntax problems.

Parsing never fails: it returns a tree, and `syntax_problems` says what is wrong in it.
"""

from __future__ import annotations

import copy
import symtable
import warnings
from collections.abc import Callable, Iterator

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Point, Tree

from tilewright.problem import Problem
from tilewright.source import Position, SourceText, Span

_LANGUAGE = Language(tree_sitter_python.language())


def parse(data: bytes) -> Tree:
    """The syntax tree of a file."""
    return Parser(_LANGUAGE).parse(data)


def reparse(data: bytes, old: SourceText, tree: Tree) -> Tree:
    """The syntax tree of `data`, reusing what `tree` (of `old`) has outside the changed bytes."""
    before = old.data
    limit = min(len(before), len(data))
    start = _agreement(limit, lambda n: before[:n] == data[:n])
    tail = _agreement(limit - start, lambda n: before[len(before) - n :] == data[len(data) - n :])
    edited = copy.copy(tree)
    new = SourceText(data)
    edited.edit(
        start_byte=start,
        old_end_byte=len(before) - tail,
        new_end_byte=len(data) - tail,
        start_point=_point(old, start),
        old_end_point=_point(old, len(before) - tail),
        new_end_point=_point(new, len(data) - tail),
    )
    return Parser(_LANGUAGE).parse(data, edited)


def _agreement(limit: int, agrees: Callable[[int], bool]) -> int:
    """The greatest n up to `limit` for which `agrees(n)` holds; it holds for all smaller n too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if agrees(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _point(source: SourceText, offset: int) -> Point:
    # tree-sitter counts lines by line feeds alone.
    row = source.data.count(b"\n", 0, offset)
    return Point(row, offset - (source.data.rfind(b"\n", 0, offset) + 1))


def text(node: Node) -> str:
    """The source text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def child(node: Node, field: str) -> Node | None:
    """The child in a named field."""
    return node.child_by_field_name(field)


def need(node: Node, field: str) -> Node:
    """The child in a field that the grammar guarantees in a tree without errors."""
    found = node.child_by_field_name(field)
    assert found is not None, f"{node.type} without {field}"
    return found


def parts(node: Node) -> list[Node]:
    """Named children without comments."""
    return [c for c in node.named_children if c.type != "comment"]


def syntax_problems(node: Node, base: int) -> list[Problem]:
    """One problem for each broken place under `node`; spans relative to `base`. At most five: the rest follow."""
    problems: list[Problem] = []
    for broken in _broken(node):
        if broken.is_missing:
            what = broken.type if broken.type != "identifier" else "a name"
            message = (
                f"syntax error: {what!r} is missing here" if len(what) <= 2 else f"syntax error: {what} is missing"
            )
            span = Span(max(broken.start_byte - 1, node.start_byte), broken.end_byte)
        else:
            lines = text(broken).strip().splitlines()
            snippet = lines[0][:40] if lines else ""
            message = f"syntax error at '{snippet}'" if snippet else "syntax error"
            opener = next((c for c in reversed(broken.children) if c.type in ("(", "[", "{")), None)
            at = opener or broken
            if opener is not None:
                message = f"syntax error: '{opener.type}' is never closed"
            end = min(at.end_byte, at.start_byte + max(1, len(text(at).split("\n", 1)[0].encode())))
            span = Span(at.start_byte, end)
        problems.append(Problem("TW001", message, span.shift(-base)))
        if len(problems) == 5:
            break
    return problems


def python_syntax_problems(data: bytes) -> list[Problem]:
    """What Python itself says against the text of a definition that tree-sitter, which forgives much, accepts.

    Only parsed, never executed. Spans are relative to the text.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Parses and resolves names, as an import would, without the cost of a tree made of Python objects.
            symtable.symtable(data, "<kernel>", "exec")  # pyright: ignore[reportArgumentType]  bytes too
    except SyntaxError as error:
        source = SourceText(data)
        line = max(0, (error.lineno or 1) - 1)
        column = max(0, (error.offset or 1) - 1)
        start = source.offset(Position(line, column))
        width = max(1, (error.end_offset or 0) - 1 - column) if error.end_lineno == error.lineno else 1
        return [Problem("TW001", f"syntax error: {error.msg}", Span(start, min(start + width, max(start, len(data)))))]
    except (ValueError, RecursionError, MemoryError) as error:
        return [Problem("TW001", f"Python cannot read this: {error}", Span(0, min(1, len(data))))]
    return []


def _broken(node: Node) -> Iterator[Node]:
    if not node.has_error:
        return
    if node.type == "ERROR" or node.is_missing:
        yield node
        return
    for c in node.children:
        yield from _broken(c)
