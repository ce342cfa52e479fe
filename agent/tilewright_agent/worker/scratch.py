"""Folders for what jobs write: temporary files and the caches of compilers. They go with the job."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "tilewright-worker-"


class Scratch:
    """The folder of a worker, with one for each job inside. It is locked while the worker lives."""

    def __init__(self, parent: str | None = None) -> None:
        """Make the folder, and remove those of workers that were killed. Raises OSError, as when the disk is full."""
        above = Path(parent or tempfile.gettempdir())
        _sweep(above)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        _locked(self._lock)

    def make(self) -> str:
        """A new folder for a job. Raises OSError."""
        return tempfile.mkdtemp(prefix="job-", dir=self.folder)

    def remove(self, folder: str) -> None:
        """Remove the folder of a job, whatever the job made of it."""
        _remove(Path(folder))

    def close(self) -> None:
        """Remove everything."""
        os.close(self._lock)
        _remove(self.folder)


def _sweep(above: Path) -> None:
    for folder in above.glob(f"{PREFIX}*"):
        try:
            if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():
                continue
            descriptor = os.open(folder / "lock", os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            continue  # of another account, or a worker is just making it
        try:
            dead = _locked(descriptor)
        finally:
            os.close(descriptor)
        if dead:
            _remove(folder)


def _remove(folder: Path) -> None:
    def open_up(function: object, path: str, error: object) -> None:
        with contextlib.suppress(OSError):  # what a job has made read-only
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=False) if not os.path.islink(path) else None
            os.unlink(path) if not os.path.isdir(path) else os.rmdir(path)

    shutil.rmtree(folder, onerror=open_up)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def _locked(descriptor: int) -> bool:
    """Take the lock of a folder; whether nobody else has it. Where there are no such locks, nobody's is taken away."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
