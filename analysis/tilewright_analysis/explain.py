"""The pages of the diagnostics: what a code means, why it matters, what to do."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path


class UnknownCode(KeyError):
    """A code without a page."""

    def __str__(self) -> str:
        return str(self.args[0])


def explain(code: str) -> str:
    """The page of a code such as `TW301` as Markdown; upper and lower case both do. Raises UnknownCode."""
    wanted = code.strip().upper()
    if wanted not in codes():
        raise UnknownCode(f"there is no diagnostic '{code}'; there are {', '.join(codes())}")
    return (_folder() / f"{wanted}.md").read_text(encoding="utf-8")


def title(code: str) -> str:
    """What a code means in a few words, as its page says in the first line. Raises UnknownCode."""
    first = explain(code).split("\n", 1)[0]
    return first.partition(": ")[2]


@cache
def codes() -> tuple[str, ...]:
    """All codes with a page, sorted."""
    return tuple(sorted(p.stem for p in _folder().glob("TW*.md")))


@cache
def _folder() -> Path:
    """The pages beside the package in an installation, in `docs` in a checkout."""
    packaged = Path(str(files("tilewright_analysis"))) / "pages"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "docs" / "diagnostics"
