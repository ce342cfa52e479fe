"""textDocument/codeAction: the fixes of findings, and what can be done with the kernel at the cursor."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types

from tilewright.source import Span
from tilewright_analysis.report import Finding
from tilewright_server import convert
from tilewright_server.engine import file_problems
from tilewright_server.server import TilewrightServer
from tilewright_server.session import Snapshot

QUICK_FIX = types.CodeActionKind.QuickFix
REWRITE = types.CodeActionKind.RefactorRewrite
COMMANDS = (("Optimize", "tilewright.optimize"), ("Expand", "tilewright.expand"))


def register(server: TilewrightServer) -> None:
    """Register the handler."""
    options = types.CodeActionOptions(code_action_kinds=[QUICK_FIX, REWRITE])
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(code_action)


def code_action(ls: TilewrightServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Quick fixes first, then the commands of the kernel; only the kinds that the client asks for."""
    snapshot = ls.session.snapshot(params.text_document.uri)
    if snapshot is None:
        return []
    selected = convert.span(params.range, snapshot.source)
    actions: list[types.CodeAction] = []
    if _wanted(QUICK_FIX, params.context.only):
        actions += _quick_fixes(snapshot, selected)
    if _wanted(REWRITE, params.context.only):
        actions += _kernel_commands(snapshot, selected)
    return actions


def _quick_fixes(snapshot: Snapshot, selected: Span) -> Iterator[types.CodeAction]:
    for finding in _findings_at(snapshot, selected):
        for number, fix in enumerate(finding.fixes):
            yield types.CodeAction(
                title=fix.title,
                kind=QUICK_FIX,
                diagnostics=[convert.diagnostic(finding, snapshot.uri, snapshot.source)],
                edit=convert.workspace_edit(fix, snapshot.uri, snapshot.version, snapshot.source),
                is_preferred=number == 0,
            )


def _findings_at(snapshot: Snapshot, selected: Span) -> Iterator[Finding]:
    found = list(file_problems(snapshot.module))
    for state in snapshot.kernels:
        found += [finding.shift(state.unit.offset) for finding in state.findings if finding.fixes]
    return (f for f in found if f.span.start <= selected.end and selected.start <= f.span.end)


def _kernel_commands(snapshot: Snapshot, selected: Span) -> Iterator[types.CodeAction]:
    state = snapshot.kernel_at(selected.start)
    if state is None or state.errors:
        return
    name = state.unit.name
    for title, command in COMMANDS:
        arguments = [{"uri": snapshot.uri, "kernel": name}]
        yield types.CodeAction(
            title=f"{title} {name}",
            kind=REWRITE,
            command=types.Command(title=f"{title} {name}", command=command, arguments=list(arguments)),
        )


def _wanted(kind: types.CodeActionKind, only: object) -> bool:
    """Kinds are hierarchical: a client that asks for "refactor" also wants "refactor.rewrite"."""
    if not isinstance(only, list | tuple) or not only:
        return True
    asked = [str(getattr(value, "value", value)) for value in only]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return any(kind.value == value or kind.value.startswith(f"{value}.") for value in asked)
