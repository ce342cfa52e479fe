"""workspace/executeCommand: what the lenses over a kernel do. Each command takes one argument `{uri, kernel}`."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcRequestCancelled
from pygls.uris import to_fs_path

from tilewright_server import convert, stages
from tilewright_server.errors import UsageError
from tilewright_server.long_task import TaskFailed, run_task
from tilewright_server.output.run_report import Outcome, run_page
from tilewright_server.progress import Progress
from tilewright_server.runners import runners_for
from tilewright_server.server import TilewrightServer
from tilewright_server.session import KernelState, Snapshot
from tilewright_server.tasks import RunResult

log = logging.getLogger(__name__)

Result = dict[str, object]


class RequestFailed(JsonRpcException):
    """The request cannot be done; the message is for the person."""

    CODE = types.LSPErrorCodes.RequestFailed.value
    MESSAGE = "Request failed"


def register(server: TilewrightServer) -> None:
    """Register the commands. Their names differ from the client's own, which would collide in the editor."""
    server.command("tilewright.server.check")(check)
    server.command("tilewright.server.run")(run)
    server.command("tilewright.server.profile")(profile)
    server.command("tilewright.server.report")(report)
    server.command("tilewright.server.runners")(runners)
    server.command("tilewright.server.optimize")(optimize)
    server.command("tilewright.server.expand")(expand)


async def check(ls: TilewrightServer, *arguments: object) -> Result:
    """Verify a kernel again and wait: `{verdict, proved, refuted, unknown}`."""
    snapshot, state = _kernel(ls, arguments)
    uri, name = snapshot.uri, state.unit.name
    ls.check_again(uri, state.unit)
    decided = await ls.verdict(uri, name)
    if decided is None:
        raise RequestFailed(f"{name} was closed or removed while it was checked")
    if decided.report is None:
        raise RequestFailed(decided.failure)
    counts = {verdict: decided.count(verdict) for verdict in ("proved", "refuted", "unknown")}
    return {"verdict": decided.report.verdict, **counts}


async def run(ls: TilewrightServer, *arguments: object) -> Result:
    """Run a kernel against its reference with the configured runner."""
    return await _run(ls, arguments, profile=False)


async def profile(ls: TilewrightServer, *arguments: object) -> Result:
    """The same, and count what the hardware does."""
    return await _run(ls, arguments, profile=True)


def report(ls: TilewrightServer, *arguments: object) -> Result:
    """The last run of a kernel as a page: `{markdown}`."""
    _, state = _kernel(ls, arguments)
    outcome = ls.speed.last_run(state.unit)
    if outcome is None:
        raise RequestFailed(f"{state.unit.name} was not run since the server started")
    return {"markdown": run_page(state.unit.name, state.unit.kernel, outcome, state.unit.key)}


def runners(ls: TilewrightServer, *arguments: object) -> Result:
    """The runners for a document: `{runners: [{name, command}], problem, file}`, this machine first.

    `problem` says why those of `pyproject.toml` cannot be read, `file` which one has them.
    """
    uri = str(convert.mapping(arguments[0] if arguments else None).get("uri", ""))
    found, file, problem = runners_for(to_fs_path(uri) or "")
    listed = [{"name": name, "command": command} for name, command in found.items()]
    return {"runners": listed, "file": file, "problem": problem}


async def optimize(ls: TilewrightServer, *arguments: object) -> Result:
    """Look for faster variants of a kernel that are still proved; `original` and `proposed` are whole documents."""
    snapshot, state = _kernel(ls, arguments)
    return await _task(ls, "optimize", f"Optimizing {state.unit.name}", snapshot, state)


async def expand(ls: TilewrightServer, *arguments: object) -> Result:
    """The explicit form of a kernel: `{source}`."""
    _, state = _kernel(ls, arguments)
    try:
        return {"source": await asyncio.to_thread(stages.expanded_source, state.unit)}
    except UsageError as error:
        raise RequestFailed(str(error)) from error


async def _run(ls: TilewrightServer, arguments: tuple[object, ...], *, profile: bool) -> Result:
    snapshot, state = _kernel(ls, arguments)
    runner = ls.session.settings.runner
    title = f"{'Profiling' if profile else 'Running'} {state.unit.name}"
    try:
        result = await _task(ls, "run", title, snapshot, state, profile=profile)
    except RequestFailed as error:
        ls.speed.note_run(state.unit, Outcome(state.unit.key, runner, failure=str(error)))
        ls.refresh()
        raise
    ls.speed.note_run(state.unit, Outcome(state.unit.key, runner, cast(RunResult, result)))
    ls.refresh()
    return result


async def _task(
    ls: TilewrightServer, task: str, title: str, snapshot: Snapshot, state: KernelState, **more: object
) -> Result:
    """Run a long task in a process of its own, with progress that the person can cancel."""
    if not ls.session.settings.trusted:
        raise RequestFailed(f"{title} executes code, which needs a trusted workspace")
    settings = ls.session.settings
    inputs = {
        "source": snapshot.source,
        "kernel": state.unit.name,
        "target": settings.target,
        "runner": settings.runner,
        **more,
    }
    job: asyncio.Future[object] | None = None

    def cancel() -> None:
        if job is not None:
            job.cancel()

    progress = await Progress.begin(ls, title, cancel)
    try:
        job = asyncio.ensure_future(run_task(task, inputs, progress.report))
        return cast(Result, await job)
    except TaskFailed as error:
        log.error("%s failed: %s\n%s", task, error, error.details)
        raise RequestFailed(str(error)) from error
    except asyncio.CancelledError as error:
        raise JsonRpcRequestCancelled(f"{title} was cancelled") from error
    finally:
        progress.end()


def _kernel(ls: TilewrightServer, arguments: tuple[object, ...]) -> tuple[Snapshot, KernelState]:
    """The kernel that the arguments name. Raises RequestFailed."""
    fields = convert.mapping(arguments[0] if arguments else None)
    uri, name = str(fields.get("uri", "")), str(fields.get("kernel", ""))
    snapshot = ls.session.snapshot(uri)
    if snapshot is None:
        raise RequestFailed(f"the document {uri or '(none given)'} is not open")
    state = snapshot.kernel(name)
    if state is None:
        raise RequestFailed(f"the document has no kernel {name or '(none given)'}")
    return snapshot, state
