"""Language server under test: a real process, driven over its protocol."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, make_test_lsp_client

from tilewright_server.cli import main

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "tilewright_server", "serve", "--stdio"]
SCHEMA = json.loads((files("tilewright_server") / "schema" / "check.schema.json").read_text(encoding="utf-8"))
_numbers = itertools.count(1)

HEADER = """import tilewright as tw
from tilewright import Const, Global, f32

M, N, K = tw.sizes("M", "N", "K")


"""


def elementwise(name: str, store: str = "", before: str = "", value: str = "x * x") -> str:
    """A kernel in which comments can tell the fake verifier what to say about its store."""
    return f"""@tw.kernel(target="sm_80", warps=4)
def {name}(X: Global[f32, N], OUT: Global[f32, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0)
        {before or "y = x"}
        tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), {value}){"  # verifier: " + store if store else ""}


"""


class Editor:
    """What a person does in an editor, on one document."""

    def __init__(self, client: LanguageClient, uri: str = "") -> None:
        self.client = client
        self.uri = uri or f"file:///a%20folder/kernels_{next(_numbers)}.py"
        self.version = 0
        self.text = ""

    def open(self, text: str) -> None:
        self.version, self.text = 1, text
        document = types.TextDocumentItem(self.uri, "python", self.version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def replace(self, old: str, new: str) -> None:
        """Type `new` over the first `old`, as one incremental change."""
        at = self.text.index(old)
        area = types.Range(self._position(at), self._position(at + len(old)))
        self.text = self.text.replace(old, new, 1)
        self.version += 1
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self.version, self.uri),
                [types.TextDocumentContentChangePartial(range=area, text=new)],
            )
        )

    def replace_all(self, text: str) -> None:
        """Replace the whole text by one change without a range."""
        self.text = text
        self.version += 1
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self.version, self.uri),
                [types.TextDocumentContentChangeWholeDocument(text=text)],
            )
        )

    def close(self) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(self.uri)))

    def position(self, text: str, shift: int = 0) -> types.Position:
        return self._position(self.text.index(text) + shift)

    @property
    def diagnostics(self) -> list[types.Diagnostic]:
        return list(self.client.diagnostics.get(self.uri, []))

    @property
    def codes(self) -> list[object]:
        return [d.code for d in self.diagnostics]

    async def lenses(self) -> list[types.CodeLens]:
        params = types.CodeLensParams(types.TextDocumentIdentifier(self.uri))
        return list(await self.client.text_document_code_lens_async(params) or [])

    async def verdicts(self) -> list[str]:
        return [
            lens.command.title
            for lens in await self.lenses()
            if lens.command is not None and lens.command.command == "tilewright.check"
        ]

    async def hover(self, text: str, shift: int = 0) -> str:
        params = types.HoverParams(types.TextDocumentIdentifier(self.uri), self.position(text, shift))
        hover = await self.client.text_document_hover_async(params)
        if hover is None:
            return ""
        assert isinstance(hover.contents, types.MarkupContent)
        return hover.contents.value

    async def code_actions(self, text: str, only: list[str] | None = None) -> list[types.CodeAction | types.Command]:
        at = self.position(text)
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(self.uri),
            types.Range(at, at),
            types.CodeActionContext(diagnostics=[], only=only),
        )
        return list(await self.client.text_document_code_action_async(params) or [])

    async def command(self, name: str, kernel: str) -> Any:
        params = types.ExecuteCommandParams(f"tilewright.server.{name}", [{"uri": self.uri, "kernel": kernel}])
        return await self.client.workspace_execute_command_async(params)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 20) -> None:
        """Wait until something is true of what the editor shows."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if await value if isinstance(value, Awaitable) else value:
                return
            await asyncio.sleep(0.02)
        shown = [f"{d.code}: {d.message}" for d in self.diagnostics]
        pytest.fail(f"waited in vain until {what}; shown: {shown}; verdicts: {await self.verdicts()}")

    async def until_verdicts(self, *expected: str) -> None:
        async def as_expected() -> bool:
            return await self.verdicts() == list(expected)

        await self.until(as_expected, f"the verdicts are {expected}")

    def _position(self, at: int) -> types.Position:
        line_start = max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1
        breaks = self.text[:at].replace("\r\n", "\n").replace("\r", "\n").count("\n")
        column = len(self.text[line_start:at].encode("utf-16-le")) // 2
        return types.Position(breaks, column)


