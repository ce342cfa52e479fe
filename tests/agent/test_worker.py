"""The worker's process: messages, limits, and job processes that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright_agent.worker.protocol import FAILURES, PROTOCOL, ProtocolError, decode, encode

# A worker whose job processes do what the job's "act" says. The device is a pretence, to see it passed on.
FAKE_JOB = """
import json, os, signal, sys, time
def say(m): print(json.dumps(m), flush=True)
say({"type": "ready", "devices": [{"kind": "gpu", "name": "Pretended GPU"}], "versions": {}, "capabilities": ["run"],
     "problem": ""})
line = sys.stdin.readline()
if not line: sys.exit()
job = json.loads(line)
act = job.get("act")
say({"type": "progress", "id": job["id"], "stage": "check", "done": 0, "total": 1, "message": str(os.getpid())})
if act == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if act == "exit": print("out of luck", file=sys.stderr); sys.exit(7)
if act == "hang": time.sleep(600)
if act == "garbage": print("not json at all", flush=True)
say({"type": "result", "id": "somebody else", "status": "ok", "failure": "", "message": "", "device": "", "cases": []})
time.sleep(600)  # a job process that has answered is not waited for
"""
SERVE = """
import sys
from tilewright_agent.worker.supervise import serve
sys.exit(serve(sys.stdin.buffer, sys.stdout.buffer, [sys.executable, "-u", sys.argv[1]]))
"""


class Client:
    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
        )
        self.hello = self.hear()

    def say(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(message if isinstance(message, bytes) else encode(message))
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)

    def result(self) -> dict[str, Any]:
        while (message := self.hear())["type"] == "progress":
            pass
        return message


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    script = tmp_path / "fake_job.py"
    script.write_text(FAKE_JOB, encoding="utf-8")
    made = Client([sys.executable, "-c", SERVE, str(script)])
    yield made
    made.process.kill()
    made.process.wait()


def job(identity: str, act: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "job", "protocol": PROTOCOL, "id": identity, "act": act, **more}


def is_gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_the_worker_greets_with_its_protocol_and_devices(client: Client) -> None:
    assert client.hello["type"] == "hello"
    assert client.hello["protocol"] == PROTOCOL
    assert client.hello["devices"] == [{"kind": "gpu", "name": "Pretended GPU"}]
    assert client.hello["capabilities"] == ["run"]


def test_a_result_carries_the_id_of_its_job_and_the_device(client: Client) -> None:
    client.say(job("7"))
    progress, result = client.hear(), client.hear()
    assert (progress["type"], progress["id"]) == ("progress", "7")
    assert (result["type"], result["id"], result["status"]) == ("result", "7", "ok")
    assert result["device"] == "Pretended GPU"


@pytest.mark.parametrize(
    ("act", "failure", "says"),
    [
        ("crash", "crash", "SIGSEGV"),
        ("exit", "crash", "exit status 7"),
        ("exit", "crash", "out of luck"),
        ("hang", "timeout", "limit of 0.5 s"),
    ],
)
def test_one_bad_job_does_not_end_the_worker(client: Client, act: str, failure: str, says: str) -> None:
    client.say(job("1", act, seconds=0.5 if act == "hang" else 30))
    client.say(job("2"))
    first = client.result()
    assert (first["id"], first["status"], first["failure"]) == ("1", "failed", failure)
    assert says in first["message"]
    second = client.result()
    assert (second["id"], second["status"]) == ("2", "ok")


def test_a_job_process_that_never_reads_a_large_job_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "deaf.py"
    script.write_text(FAKE_JOB.replace("line = sys.stdin.readline()", "time.sleep(600)"), encoding="utf-8")
    made = Client([sys.executable, "-c", SERVE, str(script)])
    made.say(job("1", seconds=0.5, padding="x" * 1_000_000))
    assert made.result()["failure"] == "timeout"
    made.process.kill()
    made.process.wait()


def test_each_job_has_a_process_of_its_own_that_is_gone_afterwards(client: Client) -> None:
    pids: list[int] = []
    for identity in ("1", "2"):
        client.say(job(identity))
        pids.append(int(client.hear()["message"]))
        client.result()
    assert pids[0] != pids[1]
    assert is_gone(pids[0])
    assert is_gone(pids[1])


def test_a_running_job_can_be_cancelled(client: Client) -> None:
    client.say(job("1", "hang"))
    pid = int(client.hear()["message"])
    client.say({"type": "cancel", "id": "1"})
    assert client.result()["failure"] == "cancelled"
    assert is_gone(pid)


def test_a_waiting_job_can_be_cancelled(client: Client) -> None:
    client.say(job("1", "hang", seconds=1))
    client.say(job("2"))
    client.say({"type": "cancel", "id": "2"})
    results = {r["id"]: r["failure"] for r in (client.result(), client.result())}
    assert results == {"1": "timeout", "2": "cancelled"}


def test_garbage_from_the_client_is_refused_and_survived(client: Client) -> None:
    for line in (b"\xff\xfe garbage\n", b"[1, 2]\n", b'{"no": "type"}\n', b'{"type": "dance"}\n', b"\n"):
        client.say(line)
        assert client.hear()["type"] == "error"
    client.say({"type": "job", "protocol": PROTOCOL})
    assert "id" in client.hear()["message"]
    client.say(job("1"))
    assert client.result()["status"] == "ok"


def test_garbage_from_a_job_process_is_not_passed_on(client: Client) -> None:
    client.say(job("1", "garbage"))
    assert client.result()["status"] == "ok"


def test_a_job_of_another_protocol_is_refused(client: Client) -> None:
    client.say({**job("1"), "protocol": PROTOCOL + 1})
    result = client.result()
    assert (result["failure"], result["status"]) == ("protocol", "failed")
    assert f"protocol {PROTOCOL + 1}" in result["message"]


@pytest.mark.parametrize("how", ["end of input", "shutdown"])
def test_the_worker_takes_its_job_process_along(client: Client, how: str) -> None:
    client.say(job("1", "hang"))
    pid = int(client.hear()["message"])
    if how == "shutdown":
        client.say({"type": "shutdown"})
    else:
        assert client.process.stdin is not None
        client.process.stdin.close()
    assert client.process.wait(10) == 0
    assert is_gone(pid)


def test_a_job_process_that_cannot_start_is_reported_in_the_greeting(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('libcuda is upside down')", encoding="utf-8")
    made = Client([sys.executable, "-c", SERVE, str(script)])
    assert made.hello["capabilities"] == []
    assert "libcuda is upside down" in made.hello["problem"]
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_job_process_ends_when_its_worker_is_killed() -> None:
    made = Client([sys.executable, "-m", "tilewright_agent.worker"])
    children = Path(f"/proc/{made.process.pid}/task/{made.process.pid}/children").read_text().split()
    assert children
    os.kill(made.process.pid, signal.SIGKILL)
    made.process.wait()
    assert all(is_gone(int(pid)) for pid in children)


def test_the_archive_starts_without_the_package(tmp_path: Path) -> None:
    archive = tmp_path / "worker.pyz"
    command = [sys.executable, "-m", "tilewright_agent.worker", "--archive", str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    # The Python under the virtual environment does not have the language: the worker greets, and says what it lacks.
    python = shutil.which("python3", path=str(Path(sys.base_prefix) / "bin"))
    assert python is not None
    made = Client([python, str(archive)], {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"})
    assert made.hello["protocol"] == PROTOCOL
    assert made.hello["capabilities"] == []
    assert "pip install" in made.hello["problem"]
    made.say(job("1", device="gpu"))
    assert made.result()["failure"] == "unsupported"
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(10)


def test_numbers_that_json_lacks_become_null() -> None:
    assert decode(encode({"type": "x", "value": float("nan"), "inner": [float("inf"), {"y": 1.5}]})) == {
        "type": "x",
        "value": None,
        "inner": [None, {"y": 1.5}],
    }


@pytest.mark.parametrize("line", [b"", b"{", b"null", b'"text"', b"[]", b"{}", b"[" * 100_000])
def test_what_is_no_message_is_said_so(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_every_failure_is_explained() -> None:
    assert all(FAILURES.values())


HUNGRY = """
import json, sys, time
def say(m): print(json.dumps(m), flush=True)
say({"type": "ready", "devices": [], "versions": {}, "capabilities": ["run"], "problem": ""})
line = sys.stdin.readline()
if not line: sys.exit()
job = json.loads(line)
held = b"x" * job["eats"]
time.sleep(job["sleeps"])
say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": "", "device": "", "cases": []})
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_job_that_takes_too_much_memory_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "hungry.py"
    script.write_text(HUNGRY, encoding="utf-8")
    made = Client([sys.executable, "-c", SERVE, str(script)])
    made.say(job("1", eats=300_000_000, sleeps=600, memory=200_000_000))
    result = made.result()
    assert (result["failure"], result["status"]) == ("out of memory", "failed")
    assert "the limit is 0.2 GB" in result["message"]
    made.say(job("2", eats=1000, sleeps=1, memory=200_000_000))
    assert made.result()["status"] == "ok"
    made.process.kill()
    made.process.wait()
