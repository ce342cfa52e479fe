"""The extension in a real VS Code in a real browser, against the real language server.

The first run installs the editor (``install.sh``). ``TILEWRIGHT_SKIP_E2E=1`` leaves these tests out;
``TILEWRIGHT_E2E_SHOTS=FOLDER`` keeps the pictures of every step.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.editor import ROOT, Tools, install_tools, package_extension, serve

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # the first run downloads an editor
    pytest.mark.skipif(os.environ.get("TILEWRIGHT_SKIP_E2E") == "1", reason="TILEWRIGHT_SKIP_E2E=1"),
]
SERVER = [sys.executable, "-m", "tilewright_server", "serve"]


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
    return folder


def drive(tools: Tools, script: str, url: str, workspace: Path, shots: Path, **variables: str) -> str:
    """Run one scenario in a browser and return what it reported; a failed one fails the test with that report."""
    kept = os.environ.get("TILEWRIGHT_E2E_SHOTS")
    shots = Path(kept).resolve() / Path(script).stem if kept else shots / "shots"
    shutil.rmtree(shots, ignore_errors=True)
    shots.mkdir(parents=True)
    variables |= {"url": url, "workspace": str(workspace), "shots": str(shots), "chromium": str(tools.chromium)}
    environment = os.environ | {f"TILEWRIGHT_E2E_{name.upper()}": value for name, value in variables.items()}
    command = [str(tools.node), str(Path(__file__).with_name(script))]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    print(done.stdout)
    if done.returncode != 0:
        pytest.fail(f"{script} failed; pictures in {shots}\n{done.stdout}", pytrace=False)
    return done.stdout
