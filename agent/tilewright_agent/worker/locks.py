"""One job at a time on a device, whoever's worker it is: times that overlap with other work would mean nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


class DeviceLock:
    """The lock of a device, by a name that all workers of the machine agree on. It ends with its process.

    It is a file that anybody may lock and nobody has to write, in a folder that all accounts share.
    """

    def __init__(self, name: str, folder: str | None = None) -> None:
        shared = "/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir()
        self._path = Path(folder or shared) / f"tilewright-device-{name}.lock"
        self._descriptor = -1

    def take(self) -> bool:
        """Try to take it; whether it is ours now. Where files cannot be locked, it always is."""
        if self._descriptor >= 0:
            return True
        try:
            import fcntl
        except ImportError:
            return True
        try:
            descriptor = self._open()
        except OSError:
            return True  # no shared folder to write to: nothing to agree by
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def give_back(self) -> None:
        """Let others go on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        # First without creating: a shared folder may forbid to create what somebody else has.
        with contextlib.suppress(FileNotFoundError):
            return os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        with contextlib.suppress(FileExistsError):
            return os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        return os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
