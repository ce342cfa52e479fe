"""textDocument/didOpen, didChange, didClose, and the end of the connection."""

from __future__ import annotations

from lsprotocol import types

from tilewright_server import convert
from tilewright_server.server import TilewrightServer


def register(server: TilewrightServer) -> None:
    """Register the handlers."""
    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(did_change)
    server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(did_close)
    server.feature(types.SHUTDOWN)(shutdown)


def did_open(ls: TilewrightServer, params: types.DidOpenTextDocumentParams) -> None:
    """Parse and show; check after the pause."""
    document = params.text_document
    path = convert.path_of(document.uri)
    ls.text_changed(ls.session.open(document.uri, path, document.text, document.version))


def did_change(ls: TilewrightServer, params: types.DidChangeTextDocumentParams) -> None:
    """Apply the edits, parse the touched kernels and show; check after the pause."""
    changes = [convert.change(event) for event in params.content_changes]
    uri = params.text_document.uri
    ls.text_edited(uri, ls.session.edit(uri, changes, params.text_document.version))


def did_close(ls: TilewrightServer, params: types.DidCloseTextDocumentParams) -> None:
    """Stop checking and clear the findings."""
    ls.document_closed(params.text_document.uri)


async def shutdown(ls: TilewrightServer, params: None) -> None:
    """End the worker before the client ends us."""
    await ls.close()
