"""Runners by name: `[tool.tilewright.runners]` in the `pyproject.toml` of a project.

[tool.tilewright.runners]
gpu = "ssh gpu-box python3 .tilewright/worker.pyz"
farm = { scheduler = "tls://head:8786", certificates = "~/.tilewright/fleet" }

A fleet becomes a command too, so that all that use runners need not tell them apart.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tilewright_agent.fleet import SCHEME, FleetError
from tilewright_agent.fleet.certificates import checked_address
from tilewright_agent.transport import LOCAL


class RunnerConfigError(Exception):
    """The configuration cannot be used, or has no such runner; the message says which file, and what to write."""


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Commands by name, and the file that they come from (None: there is none)."""

    commands: Mapping[str, str]
    file: Path | None = None


def find_config(start: Path) -> RunnerConfig:
    """The runners of the nearest `pyproject.toml`, in the folder `start` or above it, that has the table.

    Raises RunnerConfigError for a file that is no TOML and a table with other things than names and commands.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        file = folder / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return RunnerConfig(_commands(table, file), file)
    return RunnerConfig({})


def resolve(runner: str, start: Path) -> str:
    """The command of a runner, given by name or as a command.

    Names win over programs of the same name. Raises RunnerConfigError for a single word that is neither.
    """
    text = runner.strip()
    if text == LOCAL or len(text.split()) != 1:
        return text
    config = find_config(start)
    if text in config.commands:
        return config.commands[text]
    if shutil.which(text) is None:
        known = ", ".join((LOCAL, *config.commands))
        where = f"{config.file} has {known}" if config.file else "no pyproject.toml names runners"
        raise RunnerConfigError(
            f"there is no runner and no program {text!r}: {where}; "
            f'add {text} = "ssh HOST …" to [tool.tilewright.runners]'
        )
    return text


def command_of(runner: str, file: str | Path) -> str:
    """The command of a runner given by name or as a command; names are those of the project that holds `file`.

    Where that project names none, the project of the current folder is asked. Raises RunnerConfigError.
    """
    folder = Path(file).resolve().parent
    return resolve(runner, folder if find_config(folder).file is not None else Path.cwd())


def _table(file: Path) -> object:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunnerConfigError(f"cannot read the runners of {file}: {error}") from error
    found: object = document
    for key in ("tool", "tilewright", "runners"):
        if not isinstance(found, dict):
            return None
        found = cast("dict[str, object]", found).get(key)
    return found


def _commands(table: object, file: Path) -> dict[str, str]:
    if not isinstance(table, dict):
        raise RunnerConfigError(f"{file}: tool.tilewright.runners is no table of names and commands")
    commands: dict[str, str] = {}
    for name, command in cast("dict[str, object]", table).items():
        if name == LOCAL:
            raise RunnerConfigError(f"{file}: the runner {LOCAL!r} is this machine; give yours another name")
        if isinstance(command, dict):
            command = _fleet(name, cast("dict[str, object]", command), file)
        if not isinstance(command, str) or not command.strip():
            raise RunnerConfigError(f'{file}: the runner {name!r} needs a command, such as {name} = "ssh HOST …"')
        if name != name.strip() or len(name.split()) != 1:
            raise RunnerConfigError(f"{file}: the runner {name!r} needs a name of one word")
        commands[name] = command
    return commands


def _fleet(name: str, table: Mapping[str, object], file: Path) -> str:
    """The command that reaches a fleet. A path of certificates counts from the folder of the configuration."""
    scheduler, certificates = table.get("scheduler"), table.get("certificates")
    if (
        not isinstance(scheduler, str)
        or not isinstance(certificates, str)
        or set(table) != {"scheduler", "certificates"}
    ):
        raise RunnerConfigError(
            f'{file}: the fleet {name!r} needs scheduler = "{SCHEME}HOST:PORT" and certificates = "DIR", and no more'
        )
    try:
        checked_address(scheduler)
    except FleetError as error:
        raise RunnerConfigError(f"{file}: the fleet {name!r}: {error}") from None
    folder = file.parent / Path(certificates).expanduser()
    command = [sys.executable, "-m", "tilewright_agent.fleet", "--scheduler", scheduler, "--certificates", str(folder)]
    return shlex.join(command) if os.name == "posix" else " ".join(command)
