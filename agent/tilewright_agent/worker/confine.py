"""What processes of a worker may see and use: an environment without secrets, limits, and no way into each other.

A job runs with the rights of the account of its worker. This keeps it from what it has no business with all the same:
memory of the worker's own processes, variables that hold keys, the machine's last byte of memory, more processes than a
compiler needs. It is no sandbox: files of the account and the network stay as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping

PROCESSES = 512  # processes and threads of a job, beside those that the account has
FILE_BYTES = 4 << 30  # the largest file that a job may write

# Names that a job may need; all others stay out, because nobody can list what holds a secret.
_ALLOWED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|VIRTUAL_ENV|CONDA_PREFIX|CC|CXX"
    r"|PYTHON(PATH|HOME|NOUSERSITE|UNBUFFERED|DONTWRITEBYTECODE|UTF8|IOENCODING)"
    r"|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|LIBRARY_PATH|CPATH"
    r"|(CUDA|NVIDIA|HIP|ROCR|ROCM|HSA|TRITON|PYTORCH)_\w+|GPU_DEVICE_ORDINAL|(OMP|MKL|OPENBLAS)_NUM_THREADS"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|PROGRAMDATA|LOCALAPPDATA|APPDATA|USERPROFILE|NUMBER_OF_PROCESSORS"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY\b|API_?KEY", re.IGNORECASE)

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522


def environment(of: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that reach the processes of a job."""
    found = os.environ if of is None else of
    return {k: v for k, v in found.items() if _ALLOWED.fullmatch(k.upper()) and not _SECRET.search(k)}


def close_memory() -> None:
    """Keep other processes of this account out of the memory and descriptors of this one (Linux)."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, so that none gets away (Linux)."""
    _prctl(_PR_SET_SUBREAPER, 1)


def confine() -> None:
    """Limit this process and what it starts, and take away its privileges (POSIX; most of it on Linux)."""
    import resource

    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    if sys.platform == "linux":
        _limit(resource.RLIMIT_NPROC, threads_of_account() + PROCESSES)
    _prctl(_PR_SET_DUMPABLE, 1)  # a fork has it from its parent
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()


def limit_memory(size: int) -> None:
    """The most bytes of its own that this process, and each that it starts, may have (Linux)."""
    if size > 0 and sys.platform == "linux":
        import resource

        _limit(resource.RLIMIT_DATA, size)


def threads_of_account() -> int:
    """Threads that the account runs, which is what the limit of processes counts."""
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += int(_status(int(name))[17])
    return count


def descendants(of: int) -> list[int]:
    """Processes below one, the deepest last; none where the system does not tell."""
    parents: dict[int, int] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdigit():
                parents[int(name)] = int(_status(int(name))[1])
    found, level = list[int](), [of]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def kill_all(pids: Iterable[int]) -> None:
    """End processes, and collect those that are this process's children."""
    pids = list(pids)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    for pid in pids:
        with contextlib.suppress(ChildProcessError, AttributeError):
            os.waitpid(pid, getattr(os, "WNOHANG", 0))


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that processes hold together, shared memory once for each; 0 where the system does not tell."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def _limit(which: int, value: int) -> None:
    import resource

    most = resource.getrlimit(which)[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(which, (value, value))


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, ..., 17 is the number of threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _drop_capabilities() -> None:
    """Without capabilities even root may not trace or read the memory of a process that is closed."""
    if sys.platform != "linux":
        return
    for number in range(64):
        _prctl(_PR_CAPBSET_DROP, number)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _libc().capset(header, none)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc().prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
