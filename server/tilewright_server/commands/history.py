"""`tilewright history`: what was run, when, where, and how fast it was."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from tilewright_server.errors import UsageError
from tilewright_server.output.words import plural
from tilewright_server.sources import KernelPath

SUMMARY = "show the runs that were recorded: a table, a plot in the terminal, or a page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what to show and how."""
    parser.add_argument(
        "kernel", nargs="?", default="", metavar="FILE[::KERNEL]", help="the file or kernel (default: all of them)"
    )
    parser.add_argument("--plot", action="store_true", help="plot times over runs in the terminal")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    parser.add_argument("--html", metavar="FILE", default="", help="write a page with drawings and the table")
    parser.add_argument(
        "--last", type=int, default=None, metavar="N", help="only the last N runs (default: 40 for the table, else all)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or write them."""
    from tilewright_agent.history import History, HistoryError, history_file

    path = KernelPath.parse(arguments.kernel)
    # The file may be gone, its history is not.
    file = str(path.file.resolve()) if arguments.kernel else ""
    whole = arguments.plot or arguments.json or arguments.html
    if arguments.last is not None and arguments.last < 1:
        raise UsageError(f"--last {arguments.last}: write a number of runs, 1 or more")
    limit = arguments.last or (None if whole else 40)
    records = []
    if history_file().exists():
        try:
            with History() as history:
                records = history.records(file, path.kernel, limit)
        except HistoryError as error:
            raise UsageError(str(error)) from error
    if arguments.json:
        from tilewright_server.output.history_table import as_json

        print(json.dumps([as_json(record) for record in records], indent=2))
        return 0
    if not records:
        of = f" of {arguments.kernel}" if arguments.kernel else ""
        print(f"no runs{of} are recorded in {history_file()}; `tilewright run`, `bench` and `tune` record theirs")
        return 0
    if arguments.html:
        from tilewright_server.output.history_page import page

        target = Path(arguments.html)
        try:
            target.write_text(page(records, arguments.kernel or "All kernels"), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
        print(f"wrote {plural(len(records), 'run')} to {target}", file=sys.stderr)
    if arguments.plot:
        from tilewright_server.output.history_plot import WIDTH, plot
        from tilewright_server.output.history_series import series

        found = series(records)
        width = max(16, min(WIDTH, shutil.get_terminal_size().columns - 12))  # beside the labels of the axis
        for each in found:
            print("\n".join(plot(each, width, ascii_only=not _writes("⣿┤└─"))), end="\n\n")
        if not found:
            print("none of these runs was timed: times need a runner with a GPU")
    if not (arguments.html or arguments.plot):
        from rich.console import Console

        from tilewright_server.output.history_table import table

        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = 240  # a file or a pipe has no width to fit
        console.print(table(records))
    return 0


def _writes(text: str) -> bool:
    """Whether the output can have these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
