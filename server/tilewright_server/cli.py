"""The command `tilewright`: arguments, exit status, and nothing else; each subcommand is a module of `commands`.

Exit status: 0 clean; 1 a kernel is refuted or a file is invalid; 2 wrong usage, or an error of Tilewright itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from tilewright_server import installed_version
from tilewright_server.errors import UsageError

COMMANDS = (
    "check", "lower", "explain", "run", "bench", "tune", "optimize", "history", "runner", "fleet", "serve", "doctor",
)  # fmt: skip


class Command(Protocol):
    """What each module of `commands` offers."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it and return the exit status. Raises UsageError for what the person has to correct."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `argv` defaults to the arguments of the process."""
    _let_streams_carry_any_text()
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return stop.code if isinstance(stop.code, int) else 2
    try:
        return arguments.command.run(arguments)
    except UsageError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        print("tilewright: internal error; the lines above help whoever looks into it", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tilewright", description="Check, lower, run and optimize GPU kernels written in Tilewright."
    )
    parser.add_argument("--version", action="version", version=f"tilewright {installed_version()}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        command = cast(Command, import_module(f"tilewright_server.commands.{name}"))
        subparser = subparsers.add_parser(name, help=command.SUMMARY, description=command.SUMMARY)
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


def _let_streams_carry_any_text() -> None:
    """A terminal or pipe in an old code page gets escapes instead of a crash for characters that it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
