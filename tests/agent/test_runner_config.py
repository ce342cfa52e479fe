"""Runners by name, what is wrong with them, and the worker brought to a host: with stand-ins for ssh, and with sshd."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.support import FMA, program, unit
from agent.test_runner import HELLO, fake
from tilewright_agent.runner import run_unit
from tilewright_agent.runner_check import REMOTE, SSH_OPTIONS, InstallError, examine, install
from tilewright_agent.runner_config import RunnerConfigError, find_config, resolve

TABLE = '[project]\nname = "x"\n\n[tool.tilewright.runners]\ngpu = "ssh gpu-box tilewright-worker"\n"box-2" = "./w"\n'


def project(folder: Path, text: str = TABLE) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    deep = folder / "src" / "kernels"
    deep.mkdir(parents=True, exist_ok=True)
    return deep


# ------------------------------------------------------------------------------------------------ names


def test_names_come_from_the_nearest_file_that_has_the_table(tmp_path: Path) -> None:
    deep = project(tmp_path)
    (tmp_path / "src" / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    config = find_config(deep)
    assert config.file == tmp_path / "pyproject.toml"
    assert config.commands == {"gpu": "ssh gpu-box tilewright-worker", "box-2": "./w"}
    assert resolve("gpu", deep) == resolve(" gpu ", deep) == "ssh gpu-box tilewright-worker"


def test_commands_and_local_stay_as_they_are(tmp_path: Path) -> None:
    deep = project(tmp_path)
    for text in ("local", "ssh gpu tilewright-worker", "", sys.executable):
        assert resolve(text, deep) == text


def test_a_name_that_does_not_exist_says_which_do(tmp_path: Path) -> None:
    with pytest.raises(RunnerConfigError, match=r"pyproject\.toml has local, gpu, box-2"):
        resolve("gpo", project(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.tilewright.runners\n", "line 1"),
        ("[tool.tilewright]\nrunners = 'ssh'\n", "no table"),
        ("[tool.tilewright.runners]\ngpu = 3\n", "'gpu' needs a command"),
        ("[tool.tilewright.runners]\ngpu = ' '\n", "'gpu' needs a command"),
        ("[tool.tilewright.runners]\nlocal = 'ssh box'\n", "another name"),
        ("[tool.tilewright.runners]\n'two words' = 'ssh box'\n", "one word"),
    ],
)
def test_a_table_that_makes_no_sense_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    deep = project(tmp_path, text)
    with pytest.raises(RunnerConfigError, match=says) as error:
        resolve("gpu", deep)
    assert str(tmp_path / "pyproject.toml") in str(error.value)


# ------------------------------------------------------------------------------------------------ states


def test_a_runner_that_is_well_says_what_it_has(tmp_path: Path) -> None:
    runner = fake(tmp_path, "pass", devices=[{"kind": "gpu", "name": "NVIDIA H200", "memory": 150_000_000_000}])
    (state,) = examine({"gpu": runner})
    assert state.found == "NVIDIA H200, 150 GB, torch 2.11.0, triton 3.6.0, on box"
    assert (state.problem, state.advice) == ("", "")


@pytest.mark.parametrize(
    ("text", "problem", "advice"),
    [
        ("import sys; sys.exit('Host key verification failed.')", "Host key", "accept the key"),
        ("import sys; sys.exit('me@box: Permission denied (publickey).')", "Permission", "ssh-copy-id"),
        ("import sys; sys.exit(127)", "command not found", "runner install"),
        ("import sys; sys.exit(\"python3: can't open file 'worker.pyz'\")", "worker.pyz", "runner install"),
        ("import sys; sys.exit('ssh: Could not resolve hostname box')", "resolve", "name of the host"),
        (f"import json; print(json.dumps({ {**HELLO, 'protocol': 1}!r}))", "protocol 1", "this version of the worker"),
        (f"import json; print(json.dumps({ {**HELLO, 'problem': 'no torch'}!r}))", "no torch", "pip install"),
        ("import time; time.sleep(600)", "no answer within 2 s", "password"),
    ],
)
def test_a_runner_that_is_not_well_says_what_to_fix(tmp_path: Path, text: str, problem: str, advice: str) -> None:
    (state,) = examine({"gpu": program(tmp_path, text)}, 2.0)
    assert state.found == ""
    assert problem in state.problem and advice in state.advice


def test_a_gpu_with_another_triton_and_a_machine_without_one_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    old = fake(tmp_path / "a", "pass", versions={"torch": "2.8.0", "triton": "3.4.0"})
    none = fake(tmp_path, "pass", devices=[{"kind": "interpreter", "name": "interpreter (no GPU)"}])
    first, second = examine({"old": old, "none": none})
    assert "triton 3.4.0" in first.problem and "triton==3.6" in first.advice and "NVIDIA H200" in first.found
    assert "no GPU" in second.problem and "not timed" in second.advice and second.found


# ------------------------------------------------------------------------------------------------ install

FAKE_SSH = """#!{python}
import os, subprocess, sys
log = open(os.environ["FAKE_SSH_LOG"], "a")
arguments = sys.argv[1:]
print(os.path.basename(sys.argv[0]), *arguments, file=log, flush=True)
home = os.environ["FAKE_HOME"]
if os.path.basename(sys.argv[0]) == "scp":
    source, target = [a for a in arguments if not a.startswith("-")]
    host, _, path = target.partition(":")
    if os.environ.get("FAKE_DISK") == "full": sys.exit("scp: write remote: No space left on device")
    data = open(source, "rb").read()
    open(os.path.join(home, path), "wb").write(data)
    sys.exit()
