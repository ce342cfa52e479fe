"""What is left of a job when it has ended, what reaches it, and who may use a device at a time."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.support import FMA, unit
from agent.test_worker import SERVE, Client, is_gone, job
from tilewright_agent.jobs import build_job
from tilewright_agent.worker import nursery
from tilewright_agent.worker import scratch as scratches
from tilewright_agent.worker.confine import descendants, environment
from tilewright_agent.worker.grade import grade
from tilewright_agent.worker.interpreter import Interpreter
from tilewright_agent.worker.locks import DeviceLock
from tilewright_agent.worker.scratch import PREFIX, Scratch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A judge whose jobs do what "act" says. It goes on after a job unless that asks it not to.
JUDGE = """
import json, os, subprocess, sys, time
def say(m): print(json.dumps(m), flush=True)
say({"type": "ready", "devices": [{"kind": "gpu", "name": "Pretended GPU", "lock": LOCK}], "versions": {},
     "capabilities": ["run"], "problem": ""})
for line in sys.stdin:
    job = json.loads(line)
    act, message = job.get("act"), ""
    if act == "leave":  # a daemon: of another session, and a child of nobody
        message = subprocess.run([sys.executable, "-c",
            "import os, subprocess, sys\\n"
            "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True, stdout=-3, stderr=-3)\\n"
            "print(p.pid)"], capture_output=True, text=True).stdout.strip()
    if act == "files":
        folder = job["scratch"]
        os.makedirs(os.path.join(folder, "deep", "deeper"))
        open(os.path.join(folder, "deep", "deeper", "file"), "w").close()
        os.chmod(os.path.join(folder, "deep", "deeper"), 0o500)
        message = folder
    if act == "environment": message = json.dumps(dict(os.environ))
    if act == "pid": message = str(os.getpid())
    if act == "sleep": time.sleep(job["for"])
    say({"type": "progress", "id": job["id"], "stage": "check", "done": 0, "total": 1, "message": message})
    if act == "hang": time.sleep(600)
    say({"type": "result", "id": job["id"], "status": "ok", "failure": "", "message": message, "device": "",
         "cases": [], **({} if act == "broken" else {"keep": []})})
