"""`tilewright serve`: the language server."""

from __future__ import annotations

import argparse

SUMMARY = "serve an editor over the Language Server Protocol"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the transport; there is one, and editors name it."""
    parser.add_argument("--stdio", action="store_true", help="talk over stdin and stdout (the default)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until the client disconnects."""
    from tilewright_server.serve import serve_stdio

    serve_stdio()
    return 0