while arguments[0] == "-o": arguments = arguments[2:]
if arguments[0] == "closed": sys.exit("ssh: connect to host closed port 22: Connection refused")
sys.exit(subprocess.run(["sh", "-c", " ".join(arguments[1:])], cwd=home).returncode)
"""


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`ssh` and `scp` that reach a folder instead of a host; what they were asked is in the file `log` in there."""
    bin_folder, home = tmp_path / "bin", tmp_path / "home"
    bin_folder.mkdir()
    home.mkdir()
    for name in ("ssh", "scp"):
        (bin_folder / name).write_text(FAKE_SSH.format(python=sys.executable))
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HOME", str(home))
    monkeypatch.setenv("FAKE_SSH_LOG", str(home / "log"))
    return home


def test_the_worker_is_brought_to_a_host_and_runs_there(fake_ssh: Path) -> None:
    command = install("me@gpu-box", sys.executable)
    assert command == f"ssh {SSH_OPTIONS} me@gpu-box {sys.executable} {REMOTE}"
    assert (fake_ssh / REMOTE).is_file() and not (fake_ssh / f"{REMOTE}.new").exists()
    assert [line.split()[0] for line in (fake_ssh / "log").read_text().splitlines()] == ["ssh", "scp", "ssh"]
    (state,) = examine({"box": command})
    assert "interpreter (no GPU)" in state.found
    result = run_unit(unit(FMA), command, [{"N": 100}])
    assert (result.status, result.correct) == ("ok", True), result.message


def test_installing_again_replaces_the_worker(fake_ssh: Path) -> None:
    install("gpu-box")
    (fake_ssh / REMOTE).write_text("an older one")
    install("gpu-box")
    assert (fake_ssh / REMOTE).read_bytes()[:2] == b"PK"


def test_a_copy_that_fails_leaves_the_old_worker(fake_ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("gpu-box")
    before = (fake_ssh / REMOTE).read_bytes()
    monkeypatch.setenv("FAKE_DISK", "full")
    with pytest.raises(InstallError, match="No space left"):
        install("gpu-box")
    assert (fake_ssh / REMOTE).read_bytes() == before


@pytest.mark.usefixtures("fake_ssh")
@pytest.mark.parametrize(
    ("host", "says"),
    [("closed", "Connection refused"), ("-oProxyCommand=touch x", "no host"), ("", "no host"), ("a b", "no host")],
)
def test_a_host_that_cannot_be_reached_says_why(host: str, says: str) -> None:
    with pytest.raises(InstallError, match=says):
        install(host)


def test_without_ssh_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InstallError, match="ssh is not installed"):
        install("gpu-box")
