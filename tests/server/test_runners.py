"""Runners by name on the command line and in the editor's tasks, `tilewright doctor`, `tilewright runner`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.support import HEAD
from agent.test_runner import CASES, fake
from agent.test_runner_config import fake_ssh as fake_ssh
from agent.test_tune import SPACE, gpu
from server.conftest import HEADER, Run, elementwise
from tilewright_agent.runner_check import SSH_OPTIONS
from tilewright_server import engine, sources, tasks


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("TILEWRIGHT_HISTORY", str(tmp_path / "history.db"))
    Path("kernels.py").write_text(HEADER + elementwise("square").replace("warps=4", 'warps=4, reference="X * X"'))
    return tmp_path


def name(**runners: str) -> None:
    lines = [f"{key} = {value!r}" for key, value in runners.items()]
    Path("pyproject.toml").write_text("\n".join(["[tool.tilewright.runners]", *lines]), encoding="utf-8")


def test_a_name_stands_for_its_command_in_each_command(tilewright: Run, place: Path) -> None:
    name(pretended=fake(place, CASES), clock=gpu(place))
    assert "on NVIDIA H200" in tilewright("run", "kernels.py", "--runner", "pretended")[1]
    assert "on NVIDIA H200" in tilewright("bench", "kernels.py", "--runner", "pretended", "--sizes", "N=512")[1]
    Path("space.py").write_text(HEAD + SPACE)
    sizes = ("--sizes", "M=512", "N=4096", "--limit", "2")
    assert "2 of 2" in tilewright("tune", "space.py", "--runner", "clock", "--runner", "clock", *sizes)[1]
    status, _, err = tilewright("run", "kernels.py", "--runner", "pretend")
    assert status == 2 and "has local, pretended, clock" in err


def test_the_editor_setting_may_be_a_name_of_the_project_of_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(pretended=fake(place, CASES))
    source = sources.read(Path("kernels.py").resolve())
    monkeypatch.chdir("/")
    found = tasks.run(source=source, kernel="square", target="", runner="pretended", progress=lambda *_: None)
    assert found["device"] == "NVIDIA H200"
    assert engine.find_unit(engine.parse(source), "square").path == source.path


def test_doctor_tells_how_each_runner_is(tilewright: Run, place: Path) -> None:
    name(good=fake(place, "pass"), away="sh -c 'exit 127'")
    status, out, _ = tilewright("doctor")
    assert status == 1
    lines = out[out.index("runners of") :].splitlines()
    assert lines[1].startswith("✓ good  NVIDIA H200, torch 2.11.0")
    assert lines[2].startswith("✗ away") and "command not found" in lines[2]
    assert "tilewright runner install HOST" in lines[3]
    assert "runners of" not in tilewright("doctor", "--no-runners")[1]
    name(good=fake(place, "pass"))
    assert tilewright("doctor")[0] == 0
    Path("pyproject.toml").write_text("[tool.tilewright.runners\n")
    assert tilewright("doctor")[0] == 1


def test_runners_are_listed(tilewright: Run) -> None:
    name(gpu="ssh gpu-box tilewright-worker")
    assert tilewright("runner", "list")[1] == "gpu  ssh gpu-box tilewright-worker\n"


def test_install_says_what_to_write_and_how_the_host_is(tilewright: Run, fake_ssh: Path) -> None:
    status, out, _ = tilewright("runner", "install", "me@box.example", "--python", sys.executable)
    assert status == 1, "there is no GPU"
    assert f'"box" = "ssh {SSH_OPTIONS} me@box.example {sys.executable} .tilewright/worker.pyz"' in out
    assert "interpreter (no GPU)" in out and "no GPU that torch can use" in out
    status, _, err = tilewright("runner", "install", "closed")
    assert status == 2 and "Connection refused" in err
