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
