"""textDocument/inlayHint: element type and shape of each tile where it is assigned."""

from __future__ import annotations

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
        start = state.unit.offset + stmt.span.start
        end = start + len(name.encode())
        # Statements that no assignment of this name makes (temporaries, what an expansion adds) start with other text.
        written = snapshot.source.data[start : end + 2].decode("utf-8", "replace")
        if written.startswith(name) and written[len(name) :].lstrip()[:1] in ("=", "") and end not in seen:
            seen.add(end)
            yield end, tile
