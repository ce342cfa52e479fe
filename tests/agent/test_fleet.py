"""A fleet for real: a scheduler and two machines on localhost, with TLS. The interpreter stands in for their GPUs."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

import contextlib

from agent.support import FMA, unit
from tilewright_agent.fleet import FleetError
from tilewright_agent.fleet.bridge import greeting
from tilewright_agent.fleet.certificates import checked_address, make_certificates
from tilewright_agent.history import History
from tilewright_agent.jobs import build_job
from tilewright_agent.pool import Pool, Work
from tilewright_agent.runner import Runner, run_unit
from tilewright_agent.runner_check import examine
from tilewright_agent.runner_config import RunnerConfigError, resolve
from tilewright_agent.transport import Cancelled, ConnectionFailed
from tilewright_agent.tune import tune
from tilewright_agent.worker.protocol import PROTOCOL
from tilewright_server.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CLI = "import sys; from tilewright_server.cli import main; sys.exit(main(sys.argv[1:]))"
LONG = [{"N": 30_000_000}]  # the interpreter is at it for a long time
WAIT = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: Callable[[], bool], seconds: float = WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


@dataclass
class Fleet:
    folder: Path
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def command(self) -> str:
        return f"{sys.executable} -m tilewright_agent.fleet --scheduler {self.address} --certificates {self.folder}"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CLI, "fleet", *arguments, "--certificates", str(self.folder)]
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        return self.processes[-1]

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        process = self.start("scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        assert process.stdout is not None and b"scheduler of the fleet" in process.stdout.readline()
        return process

    def start_machine(self) -> subprocess.Popen[bytes]:
        process = self.start("worker", self.address, "--gpus", "none")
        assert process.stdout is not None and b"joined" in process.stdout.readline()
        return process

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def node_of(machine: subprocess.Popen[bytes]) -> int:
    """The process that stands for the GPU of a machine."""
    (pid,) = Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
    return int(pid)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet") / "certificates"
    assert main(["fleet", "certificates", str(folder)]) == 0
    made = Fleet(folder)
    try:
        made.start_scheduler()
        made.start_machine()
        made.start_machine()
        yield made
    finally:
        made.stop()


def test_a_kernel_runs_on_a_fleet_by_its_name(fleet: Fleet, tmp_path: Path) -> None:
    text = f'[tool.tilewright.runners]\nfarm = {{ scheduler = "{fleet.address}", certificates = "{fleet.folder}" }}\n'
    (tmp_path / "pyproject.toml").write_text(text)
    command = resolve("farm", tmp_path)
    steps: list[str] = []
    result = run_unit(unit(FMA), command, [{"N": 100}], lambda message, share: steps.append(message))
    assert (result.status, result.correct, result.label) == ("ok", True, "interpreter (no GPU)"), result.message
    assert any("checking" in step for step in steps)
    wrong = run_unit(unit(FMA.replace("x * y + x)", "x * y + y)")), command, [{"N": 100}])
    assert (wrong.status, wrong.correct) == ("ok", False)


def test_doctor_greets_a_fleet(fleet: Fleet) -> None:
    (state,) = examine({"farm": fleet.command})
    assert "interpreter (no GPU)" in state.found and "2 at once" in state.found, state.problem


def test_every_socket_of_a_fleet_speaks_tls_alone(fleet: Fleet) -> None:
    pids = {str(p.pid) for p in fleet.processes} | {str(node_of(m)) for m in fleet.processes[1:]}
    inodes: set[str] = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening: set[tuple[str, int]] = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8)]
                listening.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    assert len(listening) >= 3
    for host, port in listening:
        with socket.create_connection((host, port), 5) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            plain.settimeout(5)
            with contextlib.suppress(ConnectionError, TimeoutError):
                assert b"HTTP" not in plain.recv(1000), f"{host}:{port} answers without TLS"
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((host, port), 5) as plain, trusting.wrap_socket(plain) as covered:
            assert covered.version() is not None


def test_runs_are_spread_over_the_machines(fleet: Fleet) -> None:
    with Pool([fleet.command], lambda: False) as pool:
        assert (pool.size, pool.devices) == (2, ["interpreter (no GPU)"])
        for number in range(4):
            pool.submit(Work(number, unit(FMA), [{"N": 2_000_000}], 0))
        done: list[int] = []
        deadline = time.monotonic() + WAIT
        while len(done) < 4 and time.monotonic() < deadline:
            if (found := pool.result(0.2)) is not None:
                assert found[1].correct is True, found[1].message
                done.append(found[0].number)
    assert sorted(done) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_search_over_a_fleet_resumes(fleet: Fleet, tmp_path: Path) -> None:
    kernel = unit(FMA.replace("BLOCK: Const = 1024", "BLOCK: Const = tw.choice(256, 512, 1024)"))
    with History(tmp_path / "history.db") as history:
        asked = [0]

        def enough() -> bool:
            return asked[0] >= 1

        def count(done: int, total: int, message: str) -> None:
            asked[0] = done

        first = tune(kernel, runners=[fleet.command], history=history, limit=3, progress=count, cancelled=enough)
        assert 1 <= first.decided < first.total
        second = tune(kernel, runners=[fleet.command], history=history, limit=3)
    assert second.resumed >= 1 and second.decided == second.total


def test_a_job_of_a_newer_protocol_is_refused(fleet: Fleet) -> None:
    with Runner(fleet.command) as session:
        result = session.connection.request({"type": "job", "protocol": PROTOCOL + 1, "id": "1"})
        assert (result["failure"], result["id"]) == ("protocol", "1")
        assert session.run(unit(FMA), [{"N": 100}]).correct is True


def test_a_run_on_a_fleet_can_be_cancelled_and_frees_its_machine(fleet: Fleet) -> None:
    asked = threading.Event()
    with Runner(fleet.command, asked.is_set) as session:
        threading.Timer(2.0, asked.set).start()
        with pytest.raises(Cancelled):
            session.run(unit(FMA), LONG)
    begin = time.monotonic()
    with Pool([fleet.command], lambda: False) as pool:
        for number in range(2):
            pool.submit(Work(number, unit(FMA), [{"N": 100}], 0))
        for _ in range(2):
            found = None
            while found is None:
                found = pool.result(0.2)
                assert time.monotonic() - begin < WAIT
            assert found[1].correct is True


def test_a_machine_that_is_killed_in_the_middle_gives_no_number_and_comes_back(fleet: Fleet) -> None:
    kernel = unit(FMA)
    assert kernel.kernel is not None
    job = build_job(kernel, kernel.kernel, "1", LONG, gpu=False)
    with Runner(fleet.command) as session:
        begun = threading.Event()
        answers: list[dict[str, object]] = []
        thread = threading.Thread(
            target=lambda: answers.append(session.connection.request(job, lambda _: begun.set())), daemon=True
        )
        thread.start()
        assert begun.wait(WAIT)
        for machine in fleet.processes[1:]:
            os.kill(node_of(machine), signal.SIGKILL)
        thread.join(WAIT)
        assert answers and (answers[0]["failure"], answers[0]["cases"]) == ("connection", [])
        assert "lost" in str(answers[0]["message"])
        again = session.run(kernel, [{"N": 100}])
        assert again.correct is True, again.message


def test_certificates_of_another_fleet_do_not_get_in(fleet: Fleet, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    stranger = Fleet(tmp_path, fleet.port)
    result = run_unit(unit(FMA), stranger.command, [{"N": 100}])
    assert (result.status, result.failure, result.correct) == ("failed", "connection", None)
    assert "cannot be reached" in result.message and "certificates" in result.message


@pytest.mark.slow
def test_a_fleet_without_machines_and_a_scheduler_that_is_lost(fleet: Fleet) -> None:
    lonely = Fleet(fleet.folder)
    try:
        scheduler = lonely.start_scheduler()
        (state,) = examine({"farm": lonely.command})
        assert "has joined" in state.problem and "fleet worker" in state.advice
        lonely.start_machine()
        with Runner(lonely.command) as session:
            assert session.run(unit(FMA), [{"N": 100}]).correct is True
            scheduler.kill()
            with pytest.raises(ConnectionFailed, match="is gone"):
                session.run(unit(FMA), LONG)
    finally:
        lonely.stop()
    (state,) = examine({"farm": lonely.command})
    assert "cannot be reached" in state.problem and "fleet scheduler" in state.advice


# ------------------------------------------------------------------------------------------------ without a cluster

GOOD = {
    "type": "hello", "protocol": PROTOCOL, "host": "a", "devices": [{"kind": "gpu", "name": "NVIDIA H200"}],
    "versions": {"triton": "3.6.0"}, "capabilities": ["run"], "problem": "",
}  # fmt: skip


def test_only_machines_of_one_kind_are_used() -> None:
    hellos = {"1": GOOD, "2": {**GOOD, "versions": {"triton": "3.5.0"}}, "3": {**GOOD, "host": "b"}, "4": {
        **GOOD, "problem": "there is no room for the files of jobs"}}  # fmt: skip
    hello, chosen = greeting(hellos)
    assert chosen == ["1", "3"]
    assert (hello["slots"], hello["host"], hello["problem"]) == (2, "a, b", "")
    assert "2 of 4 machines are not used" in hello["note"]


@pytest.mark.parametrize(
    ("hellos", "says"),
    [
        ({}, "no machine with a GPU has joined"),
        ({"1": {**GOOD, "protocol": PROTOCOL + 1}}, f"protocol {PROTOCOL + 1}"),
        ({"1": {**GOOD, "problem": "there is no room for the files of jobs"}}, "no room"),
    ],
)
def test_a_fleet_with_nothing_to_run_on_says_why(hellos: dict[str, dict[str, object]], says: str) -> None:
    hello, chosen = greeting(hellos)
    assert says in hello["problem"] and chosen == [] and hello["slots"] == 0


@pytest.mark.parametrize("address", ["tcp://head:8786", "head:8786", "tls://head", "ws://head:1"])
def test_nothing_is_sent_without_tls(address: str, tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="without TLS"):
        checked_address(address)
    text = f'[tool.tilewright.runners]\nfarm = {{ scheduler = "{address}", certificates = "c" }}\n'
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(RunnerConfigError, match="without TLS"):
        resolve("farm", tmp_path)
    command = f"{sys.executable} -m tilewright_agent.fleet --scheduler {address} --certificates {tmp_path}"
    assert "without TLS" in run_unit(unit(FMA), command).message


@pytest.mark.parametrize(
    "table", ['{ scheduler = "tls://a:1" }', '{ certificates = "x" }', '{ scheduler = 1, certificates = "x" }']
)
def test_a_table_that_lacks_something_says_what_a_fleet_needs(table: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.tilewright.runners]\nfarm = {table}\n")
    with pytest.raises(RunnerConfigError, match="needs scheduler"):
        resolve("farm", tmp_path)


def test_certificates_are_made_once_and_their_key_is_private(tmp_path: Path) -> None:
    authority, member = make_certificates(tmp_path / "new")
    assert member.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE KEY" not in authority.read_bytes(), "the authority signs no more"
    with pytest.raises(FleetError, match="already"):
        make_certificates(tmp_path / "new")


def test_without_certificates_it_says_where_they_come_from(tmp_path: Path) -> None:
    result = run_unit(unit(FMA), Fleet(tmp_path).command)
    assert "tilewright fleet certificates" in result.message
