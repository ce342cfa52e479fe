"""`tilewright bench`: time a kernel beside its reference or another kernel, over problem sizes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.frontend import KernelUnit
from tilewright_server import engine, sources
from tilewright_server.commands.check import add_instance_arguments, parse_constants
from tilewright_server.commands.run import add_profile_argument, add_runner_argument, show_progress
from tilewright_server.errors import UsageError
from tilewright_server.runners import runner_command
from tilewright_server.sources import KernelPath

if TYPE_CHECKING:
    from tilewright_server.output import bench_table

SUMMARY = "time a kernel beside its reference or another kernel, over problem sizes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, the sizes, and what to compare with."""
    parser.add_argument("kernel", metavar="FILE[::KERNEL]", help="the kernel; its name may be left out if there is one")
    add_sizes_argument(parser)
    parser.add_argument(
        "--against", default="", metavar="FILE::KERNEL", help="another kernel to race (default: the kernel's reference)"
    )
    add_runner_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    add_profile_argument(parser)
    add_instance_arguments(parser)


def add_sizes_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --sizes."""
    parser.add_argument(
        "--sizes", action="extend", nargs="+", default=[], metavar="M=1024,2048",
        help="values of problem sizes; every combination is run (default for those left out: large sizes on a GPU, "
        "small ones without)",
    )  # fmt: skip


def parse_sizes(words: Sequence[str]) -> dict[str, list[int]]:
    """`["M=1024,2048"]` as a mapping. Raises UsageError."""
    sizes: dict[str, list[int]] = {}
    for word in words:
        name, _, values = word.partition("=")
        try:
            sizes.setdefault(name.strip(), []).extend(int(value) for value in values.split(","))
        except ValueError:
            raise UsageError(f"--sizes {word}: write NAME=VALUES with whole numbers, such as M=1024,2048") from None
    return sizes


def run(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when a result is wrong, 2 when a shape could not be run."""
    from tilewright_agent import history
    from tilewright_agent.bench import BadSizes, bench, bench_shapes
    from tilewright_agent.runner import Runner
    from tilewright_agent.transport import ConnectionFailed
    from tilewright_server.output import bench_table
    from tilewright_server.output.profile_table import text_lines

    constants = parse_constants(arguments.const)
    unit = _unit(arguments.kernel, arguments.target, constants)
    kernel = engine.healthy_kernel(unit)
    against = _unit(arguments.against, arguments.target, {}) if arguments.against else None
    if against is not None:
        engine.healthy_kernel(against)
    wanted = parse_sizes(arguments.sizes)
    baseline = arguments.against or "reference"
    rows: list[bench_table.Row] = []
    notes: dict[str, None] = {}
    lost = ""
    label = ""
    try:
        with Runner(runner_command(arguments.runner, unit.path)) as session:
            shapes = bench_shapes(kernel, wanted, gpu=session.has_gpu)
            if not shapes:
                raise UsageError(f"no sizes satisfy the assumptions of {kernel.name}; name some with --sizes")
            for sizes, result in bench(
                session,
                unit,
                shapes,
                against,
                lambda message, share: show_progress(message, round(100 * share)),
                profile=arguments.profile,
            ):
                rows.append((sizes, result))
                label = result.label or label
                record = history.record_of("bench", unit, unit.path, result, baseline=baseline)
                if trouble := history.note(record):
                    notes[trouble] = None
    except BadSizes as error:
        raise UsageError(str(error)) from error
    except ConnectionFailed as error:
        if not rows:
            raise UsageError(str(error)) from error
        lost = str(error)
    names = bench_table.Columns(unit.name, against.name if against is not None else "reference")
    if arguments.json:
        print(json.dumps(bench_table.as_json(rows, names), indent=2))
    else:
        _print(rows, names, label)
        for _, result in rows:
            if result.profile is not None:
                print("\n".join(text_lines(result.profile, kernel, result.device)))
    for note in (*notes, lost):
        if note:
            print(f"tilewright: {note}", file=sys.stderr)
    if lost or any(result.status != "ok" for _, result in rows):
        return 2
    return int(any(bench_table.case_of(*row).correct is False for row in rows))


def _print(rows: Sequence[bench_table.Row], names: bench_table.Columns, label: str) -> None:
    from rich.console import Console

    from tilewright_server.output import bench_table

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 240  # a file or a pipe has no width to fit
    print(f"on {label}" if label else "not run")
    console.print(bench_table.table(rows, names))
    if text := bench_table.summary(rows):
        print(text)


def _unit(text: str, target: str, constants: dict[str, int | str]) -> KernelUnit:
    path = KernelPath.parse(text)
    return engine.configured(engine.find_unit(engine.parse(sources.read(path.file)), path.kernel), target, constants)
