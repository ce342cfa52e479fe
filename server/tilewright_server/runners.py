"""Which command a runner means, for command line and editor alike."""

from __future__ import annotations

from pathlib import Path

from tilewright_server.errors import UsageError


def runner_command(runner: str, file: str | Path) -> str:
    """The command of a runner, as `tilewright_agent.runner_config.command_of`. Raises UsageError."""
    from tilewright_agent.runner_config import RunnerConfigError, command_of

    try:
        return command_of(runner, file)
    except RunnerConfigError as error:
        raise UsageError(str(error)) from error


def runners_for(file: str | Path) -> tuple[dict[str, str], str, str]:
    """Runners by name for a kernel in `file` ("": none), this machine first; the file that has them; what is wrong."""
    from tilewright_agent.runner_config import RunnerConfigError, find_config
    from tilewright_agent.transport import LOCAL

    folder = Path(file).resolve().parent if file else Path.cwd()
    try:
        found = find_config(folder)
        if found.file is None:
            found = find_config(Path.cwd())
    except RunnerConfigError as error:
        return {LOCAL: ""}, "", str(error)
    return {LOCAL: "", **found.commands}, str(found.file or ""), ""
