"""What the front end has to say about a file: problems with a code, a place and a way out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.source import Span

Severity = Literal["error", "warning", "information", "hint"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text under `span` by `text`. Spans are relative to the kernel unless said otherwise."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that settles a problem, offered to the person as `title`."""

    title: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that explains a problem."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of the front end (syntax, names, types, layouts): code `TW0nn` or `TW5nn`, message, place."""

    code: str
    message: str
    span: Span
    severity: Severity = "error"
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = field(default=())

    def shift(self, offset: int) -> Problem:
        """The problem with every span moved by `offset` bytes."""
        return Problem(
            self.code,
            self.message,
            self.span.shift(offset),
            self.severity,
            tuple(Related(r.span.shift(offset), r.message) for r in self.related),
            tuple(Fix(f.title, tuple(Edit(e.span.shift(offset), e.text) for e in f.edits)) for f in self.fixes),
        )
