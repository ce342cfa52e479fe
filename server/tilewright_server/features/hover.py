"""textDocument/hover: what a name is and where its layout comes from; for a kernel, its verdict and its speed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from lsprotocol import types

from tilewright.source import Span
from tilewright_server import convert
from tilewright_server.facts import NameFacts, facts_of
from tilewright_server.features.code_lens import verdict_title
from tilewright_server.output.words import duration
from tilewright_server.server import TilewrightServer
from tilewright_server.session import KernelState

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def register(server: TilewrightServer) -> None:
    """Register the handler."""
    server.feature(types.TEXT_DOCUMENT_HOVER)(hover)


async def hover(ls: TilewrightServer, params: types.HoverParams) -> types.Hover | None:
    """Facts about the name under the cursor; inference of layouts runs beside the event loop."""
    snapshot = ls.session.snapshot(params.text_document.uri)
    if snapshot is None:
        return None
    at = convert.offset(params.position, snapshot.source)
    state, name = snapshot.kernel_at(at), name_at(snapshot.source.data, at)
    if state is None or name is None:
        return None
    word = snapshot.source.text(name)
    if word == state.unit.name:
        text = "\n\n".join([*_verdict(state), *await ls.speed.describe(snapshot.source, state.unit)])
    else:
        facts = await asyncio.to_thread(facts_of, state.unit, word)
        text = "\n\n".join(_name(facts)) if facts is not None else ""
    if not text:
        return None
    contents = types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.Hover(contents, convert.lsp_range(name, snapshot.source))


def name_at(data: bytes, at: int) -> Span | None:
    """The identifier that holds the byte at `at`, or ends there; attribute names (after a dot) are none of ours."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    line = data[start : end if end >= 0 else len(data)]
    for match in _NAME.finditer(line):
        if start + match.start() <= at <= start + match.end():
            if line[: match.start()].rstrip().endswith(b"."):
                return None
            return Span(start + match.start(), start + match.end())
    return None


def _verdict(state: KernelState) -> Iterator[str]:
    yield f"**{state.unit.name}**: {verdict_title(state)}"
    if state.report is not None and state.report.obligations:
        families: dict[str, list[int]] = {}
        for obligation in state.report.obligations:
            tally = families.setdefault(obligation.family, [0, 0])
            tally[0] += obligation.verdict == "proved"
            tally[1] += 1
        table = [f"| {family} | {proved} of {total} |" for family, (proved, total) in sorted(families.items())]
        yield "\n".join(["| obligations | proved |", "| --- | --- |", *table])
        yield f"checked in {duration(state.report.milliseconds)}"
    if state.failure:
        yield state.failure


def _name(facts: NameFacts) -> Iterator[str]:
    yield f"```python\n{facts.name}: {facts.type}\n```"
    yield from facts.details
