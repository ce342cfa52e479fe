"""A file of kernels: what it declares, its kernels, and what changes when its text does.

Module-level code is never executed. Declarations that kernels can use are evaluated by the front end: imports of
tilewright, `tw.sizes`, compile-time constants and helpers marked `@tw.func`. Everything else is ordinary Python and is
left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node, Tree

from tilewright.frontend.reader import Reader
from tilewright.frontend.tree import parse, reparse
from tilewright.frontend.unit import KernelUnit
from tilewright.problem import Problem
from tilewright.source import SourceText, Span

MAX_BYTES = 8 << 20


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
    reader = Reader(source, known)
    reader.read(_segments(tree, data) if tree.root_node.has_error else [(0, tree.root_node)])
    return Module(source, tuple(reader.units), tuple(reader.problems), tree)


def _segments(tree: Tree, data: bytes) -> list[tuple[int, Node]]:
    """The trees of a broken file, cut where a decorator begins a line, each with its first byte.

    An open bracket or string would otherwise take in the kernels below it.
    """
    starts = [0]
    before = b""
    offset = 0
    for line in data.splitlines(keepends=True):
        if line.startswith(b"@") and not before.startswith(b"@"):
            starts.append(offset)
        before = line
        offset += len(line)
    if len(starts) == 1:
        return [(0, tree.root_node)]
    ends = [*starts[1:], len(data)]
    return [(a, parse(data[a:b]).root_node) for a, b in zip(starts, ends, strict=True)]


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
    if b"\r" in source.data and b"\n" not in source.data:
        return Problem(
            "TW010", "the lines of this file end in bare carriage returns; save it with LF or CRLF", Span(0, 0)
        )
    return None


__all__ = ["Module", "parse_module"]