"""


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Any]:
    script = tmp_path / "judge.py"
    script.write_text(f"LOCK = 'test-{os.getpid()}'\n" + JUDGE, encoding="utf-8")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    made: list[Client] = []

    def make(**environ: str) -> Client:
        made.append(Client([sys.executable, "-c", SERVE, str(script)], {"TMPDIR": str(temporary), **environ}))
        return made[-1]

    yield make
    for client in made:
        client.process.kill()
        client.process.wait()


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").glob(f"{PREFIX}*"))


def test_the_judge_serves_several_jobs_and_is_replaced_when_it_is_of_no_more_use(clients: Any) -> None:
    client = clients()
    pids: list[str] = []
    for identity, act in enumerate(("pid", "pid", "broken", "pid")):
        client.say(job(str(identity), act))
        pids.append(client.result()["message"])
    assert pids[0] == pids[1] and pids[0] != pids[3]


def test_a_process_that_a_job_leaves_behind_is_killed(clients: Any) -> None:
    client = clients()
    client.say(job("1", "leave"))
    assert is_gone(int(client.result()["message"]))
    client.say(job("2", "pid"))
    assert client.result()["status"] == "ok", "the judge is not"


@pytest.mark.parametrize("end", ["result", "cancel", "timeout"])
def test_the_folder_of_a_job_goes_with_it(clients: Any, end: str) -> None:
    client = clients()
    client.say(job("1", "files" if end == "result" else "hang", seconds=0.5 if end == "timeout" else 30))
    if end == "result":
        folder = Path(client.result()["message"])
        assert PREFIX in str(folder) and not folder.exists()
        return
    assert client.hear()["type"] == "progress"
    (own,) = folders(client_tmp(client))
    assert list(own.glob("job-*"))
    if end == "cancel":
        client.say({"type": "cancel", "id": "1"})
    client.result()
    client.say(job("2"))
    client.result()
    assert len(list(own.glob("job-*"))) == 1, "that of the judge"


def client_tmp(client: Client) -> Path:
    environ = Path(f"/proc/{client.process.pid}/environ")
    text = environ.read_bytes().decode()
    return Path(next(e.partition("=")[2] for e in text.split("\0") if e.startswith("TMPDIR="))).parent


def test_the_folder_of_a_worker_goes_when_it_ends_and_that_of_a_killed_one_with_the_next(
    clients: Any, tmp_path: Path
) -> None:
    first, second = clients(), clients()
    assert len(folders(tmp_path)) == 2
    first.process.stdin.close()
    assert first.process.wait(10) == 0
    (left,) = folders(tmp_path)
    second.process.send_signal(signal.SIGKILL)
    second.process.wait()
    clients()
    assert folders(tmp_path) and left not in folders(tmp_path)


def test_only_variables_that_are_allowed_reach_a_job(clients: Any) -> None:
    client = clients(ANTHROPIC_API_KEY="secret", AWS_SECRET_ACCESS_KEY="secret", HF_TOKEN="secret", SOMETHING="secret",
                     CUDA_VISIBLE_DEVICES="1", CUDA_SECRET_TOKEN="secret", SSH_AUTH_SOCK="secret")  # fmt: skip
    client.say(job("1", "environment"))
    text = client.result()["message"]
    assert "secret" not in text
    assert '"CUDA_VISIBLE_DEVICES": "1"' in text and '"PATH"' in text


def test_names_of_variables_are_matched_whole() -> None:
    found = environment(
        {"PATH": "a", "MY_PATH": "b", "path": "c", "LC_ALL": "d", "CUDA_API_KEY": "e", "PYTHONPATH": "f"}
    )
    assert found == {"PATH": "a", "path": "c", "LC_ALL": "d", "PYTHONPATH": "f"}


def test_a_disk_that_is_full_when_a_job_begins_fails_the_job_alone(clients: Any, tmp_path: Path) -> None:
    client = clients()
    (own,) = folders(tmp_path)
    moved = own.rename(own.with_name("away"))
    client.say(job("1"))
    assert client.result()["failure"] == "disk full"
    moved.rename(own)
    client.say(job("2"))
    assert client.result()["status"] == "ok"


def test_two_workers_take_turns_on_a_device_and_the_waiting_one_says_so(clients: Any) -> None:
    first, second = clients(), clients()
    first.say(job("1", "sleep", **{"for": 1.0}))
    time.sleep(0.3)
    begin = time.monotonic()
    second.say(job("1", "pid"))
    waiting = second.hear()
    assert (waiting["type"], waiting["stage"]) == ("progress", "queue")
    assert "another job" in waiting["message"]
    assert second.result()["status"] == "ok"
    assert time.monotonic() - begin > 0.5
    assert first.result()["status"] == "ok"


def test_a_job_that_waits_for_a_device_can_be_cancelled_and_its_time_has_not_begun(clients: Any) -> None:
    first, second = clients(), clients()
    first.say(job("1", "hang"))
    first.hear()
    second.say(job("1", seconds=0.2))
    second.say(job("2"))
    second.say({"type": "cancel", "id": "2"})
    assert second.result() | {"device": ""} == second_cancelled()
    first.process.kill()
    first.process.wait()
    assert second.result()["status"] == "ok", "a lock ends with its worker"


def second_cancelled() -> dict[str, Any]:
    from tilewright_agent.worker.protocol import failed

    return failed("2", "cancelled", "cancelled before it started")


def test_a_lock_needs_no_right_to_write(tmp_path: Path) -> None:
    one, other = DeviceLock("x", str(tmp_path)), DeviceLock("x", str(tmp_path))
    assert one.take() and one.take() and not other.take()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == 0 and path.stat().st_mode & 0o777 == 0o644
    one.give_back()
    assert other.take()
    other.give_back()


def test_a_folder_of_another_worker_is_left_alone(tmp_path: Path) -> None:
    alive = Scratch(str(tmp_path))
    dead = tmp_path / f"{PREFIX}dead"
    dead.mkdir()
    (dead / "lock").touch()
    foreign = tmp_path / f"{PREFIX}new"
    foreign.mkdir()  # without a lock: a worker is just making it
    mine = Scratch(str(tmp_path))
    assert alive.folder.exists() and foreign.exists() and not dead.exists()
    mine.close()
    alive.close()
    assert not alive.folder.exists()
    with open(foreign / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not scratches._locked(os.open(foreign / "lock", os.O_RDWR))


def test_a_real_worker_leaves_neither_processes_nor_files(tmp_path: Path) -> None:
    made = unit(FMA)
    assert made.kernel is not None
    client = Client([sys.executable, "-m", "tilewright_agent.worker"], {"TMPDIR": str(tmp_path)})
    for identity in ("1", "2"):
        client.say(build_job(made, made.kernel, identity, [{"N": 100}], gpu=False))
        result = client.result()
        assert result["status"] == "ok" and result["cases"][0]["correct"] is True, result
    below = subprocess.run(["pgrep", "-P", str(client.process.pid)], capture_output=True, text=True).stdout.split()
    assert below
    client.process.kill()
    client.process.wait()
    assert all(is_gone(int(pid)) for pid in below)
    Client([sys.executable, "-m", "tilewright_agent.worker"], {"TMPDIR": str(tmp_path)}).process.stdin.close()
    for _ in range(100):
        if not list(tmp_path.iterdir()):
            break
        time.sleep(0.1)
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_fork_a_process_is_started_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nursery, "FORKS", False)
    made = unit(FMA)
    assert made.kernel is not None
    device = Interpreter()
    device.folder = str(tmp_path)
    starter = nursery.Nursery([sys.executable, "-m", "tilewright_agent.worker"])
    candidate = starter.start("interpreter")
    candidate.scratch = str(tmp_path)
    (result,) = grade(
        build_job(made, made.kernel, "1", [{"N": 100}], gpu=False), device, lambda: candidate.ask, lambda *_: None
    )
    assert result["correct"] is True
    assert not list(tmp_path.iterdir()), "tensors are removed with their case"
    candidate.end()
    assert is_gone(candidate.pid)


def test_a_spare_process_that_died_is_no_harm_to_the_next_job() -> None:
    made = unit(FMA)
    assert made.kernel is not None
    client = Client([sys.executable, "-m", "tilewright_agent.worker"])
    client.say(build_job(made, made.kernel, "1", [{"N": 100}], gpu=False))
    assert client.result()["status"] == "ok"
    judge = children(client.process.pid)[0]
    forked = [pid for pid in descendants(client.process.pid) if pid not in (judge, *children(judge))]
    assert forked
    for pid in forked:  # the spare one, and perhaps what is left of the first
        os.kill(pid, signal.SIGKILL)
    client.say(build_job(made, made.kernel, "2", [{"N": 100}], gpu=False))
    result = client.result()
    assert result["status"] == "ok", result
    client.process.kill()
    client.process.wait()


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
