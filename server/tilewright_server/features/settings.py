"""Settings: from `initializationOptions`, and later from the configuration section `tilewright`."""

from __future__ import annotations

from dataclasses import replace

from lsprotocol import types

from tilewright_server import convert
from tilewright_server.server import TilewrightServer
from tilewright_server.session import Settings

SECTION = "tilewright"


def register(server: TilewrightServer) -> None:
    """Register the handlers."""
    server.feature(types.INITIALIZE)(initialize)
    server.feature(types.INITIALIZED)(initialized)
    server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(did_change_configuration)


def initialize(ls: TilewrightServer, params: types.InitializeParams) -> None:
    """Take the options, and load the verifier while the client opens its first document."""
    ls.session.settings = resolve(ls.session.settings, params.initialization_options)


async def initialized(ls: TilewrightServer, params: types.InitializedParams) -> None:
    """Start the worker, and ask a client that sent no options for its configuration."""
    ls.verifier.start()
    await _pull(ls)


async def did_change_configuration(ls: TilewrightServer, params: types.DidChangeConfigurationParams) -> None:
    """Take the new settings from the message, or ask for them when it has none."""
    section = convert.mapping(params.settings).get(SECTION)
    if section is None:
        await _pull(ls)
    else:
        _use(ls, section)


def resolve(settings: Settings, options: object) -> Settings:
    """The settings with those of `options` that are there and have the right type; the others stay as they are."""
    given = convert.mapping(options)
    target, runner, trusted = given.get("target"), given.get("runner"), given.get("workspaceTrusted")
    if isinstance(target, str):
        settings = replace(settings, target=target.strip())
    if isinstance(runner, str):
        settings = replace(settings, runner=runner.strip() or "local")
    if isinstance(trusted, bool):
        settings = replace(settings, trusted=trusted)
    return settings


async def _pull(ls: TilewrightServer) -> None:
    workspace = ls.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return
    items = [types.ConfigurationItem(section=SECTION)]
    answer = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    _use(ls, answer[0] if answer else None)


def _use(ls: TilewrightServer, options: object) -> None:
    settings = resolve(ls.session.settings, options)
    # The workspace cannot declare itself trusted: only the client says so, when it starts the server.
    settings = replace(settings, trusted=ls.session.settings.trusted)
    before, ls.session.settings = ls.session.settings, settings
    if settings.target != before.target:
        ls.settings_changed()
