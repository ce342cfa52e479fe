"""textDocument/inlayHint: element type and shape of each tile where it is assigned."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from tilewright.ir.nodes import walk
from tilewright.ir.types import TileType
from tilewright.source import Span
from tilewright_server import convert
from tilewright_server.server import TilewrightServer
from tilewright_server.session import KernelState, Snapshot


def register(server: TilewrightServer) -> None:
    """Register the handler."""
    server.feature(types.TEXT_DOCUMENT_INLAY_HINT)(inlay_hint)


def inlay_hint(ls: TilewrightServer, params: types.InlayHintParams) -> list[types.InlayHint]:
    """The hints inside the range that the editor shows."""
    snapshot = ls.session.snapshot(params.text_document.uri)
    if snapshot is None:
        return []
    shown = convert.span(params.range, snapshot.source)
    return [
        types.InlayHint(
            position=convert.lsp_range(Span(at, at), snapshot.source).start,
            label=f": {tile}",
            kind=types.InlayHintKind.Type,
        )
        for state in snapshot.kernels
        for at, tile in _assigned_tiles(state, snapshot)
        if shown.start <= at <= shown.end
    ]


def _assigned_tiles(state: KernelState, snapshot: Snapshot) -> Iterator[tuple[int, TileType]]:
    """The byte offset after the name, and its type, for each statement `name = …` that makes a tile."""
    kernel = state.unit.kernel
    if kernel is None:
        return
    seen: set[int] = set()
    for stmt in walk(kernel.body):
        name = getattr(stmt, "dst", None)
        tile = kernel.types.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or not isinstance(tile, TileType):
            continue
        end = _end_of_target(name.encode(), snapshot.source.data, state.unit.offset + stmt.span.start)
        if end is not None and end not in seen:
            seen.add(end)
            yield end, tile


def _end_of_target(name: bytes, data: bytes, at: int) -> int | None:
    """Where `name` ends in the assignment `name = …` whose statement, or whose value, begins at `at`.

    None for what no assignment of this name makes: temporaries, and statements that an expansion adds.
    """
    line = data.rfind(b"\n", 0, at) + 1
    before = re.search(rb"(?<![\w.])" + re.escape(name) + rb"(?=\s*=\s*$)", data[line:at])
    if before is not None:
        return line + before.end()
    here = re.match(re.escape(name) + rb"(?=\s*=[^=])", data[at : at + len(name) + 8])
    return at + here.end() if here is not None else None