def worker_pids(editor: Editor) -> list[int]:
    """The processes that the server has started."""
    server = editor.client._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    tasks = Path(f"/proc/{server.pid}/task").iterdir()
    return sorted(int(pid) for task in tasks for pid in (task / "children").read_text().split())


def client() -> LanguageClient:
    """A client that keeps `tilewright/status` notifications."""
    made = make_test_lsp_client()
    statuses: list[dict[str, Any]] = []
    made.statuses = statuses  # type: ignore[attr-defined]

    @made.feature("tilewright/status")
    def _(params: Any) -> None:
        statuses.append(params._asdict())

    return made


def capabilities() -> types.ClientCapabilities:
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(
            position_encodings=[types.PositionEncodingKind.Utf8, types.PositionEncodingKind.Utf16]
        ),
        window=types.WindowClientCapabilities(work_done_progress=True),
    )


def fake_environment() -> dict[str, str]:
    """An environment in which the server's processes use the fake verifier."""
    given = os.environ.get("PYTHONPATH")  # where the packages under test are, unless they are installed
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE / "fake_verifier"), *([given] if given else [])])}


@pytest_lsp.fixture(
    scope="session",
    loop_scope="session",
    config=ClientServerConfig(server_command=COMMAND, client_factory=client, server_env=fake_environment()),
)
async def fake(lsp_client: LanguageClient) -> AsyncIterator[None]:
    """A server whose verifier does what comments say."""
    await lsp_client.initialize_session(types.InitializeParams(capabilities()))
    yield
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(
    scope="session", loop_scope="session", config=ClientServerConfig(server_command=COMMAND, client_factory=client)
)
async def real(lsp_client: LanguageClient) -> AsyncIterator[None]:
    """The server as it is."""
    await lsp_client.initialize_session(types.InitializeParams(capabilities()))
    yield
    await lsp_client.shutdown_session()


@pytest_asyncio.fixture(loop_scope="session")
async def fake_log(tmp_path: Path) -> AsyncIterator[tuple[Editor, Path]]:
    """An editor, and the file in which the fake verifier notes each kernel that it is asked about."""
    log = tmp_path / "checked"
    log.touch()
    made = client()
    await made.start_io(*COMMAND, env=fake_environment() | {"FAKE_VERIFIER_LOG": str(log)})
    await made.initialize_session(types.InitializeParams(capabilities()))
    yield Editor(made), log
    await made.shutdown_session()
    await made.stop()


@pytest_lsp.fixture(
    scope="session", loop_scope="session", config=ClientServerConfig(server_command=COMMAND, client_factory=client)
)
async def asked(lsp_client: LanguageClient) -> AsyncIterator[None]:
    """A client that answers `workspace/configuration`, with a target that does not exist."""
    lsp_client.set_configuration({"target": "sm_12", "runner": "local"}, section="tilewright")
    can = capabilities()
    can.workspace = types.WorkspaceClientCapabilities(configuration=True)
    await lsp_client.initialize_session(types.InitializeParams(can))
    yield
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(
    scope="session",
    loop_scope="session",
    config=ClientServerConfig(server_command=COMMAND, client_factory=client, server_env=fake_environment()),
)
async def untrusted(lsp_client: LanguageClient) -> AsyncIterator[None]:
    """The same for a client that does not trust the workspace."""
    options = {"workspaceTrusted": False, "target": "", "runner": "local"}
    await lsp_client.initialize_session(types.InitializeParams(capabilities(), initialization_options=options))
    yield
    await lsp_client.shutdown_session()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tilewright(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit status, stdout, stderr."""

    def _run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return _run


@pytest.fixture
def editor(fake: LanguageClient) -> Iterator[Editor]:
    """An editor on a document of its own; one server serves all tests of a process, as it serves all documents of a day."""
    made = Editor(fake)
    yield made
    made.close()


@pytest.fixture
def real_editor(real: LanguageClient) -> Iterator[Editor]:
    """The same, with the real verifier."""
    made = Editor(real)
    yield made
    made.close()
