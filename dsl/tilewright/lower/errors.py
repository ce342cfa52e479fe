"""The one error of lowering and compiling."""

from __future__ import annotations

from tilewright.source import NO_SPAN, Span


class LoweringError(Exception):
    """The target, or the compiler behind it, cannot do what a statement asks for.

    `span` is relative to the kernel's first byte; `NO_SPAN` when the whole kernel is meant. `detail` holds what the
    compiler said, if it said anything.
    """

    def __init__(self, message: str, span: Span = NO_SPAN, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.detail = detail
