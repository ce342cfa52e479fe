"""The runner behind ssh, through a real sshd on this machine, with ports, keys and files of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.support import FMA, unit
from agent.test_worker import is_gone
from tilewright_agent.runner import run_unit
from tilewright_agent.runner_check import examine, install
from tilewright_agent.worker.confine import descendants

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts sshd and reads /proc"),
]

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"


def daemon() -> str:
    """The path of sshd, which is installed where that is possible (`install_sshd.sh`)."""
    done = subprocess.run(["bash", str(ROOT / "tests/agent/install_sshd.sh")], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    return done.stdout.strip()


@dataclass
class Sshd:
    """A daemon, and how `ssh` and `scp` of this test reach it."""

    folder: Path
    path: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([self.path, "-D", "-e", "-f", self.folder / "sshd_config"], stderr=-3)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("sshd does not start here")

    def make_key(self, name: str) -> None:
        for old in (self.folder / name, self.folder / f"{name}.pub"):
            old.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)

    def clients(self, checking: str = "accept-new") -> None:
        """Write `ssh` and `scp` that reach this daemon; `checking` is what they do about host keys."""
        options = (
            f"-i {self.folder}/user_key -o IdentitiesOnly=yes -o UserKnownHostsFile={self.folder}/known "
            f"-o GlobalKnownHostsFile=none -o StrictHostKeyChecking={checking}"
        )
        for name, flag in (("ssh", "-p"), ("scp", "-P")):
            real = shutil.which(name, path=os.environ["PATH"].partition(os.pathsep)[2])
            wrapper = self.folder / "bin" / name
            wrapper.write_text(f'#!/bin/sh\nexec {real} {flag} {self.port} {options} "$@"\n')
            wrapper.chmod(0o755)

    def cut(self) -> list[int]:
        """End all connections, not the daemon; what ran over them."""
        assert self.process is not None
        found = descendants(self.process.pid)
        for pid in found:
            if "sshd" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(pid, signal.SIGKILL)
        return found

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    made = Sshd(tmp_path, daemon())
    for name in ("host_key", "user_key"):
        made.make_key(name)
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        made.port = probe.getsockname()[1]
    (tmp_path / "authorized").write_text((tmp_path / "user_key.pub").read_text())
    paths = os.pathsep.join(str(ROOT / package) for package in ("dsl", "analysis", "agent", "server"))
    (tmp_path / "sshd_config").write_text(
        f"Port {made.port}\nListenAddress {HOST}\nHostKey {tmp_path}/host_key\nPidFile none\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path}/authorized\nPasswordAuthentication no\nUsePAM no\nPermitRootLogin yes\n"
        f"Subsystem sftp internal-sftp\nSetEnv PYTHONPATH={paths}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    made.clients()
    made.start()
    yield made
    made.stop()


def test_install_and_run(sshd: Sshd, tmp_path: Path) -> None:
    remote = f"{tmp_path}/there/worker.pyz"
    command = install(HOST, sys.executable, remote)
    (state,) = examine({"box": command})
    assert "interpreter (no GPU)" in state.found, state.problem
    result = run_unit(unit(FMA), command, [{"N": 100}])
    assert (result.status, result.correct) == ("ok", True), result.message
    Path(remote).unlink()
    (state,) = examine({"box": command})
    assert "runner install" in state.advice


def worker(sshd: Sshd) -> str:
    return install(HOST, sys.executable, f"{sshd.folder}/there/worker.pyz")


@pytest.mark.parametrize("checking", ["yes", "ask"])
def test_an_unknown_host_key_is_a_clear_state_and_nobody_is_asked(sshd: Sshd, checking: str) -> None:
    command = worker(sshd).replace("-o BatchMode=yes ", "")
    (sshd.folder / "known").unlink()
    sshd.clients(checking)
    begin = time.monotonic()
    (state,) = examine({"box": command})
    assert "Host key verification failed" in state.problem
    assert "accept the key" in state.advice
    result = run_unit(unit(FMA), command, [{"N": 100}])
    assert (result.status, result.failure, result.correct) == ("failed", "connection", None)
    assert time.monotonic() - begin < 20


def test_a_host_key_that_has_changed_is_refused(sshd: Sshd) -> None:
    command = worker(sshd)
    sshd.stop()
    sshd.make_key("host_key")
    sshd.start()
    (state,) = examine({"box": command})
    assert "IDENTIFICATION HAS CHANGED" in state.problem and "accept the key" in state.advice


def test_a_key_that_does_not_get_in_says_what_to_do(sshd: Sshd) -> None:
    command = worker(sshd)
    sshd.make_key("user_key")
    (state,) = examine({"box": command})
    assert "Permission denied" in state.problem and "ssh-copy-id" in state.advice


def test_a_connection_that_is_lost_in_the_middle_is_made_again_and_leaves_nothing_there(sshd: Sshd) -> None:
    command = worker(sshd)
    steps: list[str] = []
    there: list[int] = []

    def progress(message: str, share: float) -> None:
        steps.append(message)
        if "checking" in message and not there:
            there.extend(sshd.cut())

    result = run_unit(unit(FMA), command, [{"N": 3_000_000}], progress)
    assert (result.status, result.correct) == ("ok", True), result.message
    assert any("once more" in step for step in steps)
    assert len(there) > 3 and all(is_gone(pid) for pid in there)


def test_a_host_that_is_gone_in_the_middle_gives_no_number(sshd: Sshd) -> None:
    command = worker(sshd)

    def progress(message: str, share: float) -> None:
        if "checking" in message:
            found = sshd.cut()
            sshd.stop()
            assert found

    result = run_unit(unit(FMA), command, [{"N": 3_000_000}], progress)
    assert (result.status, result.failure, result.correct, result.cases) == ("failed", "connection", None, ())
    assert "Connection refused" in result.message
