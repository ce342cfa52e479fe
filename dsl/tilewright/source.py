"""Source text and spans: bytes inside, lines and UTF-16 columns at the edge.

tree-sitter speaks of byte offsets, editors of lines and UTF-16 columns. Everything inside Tilewright keeps byte
offsets; `SourceText` is the only place that converts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of bytes `[start, end)`.

    Inside a kernel's IR a span is relative to the first byte of the kernel (its decorator), so that the IR and every
    verdict about it stay valid when text above the kernel changes. `shift` makes it absolute.
    """

    start: int
    end: int

    def shift(self, offset: int) -> Span:
        """The span moved by `offset` bytes."""
        return Span(self.start + offset, self.end + offset)

    def cover(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


NO_SPAN = Span(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a document as editors count it: 0-based line, 0-based UTF-16 column."""

    line: int
    character: int


@dataclass(frozen=True)
class SourceText:
    """The bytes of one file, with the conversions that editors and terminals need.

    `path` is only a label for messages. Line breaks are LF, CRLF or a lone CR, as editors count them.
    """

    data: bytes
    path: str = "<text>"

    @staticmethod
    def of(text: str, path: str = "<text>") -> SourceText:
        """The source text of a Python string."""
        return SourceText(text.encode("utf-8", "surrogatepass"), path)

    @cached_property
    def line_starts(self) -> list[int]:
        """Byte offset of the first byte of each line; the first entry is 0."""
        starts, data, at = [0], self.data, 0
        if b"\r" not in data:
            while (at := data.find(b"\n", at) + 1) > 0:
                starts.append(at)
            return starts
        while at < len(data):
            byte = data[at]
            at += 1
            if byte == 0x0D and at < len(data) and data[at] == 0x0A:
                at += 1
            if byte in (0x0A, 0x0D):
                starts.append(at)
        return starts

    def line_of(self, offset: int) -> int:
        """The 0-based line that holds the byte at `offset`; offsets past the end count as the last line."""
        return bisect_right(self.line_starts, max(0, min(offset, len(self.data)))) - 1

    def line_text(self, line: int) -> str:
        """The text of a 0-based line without its line break; empty past the last line."""
        starts = self.line_starts
        if not 0 <= line < len(starts):
            return ""
        end = starts[line + 1] if line + 1 < len(starts) else len(self.data)
        return self.data[starts[line] : end].decode("utf-8", "replace").rstrip("\r\n")

    def position(self, offset: int) -> Position:
        """Byte offset to line and UTF-16 column."""
        line = self.line_of(offset)
        head = self.data[self.line_starts[line] : max(self.line_starts[line], min(offset, len(self.data)))]
        text = head.decode("utf-8", "replace")
        return Position(line, len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2)

    def offset(self, position: Position) -> int:
        """Line and UTF-16 column to byte offset; columns past the end of a line count as its end."""
        starts = self.line_starts
        if position.line >= len(starts):
            return len(self.data)
        text = self.line_text(position.line)
        if text.isascii():
            return starts[position.line] + min(position.character, len(text))
        prefix = text.encode("utf-16-le", "surrogatepass")[: 2 * position.character]
        return starts[position.line] + len(prefix.decode("utf-16-le", "ignore").encode("utf-8", "surrogatepass"))

    def text(self, span: Span) -> str:
        """The text under an absolute span."""
        return self.data[span.start : span.end].decode("utf-8", "replace")
