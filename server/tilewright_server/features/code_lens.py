"""textDocument/codeLens: the verdict over each kernel, and what can be done with it."""

from __future__ import annotations

from lsprotocol import types

from tilewright.source import Span
from tilewright_server import convert
from tilewright_server.output.run_report import Outcome, run_title
from tilewright_server.output.words import plural
from tilewright_server.server import TilewrightServer
from tilewright_server.session import KernelState, Snapshot

ACTIONS = (("Run", "tilewright.run"), ("Optimize", "tilewright.optimize"), ("Expand", "tilewright.expand"))


def register(server: TilewrightServer) -> None:
    """Register the handler."""
    server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))(code_lens)


def code_lens(ls: TilewrightServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    """Four lenses a kernel, and one with the last run; the client implements their commands."""
    snapshot = ls.session.snapshot(params.text_document.uri)
    if snapshot is None:
        return []
    return [lens for state in snapshot.kernels for lens in _lenses(state, snapshot, ls.speed.last_run(state.unit))]


def verdict_title(state: KernelState) -> str:
    """Such as "✓ proved (23 obligations)", "✗ 2 refuted", "… checking (12 decided)"."""
    errors = state.errors
    refuted, unknown, proved = state.count("refuted"), state.count("unknown"), state.count("proved")
    if errors:
        return f"✗ {plural(errors, 'problem')}"
    if refuted:
        return f"✗ {refuted} refuted" + ("" if state.done else " so far")
    if state.failure:
        return "? not checked"
    if not state.done:
        return f"… checking ({proved + unknown} decided)" if proved + unknown else "… checking"
    if unknown:
        return f"? {unknown} unknown"
    if not proved:
        return "? nothing to prove"
    return f"✓ proved ({plural(proved, 'obligation')})"


def _lenses(state: KernelState, snapshot: Snapshot, last: Outcome | None) -> list[types.CodeLens]:
    start = state.unit.offset
    place = convert.lsp_range(Span(start, start), snapshot.source)
    arguments = [{"uri": snapshot.uri, "kernel": state.unit.name}]
    titles = [(verdict_title(state), "tilewright.check"), *ACTIONS]
    if last is not None:
        titles.append((run_title(last, state.unit.key), "tilewright.showRun"))
    return [
        types.CodeLens(range=place, command=types.Command(title=title, command=name, arguments=list(arguments)))
        for title, name in titles
    ]
