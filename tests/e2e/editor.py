"""A real VS Code in the browser (code-server) with the Tilewright extension installed, for tests and for a person.

``python tests/e2e/editor.py [FOLDER]`` opens FOLDER (default: the examples) and prints the URL.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

E2E = Path(__file__).resolve().parent
ROOT = E2E.parents[1]
CLIENT = ROOT / "vscode-client"
START_SECONDS = 60

#: Nothing that moves, asks or phones home while a scenario runs.
QUIET = {
    "chat.disableAIFeatures": True,
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.tips.enabled": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "telemetry.telemetryLevel": "off",
    "security.workspace.trust.startupPrompt": "never",
    "files.autoSave": "off",  # in a browser it is on by default
    "editor.minimap.enabled": False,
    "editor.stickyScroll.enabled": False,
}


@dataclass(frozen=True)
class Tools:
    """Paths of the programs that ``install.sh`` has set up."""

    node: Path
    code_server: Path
    chromium: Path


@dataclass(frozen=True)
class Editor:
    """A running code-server."""

    port: int
    workspace: Path
    state: Path

    @property
    def machine_settings(self) -> Path:
        """The settings file of the machine that the extension runs on; VS Code follows changes."""
        return self.state / "data" / "Machine" / "settings.json"

    def url(self, file: str | None = None) -> str:
        """Address of the workspace, with ``file`` (relative to it) open."""
        address = f"http://127.0.0.1:{self.port}/?folder={quote(str(self.workspace))}"
        if file is None:
            return address
        opened = f"vscode-remote://127.0.0.1:{self.port}{self.workspace / file}"
        return f"{address}&payload={quote(json.dumps([['openFile', opened]]), safe='')}"


def install_tools() -> Tools:
    """Run ``install.sh``; quick when its cache folder is complete.

    Raises:
        RuntimeError: with the script's message when it fails.
    """
    script = [str(E2E / "install.sh")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the editor for the scenarios could not be installed:\n{done.stderr}")
    paths = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return Tools(Path(paths["node"]), Path(paths["code_server"]), Path(paths["chromium"]))


def package_extension(tools: Tools, vsix: Path) -> Path:
    """Build and package the extension as ``vsix``.

    Raises:
        RuntimeError: with the output of npm when it fails.
    """
    if not (CLIENT / "node_modules" / ".package-lock.json").exists():
        _npm(tools, "ci", "--ignore-scripts")
    _npm(tools, "run", "package", "--", "--out", str(vsix))
    return vsix


@contextmanager
def serve(
    tools: Tools,
    vsix: Path,
    workspace: Path,
    state: Path,
    *,
    settings: dict[str, object] | None = None,
    machine_settings: dict[str, object] | None = None,
    trust: bool = True,
    port: int | None = None,
) -> Iterator[Editor]:
    """Install ``vsix`` into an empty profile in the folder ``state`` and run code-server on ``workspace``.

    ``machine_settings`` are those of the machine that extensions run on, which a window in the browser keeps apart
    from the person's own. Without ``trust`` the workspace starts untrusted.

    Raises:
        RuntimeError: when code-server does not come up; with the end of its log.
    """
    for name, values in (("User", QUIET | (settings or {})), ("Machine", machine_settings or {})):
        folder = state / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    (state / "config.yaml").write_text("", encoding="utf-8")
    environment = os.environ | {"EXTENSIONS_GALLERY": "{}"}
    for name in ("CONFIG", "DATA", "CACHE"):
        environment[f"XDG_{name}_HOME"] = str(state / name.lower())
    environment.pop("VSCODE_IPC_HOOK_CLI", None)  # inside a VS Code terminal it would talk to that window
    # fmt: off
    command = [
        str(tools.node), str(tools.code_server),
        "--config", str(state / "config.yaml"),
        "--user-data-dir", str(state / "data"),
        "--extensions-dir", str(state / "extensions"),
    ]
    # fmt: on
    _run([*command, "--install-extension", str(vsix)], environment, "installing the extension")
    port = port or _free_port()
    # fmt: off
    command += [
        "--auth", "none", "--bind-addr", f"127.0.0.1:{port}",
        "--disable-telemetry", "--disable-update-check", "--disable-getting-started-override",
        "--reconnection-grace-time", "5",  # the default keeps language servers for hours after the window is gone
    ]
    # fmt: on
    if trust:
        command.append("--disable-workspace-trust")
    log = state / "code-server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_healthy(process, port, log)
        yield Editor(port, workspace, state)
    finally:
        _end(process)


def _npm(tools: Tools, *arguments: str) -> None:
    environment = os.environ | {"PATH": f"{tools.node.parent}{os.pathsep}{os.environ['PATH']}"}
    _run(["npm", "--prefix", str(CLIENT), *arguments], environment, f"npm {arguments[0]} {arguments[1]}")


def _run(command: list[str], environment: dict[str, str], what: str) -> None:
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed with status {done.returncode}:\n{done.stdout[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    tail = log.read_text(encoding="utf-8", errors="replace")[-4000:]
    raise RuntimeError(f"code-server did not answer on port {port} within {START_SECONDS} s:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    # Its own session, so that extension hosts and language servers end with it.
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue


def main() -> None:
    """Open an editor on a folder until interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that code-server ends with this program
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "examples").resolve()
    state = Path(tempfile.mkdtemp(prefix="tilewright-editor-"))
    server = [sys.executable, "-m", "tilewright_server", "serve"]
    try:
        tools = install_tools()
        vsix = package_extension(tools, state / "tilewright.vsix")
        port = int(os.environ.get("PORT", "0")) or None
        machine: dict[str, object] = {"tilewright.server.command": server}
        with serve(tools, vsix, workspace, state, machine_settings=machine, port=port) as editor:
            print(f"VS Code with Tilewright on {workspace}:\n\n  {editor.url()}\n\nCtrl+C ends it.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()
    except RuntimeError as error:
        sys.exit(f"open_editor: {error}")
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
