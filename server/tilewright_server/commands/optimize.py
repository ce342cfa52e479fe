"""`tilewright optimize`: look for a faster variant of a kernel that is still proved."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator

from tilewright_server import sources, tasks
from tilewright_server.commands.run import add_runner_argument, show_progress
from tilewright_server.sources import KernelPath

SUMMARY = "look for a faster variant of a kernel that is still proved, and show it as a diff"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, where to measure, and what to do with the result."""
    parser.add_argument("kernel", metavar="FILE[::KERNEL]", help="the kernel; its name may be left out if there is one")
    add_runner_argument(parser)
    parser.add_argument("--target", default="", metavar="T", help="a GPU such as sm_90a (default: as the kernel says)")
    parser.add_argument("--write", action="store_true", help="write the variant into the file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Search, and print the summary and the diff."""
    path = KernelPath.parse(arguments.kernel)
    source = sources.read(path.file)
    result = tasks.optimize(
        source=source,
        kernel=path.kernel,
        target=arguments.target,
        runner=arguments.runner,
        progress=show_progress,
    )
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print_outcome(result["summary"], result["original"], result["proposed"], source.path)
    if arguments.write and result["proposed"] != result["original"]:
        path.file.write_bytes(result["proposed"].encode("utf-8"))
        print(f"wrote {path.file}", file=sys.stderr)
    return 0


def print_outcome(summary: str, original: str, proposed: str, path: str) -> None:
    """The summary, which is Markdown, and the change as a diff."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(summary))
    else:
        print(summary.rstrip("\n"))
    for line in _diff(original, proposed, path):
        print(line)


def _diff(original: str, proposed: str, path: str) -> Iterator[str]:
    before, after = original.splitlines(), proposed.splitlines()
    return difflib.unified_diff(before, after, path, f"{path} (optimized)", lineterm="")
