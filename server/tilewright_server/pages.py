"""The page of each diagnostic: as text, as a title, and as a place that an editor can open."""

from __future__ import annotations

from functools import cache

from tilewright_analysis.explain import (
    UnknownCode,
    _folder,  # pyright: ignore[reportPrivateUsage]  (where the pages are is known in one place only)
    explain,
)
from tilewright_analysis.explain import title as title_of
from tilewright_server.errors import UsageError


def text(code: str) -> str:
    """The page of a code such as TW404, as Markdown. Raises UsageError, with the codes there are."""
    try:
        return explain(code)
    except UnknownCode as error:
        raise UsageError(str(error)) from None


@cache
def title(code: str) -> str:
    """What a code means in a few words; empty for a code without a page."""
    try:
        return title_of(code)
    except UnknownCode:
        return ""


@cache
def uri(code: str) -> str:
    """The file URI of the page; empty for a code without one."""
    path = _folder() / f"{code}.md"
    return path.as_uri() if path.is_file() else ""
