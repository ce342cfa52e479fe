"""`tilewright runner`: bring the worker to a host, and list the runners of the project."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright_server.errors import UsageError

SUMMARY = "put the worker on a host over ssh, or list the runners of this project"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    adding = actions.add_parser("install", help="copy the worker to HOST and try it")
    adding.add_argument("host", metavar="HOST", help="as for ssh: HOST or USER@HOST")
    adding.add_argument(
        "--python", default="python3", metavar="P", help="the Python there that has torch and triton (default: python3)"
    )
    actions.add_parser("list", help="the runners that pyproject.toml names")


def run(arguments: argparse.Namespace) -> int:
    """Do it; `install` returns 1 when the worker is there but cannot run kernels on a GPU."""
    return _install(arguments.host, arguments.python) if arguments.action == "install" else _list()


def _install(host: str, python: str) -> int:
    from tilewright_agent.runner_check import InstallError, examine, install

    try:
        command = install(host, python)
    except InstallError as error:
        raise UsageError(str(error)) from error
    (state,) = examine({host: command})
    name = host.rpartition("@")[2].partition(".")[0]
    print(f'The worker is on {host}. In pyproject.toml:\n\n[tool.tilewright.runners]\n"{name}" = "{command}"\n')
    if state.found:
        print(f"✓ {state.found}")
    if state.problem:
        print(f"{'-' if state.found else '✗'} {state.problem}\n  {state.advice}".rstrip())
    return int(bool(state.problem))


def _list() -> int:
    from tilewright_agent.runner_config import RunnerConfigError, find_config

    try:
        config = find_config(Path.cwd())
    except RunnerConfigError as error:
        raise UsageError(str(error)) from error
    if not config.commands:
        print("no pyproject.toml here or above names runners; `tilewright runner install HOST` shows what to write")
    width = max(map(len, config.commands), default=0)
    for name, command in config.commands.items():
        print(f"{name:{width}}  {command}")
    return 0
