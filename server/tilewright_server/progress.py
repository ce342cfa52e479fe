"""Work-done progress with a Cancel button, and cancellation of requests: the corners of pygls without types."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer


class Progress:
    """Progress of one long request, as far as the client can show it; otherwise its methods do nothing."""

    def __init__(self, server: LanguageServer, token: str | None) -> None:
        self._server = server
        self._token = token

    @staticmethod
    async def begin(server: LanguageServer, title: str, on_cancel: Callable[[], object]) -> Progress:
        """Show `title`; `on_cancel` is called when the person cancels, be it the progress or the request itself."""
        _when_request_is_cancelled(server, on_cancel)
        window = server.client_capabilities.window
        if window is None or not window.work_done_progress:
            return Progress(server, None)
        token = str(uuid.uuid4())
        progress = cast(Any, server.work_done_progress)
        await progress.create_async(token)
        progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True, percentage=0))
        _when_cancelled(progress.tokens[token], on_cancel)
        return Progress(server, token)

    def report(self, message: str, percent: int | None) -> None:
        """Show a step; `percent` is 0 to 100."""
        if self._token is not None:
            value = types.WorkDoneProgressReport(message=message, percentage=percent)
            self._server.work_done_progress.report(self._token, value)

    def end(self) -> None:
        """Take it off the screen."""
        if self._token is not None:
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd())


def _when_request_is_cancelled(server: LanguageServer, on_cancel: Callable[[], object]) -> None:
    # pygls answers a cancelled command at once but leaves its coroutine running; this stops what the coroutine does.
    protocol = cast(Any, server.protocol)
    future = protocol._request_futures.get(protocol.msg_id)
    if future is not None:
        _when_cancelled(future, on_cancel)


def _when_cancelled(future: Future[Any], on_cancel: Callable[[], object]) -> None:
    def done(ended: Future[Any]) -> None:
        if ended.cancelled():
            on_cancel()

    future.add_done_callback(done)
