"""Which files a person means, and what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.source import SourceText
from tilewright_server.errors import UsageError

# Folders that hold other people's code or build results; a person who means one names it.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})


@dataclass(frozen=True, slots=True)
class KernelPath:
    """`FILE` or `FILE::kernel`; an empty kernel means the only one of the file."""

    file: Path
    kernel: str

    @staticmethod
    def parse(text: str) -> KernelPath:
        """Split at the last `::`."""
        file, separator, kernel = text.rpartition("::")
        return KernelPath(Path(file if separator else text), kernel if separator else "")


def python_files(paths: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Each file once, in the order given; folders are walked, sorted. The flag says that the person named the file.

    Raises UsageError when a path does not exist.
    """
    seen: set[Path] = set()
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found = [(file, False) for file in _walk(path)]
        elif path.exists():
            found = [(path, True)]
        else:
            raise UsageError(f"no such file or folder: {text}")
        for file, named in found:
            identity = file.resolve()
            if identity not in seen:
                seen.add(identity)
                yield file, named


def read(path: Path) -> SourceText:
    """The text of a file, as bytes. Raises UsageError when it cannot be read."""
    try:
        return SourceText(path.read_bytes(), path.as_posix())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def mentions_tilewright(data: bytes) -> bool:
    """False for files that certainly hold no kernel: a kernel's module imports tilewright by name."""
    return b"tilewright" in data


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED and not name.startswith(".") and not (Path(root) / name / "pyvenv.cfg").exists()
        )
        yield from (Path(root) / name for name in sorted(files) if name.endswith(".py"))
