"""Is a runner ready to run kernels? And bringing the worker to a host over ssh."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tilewright_agent.transport import Cancelled, Connection, ConnectionFailed, worker_command
from tilewright_agent.worker.archive import write_archive
from tilewright_agent.worker.protocol import Message

CHECK_SECONDS = 90.0
COPY_SECONDS = 120.0
REMOTE = ".tilewright/worker.pyz"  # in the home folder of the account
# Never a question, which an editor could not ask on; a host that cannot be reached or is lost shows within a minute.
SSH_OPTIONS = "-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15"
TRITON = (3, 6)  # what the lowering emits is of this version


class InstallError(Exception):
    """The worker could not be brought to the host; the message says what was run, what it said, and what to do."""


@dataclass(frozen=True, slots=True)
class RunnerState:
    """How a runner is. `found` describes one that greeted; `problem` and `advice` are empty when all is well."""

    name: str
    command: str
    found: str = ""
    problem: str = ""
    advice: str = ""


def examine(commands: Mapping[str, str], seconds: float = CHECK_SECONDS) -> list[RunnerState]:
    """The state of each runner, in the order given; all are asked at once."""
    if not commands:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(commands))) as pool:
        asked = [pool.submit(_examine, name, command, seconds) for name, command in commands.items()]
        return [each.result() for each in asked]


def advice_for(message: str, code: str) -> str:
    """What a person can do about a runner that cannot be used, from the message and its code."""
    text = message.lower()
    hints = (
        ("host key", "connect once by hand (ssh HOST) to accept the key of the host"),
        ("permission denied", "ssh must log in without a password: add your key with ssh-copy-id HOST"),
        ("could not resolve", "check the name of the host"),
        ("command not found", "put the worker there: tilewright runner install HOST"),
        ("no such file", "put the worker there: tilewright runner install HOST"),
        ("can't open file", "put the worker there: tilewright runner install HOST"),
        ("no module named", "put the worker there: tilewright runner install HOST"),
        ("does it run, is the port open", "start it: tilewright fleet scheduler; and copy the folder of certificates"),
        ("tilewright fleet certificates", "copy the folder of certificates from a machine of the fleet"),
        ("has joined its scheduler", "start the machines: tilewright fleet worker tls://HOST:PORT on each"),
        ("ssh could not connect", "try the ssh command by hand"),
    )
    if code == "protocol":
        return "bring this version of the worker there: tilewright runner install HOST"
    if code == "unsupported" and "has joined" not in text:
        return "pip install 'tilewright[gpu]' there, or name the Python that has torch and triton in the command"
    return next((hint for words, hint in hints if words in text), "run the command by hand: a worker greets with JSON")


def install(host: str, python: str = "python3", remote: str = REMOTE) -> str:
    """Copy the worker to a host with ssh and scp, and return the command of the runner. Raises InstallError.

    The file is in place at once or not at all, so a worker that starts meanwhile is whole.
    """
    if not host or host.startswith("-") or any(c.isspace() for c in host):
        raise InstallError(f"{host!r} is no host: write HOST or USER@HOST, as for ssh")
    if not re.fullmatch(r"[\w.+/-]+", remote) or remote.startswith("-"):
        raise InstallError(f"{remote!r} is no plain path for the worker on the host")
    folder, new = str(Path(remote).parent), f"{remote}.new"
    with tempfile.TemporaryDirectory() as temporary:
        archive = write_archive(Path(temporary) / "worker.pyz")
        _command(["ssh", host, f"mkdir -p {folder}"])
        _command(["scp", "-q", str(archive), f"{host}:{new}"])
        _command(["ssh", host, f"mv -f {new} {remote}"])
    return f"ssh {SSH_OPTIONS} {host} {shlex.quote(python)} {remote}"


def _examine(name: str, command: str, seconds: float) -> RunnerState:
    deadline = time.monotonic() + seconds
    try:
        with Connection(worker_command(command), lambda: time.monotonic() > deadline) as connection:
            return _greeted(name, command, connection.hello)
    except Cancelled:
        problem = f"no answer within {seconds:.0f} s"
        return RunnerState(name, command, problem=problem, advice="does the command wait for a password or a host key?")
    except ConnectionFailed as error:
        return RunnerState(name, command, problem=str(error), advice=advice_for(str(error), error.code))


def _greeted(name: str, command: str, hello: Message) -> RunnerState:
    versions = {str(k): str(v) for k, v in cast("Message", hello.get("versions") or {}).items()}
    devices = cast("list[Message]", hello.get("devices") or [])
    gpu = next((d for d in devices if d.get("kind") == "gpu"), None)
    parts = [str((gpu or (devices[0] if devices else {})).get("name") or "no device")]
    if gpu and gpu.get("memory"):
        parts.append(f"{int(gpu['memory']) / 1e9:.0f} GB")
    parts += [f"{package} {versions[package]}" for package in ("python", "torch", "triton") if package in versions]
    found = f"{', '.join(parts)}, on {hello.get('host') or 'an unnamed host'}"
    if hello.get("slots"):
        found += f", {hello['slots']} at once"
    if hello.get("note"):
        return RunnerState(name, command, found, str(hello["note"]), "bring the same versions to all machines")
    if gpu is None:
        advice = "kernels are interpreted there and not timed; install torch with CUDA and triton to use its GPU"
        return RunnerState(name, command, found, "it has no GPU that torch can use", advice if name != "local" else "")
    if _version(versions.get("triton", "")) != TRITON:
        wanted = ".".join(map(str, TRITON))
        problem = f"it has triton {versions.get('triton', '(unknown)')}, generated modules are for {wanted}"
        return RunnerState(name, command, found, problem, f"pip install 'triton=={wanted}.*' on that machine")
    return RunnerState(name, command, found)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _command(command: Sequence[str]) -> None:
    """Run ssh or scp; a password or a question about the host key goes to the terminal."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=COPY_SECONDS,
            check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise InstallError(f"{command[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"`{shlex.join(command)}` did not end within {COPY_SECONDS:.0f} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        hint = advice_for(said, "connection")
        raise InstallError(
            f"`{shlex.join(command)}` failed with status {done.returncode}: {said or 'no words'}\n{hint}"
        )
