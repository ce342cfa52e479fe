"""What the process of a kernel can reach: its folder and its device, and nothing of the worker or the account."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from agent.test_cheats import graded
from tilewright_agent.worker import confine, sandbox
from tilewright_agent.worker.grade import JobError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")


SPY = """
def prepare(x, out):
    def run():
        judge, found = os.getppid(), []
        for path in (f"/proc/{judge}/mem", f"/proc/{judge}/environ", f"/proc/{judge}/fd/1", f"/proc/{judge}/maps"):
            try:
                with open(path, "rb") as file:
                    if path.endswith(("environ", "maps")): file.read(1)
                found.append(path)
            except OSError:
                pass
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(16, judge, 0, 0) == 0: found.append("ptrace")
        raise ValueError(f"got into {found}")
    return run
"""


def test_the_memory_of_the_judge_is_closed(tmp_path: Path) -> None:
    confine.close_memory()
    try:
        with pytest.raises(JobError, match=r"got into \[\]"):
            graded(SPY, tmp_path, confined=True)
    finally:
        confine._prctl(confine._PR_SET_DUMPABLE, 1)


def test_the_process_of_a_kernel_has_no_privileges_and_limits(tmp_path: Path) -> None:
    text = """
import resource
def prepare(x, out):
    def run():
        status = open("/proc/self/status").read()
        wanted = ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs")
        kept = [line.split()[1] for line in status.splitlines() if line.startswith(wanted)]
        limits = [resource.getrlimit(w)[0] for w in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
        raise ValueError(f"{[int(k, 16) for k in kept]} {limits} {resource.getrlimit(resource.RLIMIT_NPROC)[0] > 0}")
    return run
"""
    with pytest.raises(JobError) as error:
        graded(text, tmp_path, confined=True)
    assert f"[0, 0, 0, 1] [0, {confine.FILE_BYTES}] True" in str(error.value)


def test_a_kernel_works_in_the_folder_of_its_job(tmp_path: Path) -> None:
    text = """
import tempfile
def prepare(x, out):
    def run():
        raise ValueError(f"{os.getcwd()} {tempfile.gettempdir()} {os.environ['TRITON_CACHE_DIR']}")
    return run
"""
    with pytest.raises(JobError) as error:
        graded(text, tmp_path)
    assert f"{tmp_path} {tmp_path} {tmp_path}{os.sep}triton" in str(error.value)


OUTSIDE = """
import signal, socket
def prepare(x, out):
    def run():
        done = []
        for path, mode in ((SECRET, "rb"), (SECRET, "ab"), (SECRET + ".new", "wb")):
            try:
                open(path, mode).close()
                done.append((path, mode))
            except OSError:
                pass
        for act in (lambda: socket.create_connection(("127.0.0.1", PORT), 5), lambda: os.kill(os.getppid(), 0),
                    lambda: socket.create_server(("127.0.0.1", 0))):
            try:
                act()
                done.append(act)
            except OSError:
                pass
        open("mine", "w").close()
        raise ValueError(f"did {done} and wrote {os.listdir('.')}")
    return run
"""


def test_files_network_and_processes_of_others_are_out_of_reach(tmp_path: Path) -> None:
    if sandbox._version() < sandbox._SIGNALS_SINCE:
        pytest.skip("this Linux cannot do it")
    secret, scratch = tmp_path / "secret", tmp_path / "scratch"
    secret.write_text("a key")
    scratch.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(JobError) as error:
        text = f"SECRET, PORT = {str(secret)!r}, {server.getsockname()[1]}\n" + OUTSIDE
        graded(text, scratch, confined=True)
    assert "did [] and wrote ['mine']" in str(error.value)


def test_a_home_folder_is_never_among_what_may_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{tmp_path / 'venv'}{os.pathsep}{tmp_path.parent}")
    found = sandbox.readable()
    assert str(tmp_path / "venv") in found and "/usr" in found
    assert not {"", "/", str(tmp_path), str(tmp_path.parent), "/home", "/root"} & set(found)
