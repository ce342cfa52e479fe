"""`kernel.tune(…)`: what the language finds through the entry point `tilewright.tuner`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from tilewright.frontend import KernelUnit
from tilewright_agent.bench import BadSizes, bench_shapes
from tilewright_agent.candidates import with_text
from tilewright_agent.history import History, HistoryError
from tilewright_agent.jobs import NotRunnable
from tilewright_agent.runner_config import RunnerConfigError, command_of
from tilewright_agent.transport import ConnectionFailed
from tilewright_agent.tune import tune
from tilewright_agent.variants import Optimization


def tune_unit(
    unit: KernelUnit,
    *,
    sizes: Sequence[Mapping[str, int]] = (),
    runners: Sequence[str] = ("local",),
    limit: int = 64,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[KernelUnit | None, Optimization]:
    """The fastest proved configuration of a kernel (None: the one that is written), and what was tried.

    Sizes that a mapping leaves out get default values. What was decided goes to the history, from where a search that
    was broken off goes on. Raises ValueError for sizes and runners that cannot be used and when no configuration is
    proved and right, ConnectionError when no runner answers.
    """
    kernel = unit.kernel
    if kernel is None or limit < 1:
        raise ValueError(f"{unit.name} cannot be tuned" if kernel is None else f"limit = {limit}: at least 1 is tried")
    try:
        shapes = [s for wanted in sizes for s in bench_shapes(kernel, {n: (v,) for n, v in wanted.items()}, gpu=True)]
        commands = [command_of(runner, unit.path) for runner in runners]
        with _history() as history:
            found = tune(
                unit, runners=commands, shapes=shapes, history=history, limit=limit, progress=progress
            ).outcome  # fmt: skip
    except (BadSizes, NotRunnable, RunnerConfigError) as error:
        raise ValueError(str(error)) from error
    except ConnectionFailed as error:
        raise ConnectionError(str(error)) from error
    best = found.variants[0]
    if best.verdict != "proved" or best.reason:
        raise ValueError(found.summary.splitlines()[0])
    if found.proposed == found.original:
        return None, found
    return with_text(unit, found.proposed, kernel.target), found


@contextmanager
def _history() -> Generator[History | None]:
    """The history, or none where it cannot be used: then nothing is resumed."""
    try:
        history = History()
    except HistoryError:
        yield None
        return
    with history:
        yield history
