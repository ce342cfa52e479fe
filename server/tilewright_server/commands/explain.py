"""`tilewright explain`: what a diagnostic means."""

from __future__ import annotations

import argparse

from tilewright_server import pages

SUMMARY = "explain a diagnostic code such as TW404: what is wrong, why it matters, and how to fix it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the codes."""
    parser.add_argument("codes", nargs="+", metavar="CODE", help="a code such as TW404")


def run(arguments: argparse.Namespace) -> int:
    """Print the page of each code; 2 when one does not exist."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for page in [pages.text(code) for code in arguments.codes]:
        if console.is_terminal:
            console.print(Markdown(page))
        else:
            print(page.rstrip("\n"))
    return 0
