"""`tilewright explain`: what a diagnostic means, and, with `--replay`, how a kernel comes to break a rule."""

from __future__ import annotations

import argparse

from tilewright_server import pages
from tilewright_server.errors import UsageError

SUMMARY = "explain a diagnostic code such as TW404: what is wrong, why it matters, and how to fix it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the codes, or the kernel to replay."""
    parser.add_argument("codes", nargs="*", metavar="CODE", help="a code such as TW404")
    parser.add_argument(
        "--replay",
        metavar="FILE[::KERNEL]",
        help="run the counterexamples of a kernel in the interpreter and show the steps; with codes, those alone",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the page of each code; 2 when one does not exist. With `--replay`, 1 if there is a counterexample."""
    if arguments.replay:
        from tilewright_server.replays import show

        return show(arguments.replay, arguments.codes)
    if not arguments.codes:
        raise UsageError("name a code such as TW404, or a kernel with --replay FILE::KERNEL")
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for page in [pages.text(code) for code in arguments.codes]:
        if console.is_terminal:
            console.print(Markdown(page))
        else:
            print(page.rstrip("\n"))
    return 0
