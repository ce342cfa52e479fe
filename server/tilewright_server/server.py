"""The language server: the session, the verifier, and how what becomes known reaches the editor.

The way of an edit: `features/sync.py` changes the session, which parses at once; `publish` shows problems of syntax,
names and shapes; after a pause `_start_checking` hands kernels without a verdict to the verifier; `_on_event` stores
each decision in the session; `publish` shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from tilewright.frontend import KernelUnit
from tilewright_server import convert, installed_version
from tilewright_server.engine import file_problems
from tilewright_server.messages import Checked, Decided
from tilewright_server.session import KernelState, Session, Snapshot
from tilewright_server.speed import Speed
from tilewright_server.verifier import Event, GivenUp, Job, Started, Verifier

log = logging.getLogger(__name__)

# After an edit; the shorter one where the last check of a kernel of the document took less than `QUICK_MS`: then one
# that the next edit makes obsolete costs little, and verdicts follow the keys.
PAUSE_S, SHORT_PAUSE_S, QUICK_MS = 0.15, 0.02, 300.0
SLOW_PARSE_S = 0.1
STREAM_INTERVAL_S = 0.05
STATUS = "tilewright/status"


@dataclass(frozen=True, slots=True)
class JobKey:
    """Which kernel of which document a job is about."""

    uri: str
    unit: KernelUnit


class Protocol(LanguageServerProtocol):
    """Positions are UTF-16, which every client supports, whatever else a client would prefer."""

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams):  # type: ignore[override]  # noqa: D102
        if params.capabilities.general is not None:
            params.capabilities.general.position_encodings = None
        return (yield from super().lsp_initialize(params))


class TilewrightServer(LanguageServer):
    """The state of one connection. Handlers run on the event loop and must not block it."""

    def __init__(self) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "tilewright", installed_version(), protocol_cls=Protocol
        )
        self.session = Session()
        self.verifier = Verifier(self._on_event, self._on_crash)
        self.speed = Speed()
        self._parses: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, asyncio.TimerHandle] = {}
        self._streaming: dict[str, asyncio.TimerHandle] = {}
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._published: set[str] = set()
        self._took: dict[str, float] = {}

    def text_edited(self, uri: str, parse_seconds: float) -> None:
        """Parse at once, or, where parsing takes noticeably long, when no edit has come for as long as it takes."""
        if parse_seconds < SLOW_PARSE_S:
            self._parse(uri)
        else:
            self._restart(self._parses, uri, min(parse_seconds, 1.0), self._parse)

    def text_changed(self, snapshot: Snapshot) -> None:
        """Show what the front end says now, and check after a pause."""
        self.publish(snapshot)
        quick = self._took.get(snapshot.uri, QUICK_MS) < QUICK_MS
        self._restart(self._pauses, snapshot.uri, SHORT_PAUSE_S if quick else PAUSE_S, self._start_checking)

    def document_closed(self, uri: str) -> None:
        """Forget a document and clear what was shown for it."""
        for timers in (self._parses, self._pauses, self._streaming):
            self._stop(timers, uri)
        self.session.close(uri)
        self._took.pop(uri, None)
        self.verifier.cancel(lambda job: _key(job).uri == uri)
        if uri in self._published:
            self._published.discard(uri)
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        self._wake(uri)

    def settings_changed(self) -> None:
        """Check everything again, since verdicts depend on the target."""
        self.verifier.cancel(lambda job: True)
        for snapshot in self.session.forget_verdicts():
            self.text_changed(snapshot)

    def publish(self, snapshot: Snapshot) -> None:
        """Show all that is known about a document."""
        shown = [*file_problems(snapshot.module)]
        for state in snapshot.kernels:
            shown += [finding.shift(state.unit.offset) for finding in state.findings]
        if not shown and snapshot.uri not in self._published:
            return  # an ordinary Python file, or a clean one that never had a finding
        self._published.add(snapshot.uri)
        diagnostics = [convert.diagnostic(finding, snapshot.uri, snapshot.source) for finding in shown]
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=snapshot.uri, version=snapshot.version, diagnostics=diagnostics)
        )

    async def verdict(self, uri: str, kernel: str) -> KernelState | None:
        """Wait until a kernel has been checked; None when the document is closed or the kernel is gone."""
        while (snapshot := self.session.snapshot(uri)) is not None:
            state = snapshot.kernel(kernel)
            if state is None or state.done:
                return state
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[uri].append(future)
            await future
        return None

    def check_again(self, uri: str, unit: KernelUnit) -> None:
        """Forget the verdict on a kernel, if it has one, and check it without the pause."""
        snapshot = self.session.recheck(uri, unit)
        if snapshot is not None:
            self.publish(snapshot)
            self._restart(self._pauses, uri, 0, self._start_checking)

    async def close(self) -> None:
        """End all processes."""
        self.speed.close()
        await self.verifier.close()

    def _parse(self, uri: str) -> None:
        self._stop(self._parses, uri)
        self.text_changed(self.session.parse(uri))

    def _start_checking(self, uri: str) -> None:
        snapshot = self.session.snapshot(uri)
        if snapshot is None:
            return
        wanted = {state.unit.key: n for n, state in enumerate(snapshot.kernels) if not state.done}
        self.verifier.cancel(lambda job: _key(job).uri == uri and _key(job).unit.key not in wanted)
        under_way = {_key(job).unit.key for job in self.verifier.pending() if _key(job).uri == uri}
        units = [snapshot.kernels[n].unit for key, n in wanted.items() if key not in under_way]
        jobs = [
            Job(JobKey(uri, unit), snapshot.source, wanted[unit.key], unit.name, self.session.settings.target)
            for unit in units
        ]
        if snapshot.kernels:
            self._send_status(snapshot)
        if wanted:
            self.verifier.submit(jobs)
        else:
            self.refresh()

    def _on_event(self, job: Job, event: Event) -> None:
        uri, unit = _key(job).uri, _key(job).unit
        snapshot = self.session.snapshot(uri)
        state = snapshot.kernel(unit.name) if snapshot is not None else None
        if state is None:
            return
        match event:
            case Started():
                new = self.session.update(uri, unit, obligations=())
            case Decided(obligation=obligation):
                new = self.session.update(uri, unit, obligations=(*state.obligations, obligation))
            case Checked(report=report):
                self.session.remember(unit, report)
                self._took[uri] = report.milliseconds
                new = self.session.update(uri, unit, report=report, stale=())
            case GivenUp(message=message):
                new = self.session.update(uri, unit, failure=message, stale=())
                self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, message))
        if new is None:
            return
        if new.kernel(unit.name) is not None and isinstance(event, Checked | GivenUp):
            self._stop(self._streaming, uri)
            self._show_progress(uri)
        elif uri not in self._streaming:
            self._restart(self._streaming, uri, STREAM_INTERVAL_S, self._show_progress)

    def _show_progress(self, uri: str) -> None:
        self._streaming.pop(uri, None)
        snapshot = self.session.snapshot(uri)
        if snapshot is None:
            return
        self.publish(snapshot)
        self._send_status(snapshot)
        if any(state.done for state in snapshot.kernels):
            self.refresh()
            self._wake(uri)

    def _send_status(self, snapshot: Snapshot) -> None:
        """Tell the client how far each kernel is, then the whole document (kernel null)."""
        done = all(state.done for state in snapshot.kernels)
        if not done:
            self._notify_status(snapshot.uri, None, snapshot.kernels, done=False)
        for state in snapshot.kernels:
            self._notify_status(snapshot.uri, state.unit.name, (state,), done=state.done)
        if done:
            self._notify_status(snapshot.uri, None, snapshot.kernels, done=True)

    def _notify_status(self, uri: str, kernel: str | None, states: tuple[KernelState, ...], *, done: bool) -> None:
        counts = {v: sum(s.count(v) for s in states) for v in ("proved", "refuted", "unknown")}
        message = {"uri": uri, "kernel": kernel, "state": "done" if done else "checking", **counts}
        self.protocol.notify(STATUS, message)

    def refresh(self) -> None:
        """Ask the client to fetch lenses and inlay hints again, if it can be asked."""
        workspace = self.client_capabilities.workspace
        if workspace is None:
            return
        if workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def _on_crash(self, message: str) -> None:
        log.warning("%s", message)
        self.window_log_message(types.LogMessageParams(types.MessageType.Warning, message))

    def _wake(self, uri: str) -> None:
        for future in self._waiting.pop(uri, []):
            if not future.done():
                future.set_result(None)

    def _restart(
        self, timers: dict[str, asyncio.TimerHandle], uri: str, delay: float, action: Callable[[str], None]
    ) -> None:
        self._stop(timers, uri)
        timers[uri] = asyncio.get_running_loop().call_later(delay, action, uri)

    def _stop(self, timers: dict[str, asyncio.TimerHandle], uri: str) -> None:
        if (timer := timers.pop(uri, None)) is not None:
            timer.cancel()


def _key(job: Job) -> JobKey:
    assert isinstance(job.key, JobKey)
    return job.key
