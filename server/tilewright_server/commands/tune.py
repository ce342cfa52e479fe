"""`tilewright tune`: find the fastest proved configuration of a kernel, on one or several runners."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilewright_server import engine, sources
from tilewright_server.commands.bench import add_sizes_argument, parse_sizes
from tilewright_server.commands.optimize import print_outcome
from tilewright_server.commands.run import add_runner_argument
from tilewright_server.errors import UsageError
from tilewright_server.runners import runner_command
from tilewright_server.sources import KernelPath

if TYPE_CHECKING:
    from tilewright_agent.history import History
    from tilewright_agent.tune import OnProgress, Tuned

SUMMARY = "find the fastest proved configuration of a kernel, over its choices and what rules add"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, where to measure at which sizes, and what to do with the result."""
    parser.add_argument("kernel", metavar="FILE[::KERNEL]", help="the kernel; its name may be left out if there is one")
    add_sizes_argument(parser)
    add_runner_argument(parser, several=True)
    parser.add_argument("--target", default="", metavar="T", help="a GPU such as sm_90a (default: as the kernel says)")
    parser.add_argument("--limit", type=int, default=64, metavar="N", help="configurations to try (default: 64)")
    parser.add_argument("--fresh", action="store_true", help="begin anew where an earlier search was broken off")
    parser.add_argument("--write", action="store_true", help="write the fastest configuration into the file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Tune, and print the table and the diff; 2 when the search could not come to its end."""
    from tilewright_agent.bench import BadSizes, bench_shapes
    from tilewright_agent.history import HistoryError
    from tilewright_agent.jobs import NotRunnable
    from tilewright_agent.transport import ConnectionFailed
    from tilewright_agent.tune import tune

    if arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: write a number of configurations, 1 or more")
    path = KernelPath.parse(arguments.kernel)
    source = sources.read(path.file)
    unit = engine.configured(engine.find_unit(engine.parse(source), path.kernel), arguments.target)
    kernel = engine.healthy_kernel(unit)
    wanted = parse_sizes(arguments.sizes)
    try:
        # Large defaults: without a GPU the sizes are those that the model predicts for, and nothing large is run.
        shapes = bench_shapes(kernel, wanted, gpu=True) if wanted else []
        with _history() as history, _bar() as progress:
            result = tune(
                unit,
                source=source,
                runners=[runner_command(runner, path.file) for runner in arguments.runner or ["local"]],
                shapes=shapes,
                history=history,
                fresh=arguments.fresh,
                check=engine.check,
                progress=progress,
                limit=arguments.limit,
            )
    except (BadSizes, NotRunnable) as error:
        raise UsageError(str(error)) from error
    except (ConnectionFailed, HistoryError) as error:
        raise UsageError(f"{error}\nWhat is decided is kept; the same command goes on from there.") from error
    found = result.outcome
    if arguments.json:
        print(json.dumps(_json(result), indent=2))
    else:
        known = f", {result.resumed} of them known from before" if result.resumed else ""
        print(f"{result.decided} of {result.total} configurations decided{known}\n")
        print_outcome(found.summary, found.original, found.proposed, source.path)
    if arguments.write and found.proposed != found.original:
        path.file.write_bytes(found.proposed.encode("utf-8"))
        print(f"wrote {path.file}", file=sys.stderr)
    if result.decided < result.total:
        print("tilewright: some could not be run; the same command tries those again", file=sys.stderr)
        return 2
    return 0


def _json(result: Tuned) -> dict[str, object]:
    found = result.outcome
    return {
        "kernel": found.kernel, "device": found.device, "sizes": dict(found.sizes), "total": result.total,
        "decided": result.decided, "resumed": result.resumed, "verdict": found.verdict, "summary": found.summary,
        "original": found.original, "proposed": found.proposed,
        "variants": [
            {
                "title": v.title, "verdict": v.verdict, "predicted_us": v.predicted_us, "measured_ms": v.measured_ms,
                "reason": v.reason,
            }
            for v in found.variants
        ],
    }  # fmt: skip


@contextmanager
def _history() -> Generator[History | None, None, None]:
    """The history, or none where it cannot be used: then nothing is resumed."""
    from tilewright_agent.history import History, HistoryError

    try:
        history = History()
    except HistoryError as error:
        print(f"tilewright: {error}; this search cannot be resumed", file=sys.stderr)
        yield None
        return
    with history:
        yield history


@contextmanager
def _bar() -> Generator[OnProgress | None, None, None]:
    """A progress bar on stderr, for a person who waits."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        task = bar.add_task("verifying", total=None)

        def report(done: int, total: int, message: str) -> None:
            bar.update(task, completed=done, total=total, description=message)

        yield report
