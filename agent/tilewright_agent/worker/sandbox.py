"""A sandbox for the process of a kernel, where Linux has Landlock: what it may read and write, no network, no signals.

It may read what programs consist of (the system's folders, Python and its packages, CUDA) and write the folder of its
job and devices. So keys and documents in the home folder of the account, and files that other jobs use, are out of its
reach. Landlock is in Linux since 5.13, the rules for TCP since 6.7 and for signals since 6.12; older ones do without.
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all architectures
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_FILE = _EXECUTE | _WRITE | _READ | 1 << 14  # what can be said of a file that is no folder
_READING = _EXECUTE | _READ | _READ_DIR
_TCP = 3  # binding and connecting
_SIGNALS = 2
_MOVED, _TRUNCATED, _TCP_SINCE, _SIGNALS_SINCE = 2, 3, 4, 6  # versions that know these

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys")
_DEVICES = ("/dev",)
_LISTS = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH")
_FOLDERS = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")


def enter(scratch: str) -> bool:
    """Restrict this thread and all that it starts, for good; whether the system can. `scratch` may be written."""
    version = _version()
    if version < 1:
        return False
    handled = (1 << (13 + (version >= _MOVED) + (version >= _TRUNCATED))) - 1
    attributes = (ctypes.c_uint64 * 3)(
        handled, _TCP if version >= _TCP_SINCE else 0, _SIGNALS if version >= _SIGNALS_SINCE else 0
    )
    size = 8 * (1 + (version >= _TCP_SINCE) + (version >= _SIGNALS_SINCE))
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in readable():
            _allow(ruleset, path, _READING & handled)
        for path in (*_DEVICES, scratch):
            _allow(ruleset, path, handled)
        return _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def readable() -> list[str]:
    """Files and folders that programs consist of. Neither a home folder nor what holds one is among them."""
    found = [*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    for name in _LISTS:
        found += os.environ.get(name, "").split(os.pathsep)
    found += [os.environ.get(name, "") for name in _FOLDERS]
    if ptxas := os.environ.get("TRITON_PTXAS_PATH"):
        found.append(os.path.dirname(ptxas))
    return list(dict.fromkeys(path for path in found if path and os.path.exists(path) and not _holds_home(path)))


def _holds_home(path: str) -> bool:
    """A folder of Python's path may be the one that the worker was started in, which is a home folder for ssh."""
    homes: Iterable[Path] = {Path.home(), Path("/home"), Path("/root")}
    return any(Path(path).resolve() in (home, *home.parents) for home in homes)


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                access &= _FILE
            rule = ctypes.create_string_buffer(
                access.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder), 12
            )
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(descriptor)


def _version() -> int:
    if sys.platform != "linux":
        return -1
    return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def _call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))
