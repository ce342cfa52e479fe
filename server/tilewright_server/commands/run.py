"""`tilewright run`: execute a kernel, compare it with its reference, and time it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from tilewright.frontend import KernelUnit
from tilewright_server import engine, sources, tasks
from tilewright_server.commands.check import add_instance_arguments, parse_constants
from tilewright_server.errors import UsageError
from tilewright_server.output.words import pairs
from tilewright_server.sources import KernelPath

SUMMARY = "run a kernel, compare it with its reference, and time it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, where to run it, and on which sizes."""
    parser.add_argument("kernel", metavar="FILE[::KERNEL]", help="the kernel; its name may be left out if there is one")
    add_runner_argument(parser)
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="M=1024,N=512",
        help="one problem to run; may be repeated (default: even and odd sizes near the tiles, large ones on a GPU)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_profile_argument(parser)
    add_instance_arguments(parser)


def add_profile_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --profile."""
    parser.add_argument(
        "--profile", action="store_true",
        help="also count what the hardware does: with Nsight Compute where the runner has it, else torch.profiler",
    )  # fmt: skip


def add_runner_argument(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Declare --runner; `several` makes it a list, empty when none is given."""
    text = (
        "where to run: local (its GPU, or the CPU interpreter without one), a name from [tool.tilewright.runners] in "
        "pyproject.toml, or a command that starts a worker, such as 'ssh HOST tilewright-worker'"
    )
    if several:
        text += "; may be repeated, to run on several at once"
        parser.add_argument("--runner", action="append", default=[], metavar="RUNNER", help=text)
    else:
        parser.add_argument("--runner", default="local", metavar="RUNNER", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when the result is wrong."""
    path = KernelPath.parse(arguments.kernel)
    unit = engine.find_unit(engine.parse(sources.read(path.file)), path.kernel)
    unit = engine.configured(unit, arguments.target, parse_constants(arguments.const))
    shapes = [_sizes(text) for text in arguments.size] or None
    result = tasks.run_unit(unit, arguments.runner, shapes, show_progress, profile=arguments.profile)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        _print(unit, result)
    for note in result["notes"]:
        print(f"tilewright: {note}", file=sys.stderr)
    return int(result["correct"] is False)


def show_progress(message: str, percent: int | None = None) -> None:
    """A line on stderr, where it does not mix with the result; only for a person who waits."""
    if sys.stderr.isatty():
        print(f"{f'{percent:3d} % ' if percent is not None else ''}{message}", file=sys.stderr)


def _print(unit: KernelUnit, result: tasks.RunResult) -> None:
    from tilewright_agent.profiles import profile_of
    from tilewright_server.output.profile_table import text_lines

    outcome = "not compared" if result["correct"] is None else "correct" if result["correct"] else "wrong"
    error = f", largest error {result['max_error']:.2e}" if result["max_error"] is not None else ""
    print(f"{unit.name} on {result['label'] or result['device']}: {outcome}{error}")
    for case in result["cases"]:
        print(f"  {_case(case)}")
    if result["message"]:
        print(result["message"])
    if (profile := profile_of(result["profile"])) is not None and unit.kernel is not None:
        for line in text_lines(profile, unit.kernel, result["device"]):
            print(line)


def _case(case: Mapping[str, Any]) -> str:
    """One shape: its sizes, and what was timed there."""
    text = pairs(case["sizes"])
    if case["correct"] is False:
        text += ": wrong"
    if not (mine := case["median_ms"]):
        return text
    text += f": median {mine:.4g} ms"
    if case["spread_ms"] is not None:
        text += f" (spread {100 * case['spread_ms'] / mine:.1f} %)"
    if other := case["baseline_ms"]:
        text += f", reference {other:.4g} ms in the same run, {other / mine:.2f}×"
    if case["warm_ms"]:
        text += f"; {case['warm_ms']:.4g} ms with a warm L2"
    return text


def _sizes(text: str) -> dict[str, int]:
    try:
        return {name.strip(): int(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise UsageError(f"--size {text}: write names and whole numbers, such as M=1024,N=512") from None
