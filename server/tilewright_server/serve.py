"""`tilewright serve`: the language server on stdin and stdout."""

from __future__ import annotations

import logging
import sys

from tilewright_server.features import (
    code_action,
    code_lens,
    execute,
    hover,
    inlay_hint,
    settings,
    sync,
)
from tilewright_server.server import TilewrightServer


def create_server() -> TilewrightServer:
    """A server with every feature, not yet connected."""
    server = TilewrightServer()
    for feature in (sync, settings, hover, code_lens, code_action, inlay_hint, execute):
        feature.register(server)
    return server


def serve_stdio() -> None:
    """Serve until the client disconnects. The log goes to stderr, since stdout belongs to the protocol."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("pygls").setLevel(logging.WARNING)  # it logs every message in full
    create_server().start_io()
