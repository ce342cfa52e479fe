"""The extension in a real VS Code in a real browser, against the real language server.

The first run installs the editor (``install.sh``). ``TILEWRIGHT_SKIP_E2E=1`` leaves these tests out;
``TILEWRIGHT_E2E_SHOTS=FOLDER`` keeps the pictures of every step.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.editor import ROOT, Editor, Tools, install_tools, package_extension, serve

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # the first run downloads an editor
    pytest.mark.skipif(os.environ.get("TILEWRIGHT_SKIP_E2E") == "1", reason="TILEWRIGHT_SKIP_E2E=1"),
]
SERVER = [sys.executable, "-m", "tilewright_server", "serve"]
COMMAND = "tilewright.server.command"
GEMM = (ROOT / "examples" / "gemm.py").read_text(encoding="utf-8")
FAULTY = "tw.wgmma_wait(2)"
FIXED = "tw.wgmma_wait(1)"


@pytest.fixture(scope="module")
def tools() -> Tools:
    return install_tools()


@pytest.fixture(scope="module")
def vsix(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_extension(tools, tmp_path_factory.mktemp("vsix") / "tilewright.vsix")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "gemm.py").write_text(GEMM, encoding="utf-8")
    return folder


def test_a_fault_is_squiggled_with_its_counterexample_and_vanishes_when_fixed(
    tools: Tools, vsix: Path, workspace: Path, tmp_path: Path
) -> None:
    example = (ROOT / "examples" / "faulty_gemm.py").read_text(encoding="utf-8")
    assert example.count(FAULTY) == 1
    (workspace / "faulty_gemm.py").write_text(example, encoding="utf-8")
    # No setting: the extension has to find the server in the environment of the folder.
    (workspace / ".venv").symlink_to(Path(sys.prefix))
    with serve(tools, vsix, workspace, tmp_path / "state") as editor:
        drive(
            tools,
            "fix_a_fault.mts",
            editor,
            file="faulty_gemm.py",
            kernel="faulty_gemm",
            faulty=FAULTY,
            fixed=FIXED,
            findings=json.dumps(findings_of_the_command_line(workspace / "faulty_gemm.py")),
        )


def test_run_answers_from_the_interpreter_and_optimize_ends_in_a_diff(
    tools: Tools, vsix: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same on a machine with a GPU
    # Tiles that are too small, so that there is something to gain.
    slow = GEMM.replace("BN: Const = 256", "BN: Const = 128", 1).replace("STAGES: Const = 3", "STAGES: Const = 2", 1)
    assert slow != GEMM
    (workspace / "gemm.py").write_text(slow, encoding="utf-8")
    with serve(tools, vsix, workspace, tmp_path / "state", machine_settings={COMMAND: SERVER}) as editor:
        drive(tools, "run_and_optimize.mts", editor)


def test_an_untrusted_workspace_is_checked_but_nothing_of_it_runs(
    tools: Tools, vsix: Path, workspace: Path, tmp_path: Path
) -> None:
    # What the workspace brings along must not be started: its interpreter, its settings, a module in its folder.
    touched = tmp_path / "started"
    trap = f"#!/bin/sh\ntouch {touched}\n"
    for name in ("bin/python", "bin/python3"):
        program = workspace / ".venv" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(trap, encoding="utf-8")
        program.chmod(0o755)
    (workspace / "tilewright_server").mkdir()
    module = f"import pathlib\npathlib.Path({str(touched)!r}).touch()\n"
    (workspace / "tilewright_server" / "__init__.py").write_text(module, encoding="utf-8")
    (workspace / ".vscode").mkdir()
    settings = {COMMAND: [str(workspace / ".venv" / "bin" / "python")]}
    (workspace / ".vscode" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    machine: dict[str, object] = {COMMAND: SERVER}
    with serve(tools, vsix, workspace, tmp_path / "state", machine_settings=machine, trust=False) as editor:
        drive(tools, "untrusted.mts", editor)
    assert not touched.exists(), "a program of the untrusted workspace was started"


def test_runners_are_chosen_and_a_run_stands_over_its_kernel(
    tools: Tools, vsix: Path, workspace: Path, tmp_path: Path
) -> None:
    gone = "ssh nowhere.invalid worker"
    (workspace / "pyproject.toml").write_text(f'[tool.tilewright.runners]\ngone = "{gone}"\n', encoding="utf-8")
    with serve(tools, vsix, workspace, tmp_path / "state", machine_settings={COMMAND: SERVER}) as editor:
        drive(tools, "runners.mts", editor)


def test_a_server_that_fails_is_explained_and_one_that_dies_comes_back(
    tools: Tools, vsix: Path, workspace: Path, tmp_path: Path
) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('No module named tilewright_server')"]
    pid_file = tmp_path / "pid"
    leaves_its_pid = ["sh", "-c", f'echo $$ > "{pid_file}"; exec "$@"', "sh", *SERVER]
    with serve(tools, vsix, workspace, tmp_path / "state", machine_settings={COMMAND: broken}) as editor:
        drive(
            tools,
            "server_life.mts",
            editor,
            machine_settings=str(editor.machine_settings),
            good_settings=json.dumps({COMMAND: leaves_its_pid}),
            pid_file=str(pid_file),
        )


def test_texts_and_edits(tools: Tools) -> None:
    command = [str(tools.node), "--test", str(Path(__file__).with_name("text.test.mts"))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def findings_of_the_command_line(file: Path) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tilewright_server", "check", "--format", "json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    findings = [each for each in json.loads(done.stdout)["findings"] if each["verdict"] == "refuted"]
    return [{"line": each["range"]["start"]["line"] + 1, "message": each["message"]} for each in findings]


def drive(tools: Tools, script: str, editor: Editor, **variables: str) -> None:
    """Run one scenario in a browser; a failed one fails the test with what it reported."""
    kept = os.environ.get("TILEWRIGHT_E2E_SHOTS")
    shots = Path(kept).resolve() / Path(script).stem if kept else editor.workspace.parent / "shots"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir(parents=True)
    variables = {"file": "gemm.py", "kernel": "gemm"} | variables
    variables |= {
        "url": editor.url(variables["file"]),
        "workspace": str(editor.workspace),
        "shots": str(shots),
        "chromium": str(tools.chromium),
    }
    environment = os.environ | {f"TILEWRIGHT_E2E_{name.upper()}": value for name, value in variables.items()}
    command = [str(tools.node), str(Path(__file__).with_name(script))]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    print(done.stdout)
    if done.returncode != 0:
        logs = [path.read_text(encoding="utf-8") for path in editor.state.rglob("Tilewright.log")]
        report = "\n".join([done.stdout, "Output channel of the extension:", *logs])
        pytest.fail(f"{script} failed; pictures in {shots}\n{report}", pytrace=False)
