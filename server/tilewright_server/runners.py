"""Which command a runner means, for command line and editor alike."""

from __future__ import annotations

from pathlib import Path

from tilewright_server.errors import UsageError


def runner_command(runner: str, file: str | Path) -> str:
    """The command of a runner given by name or as a command; names are those of the project that holds `file`.

    Where that project names none, the project of the current folder is asked. Raises UsageError.
    """
    from tilewright_agent.runner_config import RunnerConfigError, find_config, resolve

    folder = Path(file).resolve().parent
    try:
        start = folder if find_config(folder).file is not None else Path.cwd()
        return resolve(runner, start)
    except RunnerConfigError as error:
        raise UsageError(str(error)) from error
