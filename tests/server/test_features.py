"""Hover, lenses, code actions, inlay hints, commands and settings."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import LanguageClient

from server.conftest import HEADER, Editor, elementwise, worker_pids

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_hover_on_a_tile_shows_type_shape_and_the_reason_of_its_layout(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    text = await editor.hover("x = tw.load")
    assert "x: f32[1024]" in text
    assert "4 KiB" in text
    assert "blocked" in text
    assert "because" in text


async def test_hover_on_tensors_sizes_and_constants(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    assert "Global[f32, N]" in await editor.hover("X: Global")
    assert "an extent of X, OUT" in await editor.hover("N, BLOCK)):")
    assert "Const = 1024" in await editor.hover("BLOCK: Const")


async def test_hover_on_a_kernel_name_sums_up_its_verdict(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    text = await editor.hover("square(")
    assert "✓ proved (3 obligations)" in text
    assert "| memory | 1 of 1 |" in text


async def test_hover_off_any_name_or_kernel_is_empty(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    assert await editor.hover("import tilewright") == ""
    assert await editor.hover(".cdiv", 1) == ""


async def test_lenses_carry_the_commands_of_the_client_and_the_kernel(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    lenses = [lens.command for lens in await editor.lenses() if lens.command is not None]
    assert [c.title for c in lenses] == ["✓ proved (3 obligations)", "Run", "Optimize", "Expand"]
    assert [c.command.rpartition(".")[2] for c in lenses] == ["check", "run", "optimize", "expand"]
    (argument,) = lenses[1].arguments or []
    assert argument is not None
    assert (argument["uri"], argument["kernel"]) == (editor.uri, "square")
    assert (await editor.lenses())[0].range.start == editor.position("@tw.kernel")


async def test_a_fix_is_offered_as_the_preferred_quick_fix_and_settles_the_finding(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute wrong"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    (fix,) = await editor.code_actions("tw.store", only=["quickfix"])
    assert isinstance(fix, types.CodeAction)
    assert (fix.title, fix.is_preferred) == ("Remove the comment", True)
    assert [d.code for d in fix.diagnostics or []] == ["TW202"]
    assert fix.edit is not None
    (change,) = fix.edit.document_changes or []
    assert isinstance(change, types.TextDocumentEdit)
    assert change.text_document.version == editor.version
    (edit,) = change.edits
    assert edit.range.start == editor.position("# verifier")
    editor.replace("# verifier: refute wrong", "")
    await editor.until(lambda: editor.codes == [], "the squiggle is gone")


async def test_a_kernel_can_be_optimized_and_expanded_from_inside_it(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    actions = await editor.code_actions("y = x", only=["refactor"])
    # lsprotocol reads a code action that holds only a command as a Command, so the command arrives as text.
    assert [a.title for a in actions] == ["Optimize square", "Expand square"]
    assert ["'tilewright.optimize'" in str(a.command) for a in actions] == [True, False]
    assert await editor.code_actions("import") == []


async def test_inlay_hints_show_the_shape_of_assigned_tiles(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    everything = types.Range(types.Position(0, 0), types.Position(100, 0))
    params = types.InlayHintParams(types.TextDocumentIdentifier(editor.uri), everything)
    hints = await editor.client.text_document_inlay_hint_async(params) or []
    shown = {(hint.position.line, hint.position.character): hint.label for hint in hints}
    at = editor.position("x = tw.load", 1)
    assert shown[at.line, at.character] == ": f32[1024]"
    above = types.InlayHintParams(
        types.TextDocumentIdentifier(editor.uri), types.Range(types.Position(0, 0), types.Position(3, 0))
    )
    assert not await editor.client.text_document_inlay_hint_async(above)


async def test_check_verifies_again_and_returns_the_counts(fake_log: tuple[Editor, Path]) -> None:
    editor, log = fake_log
    editor.open(HEADER + elementwise("square", store="refute wrong"))
    await editor.until_verdicts("✗ 1 refuted")
    result = await editor.command("check", "square")
    assert (result["verdict"], result["proved"], result["refuted"], result["unknown"]) == ("refuted", 0, 1, 0)
    assert log.read_text().split() == ["square", "square"]


async def test_expand_returns_explicit_source(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    result = await editor.command("expand", "square")
    assert "tw.programs" in result["source"]
    assert "tw.tiles" not in result["source"]


async def test_commands_on_what_is_not_there_say_so(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", value="x * nothing"))
    with pytest.raises(JsonRpcException, match="no kernel missing"):
        await editor.command("expand", "missing")
    with pytest.raises(JsonRpcException, match=r"square is invalid: .*TW002"):
        await editor.command("expand", "square")
    with pytest.raises(JsonRpcException, match="is not open"):
        await Editor(editor.client, "file:///other.py").command("check", "square")


async def test_run_answers_from_the_interpreter_where_there_is_no_gpu(editor: Editor) -> None:
    kernel = elementwise("square").replace("warps=4", 'warps=4, reference="X * X"')
    editor.open(HEADER + kernel)
    result = await editor.command("run", "square")
    assert result["correct"] is True
    assert "interpreter" in result["label"] or "NVIDIA" in result["label"]
    assert len(result["shapes"]) > 1
    assert editor.client.progress_reports, "progress was shown"


async def test_a_run_can_be_cancelled_and_its_process_ends(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    before, shown = worker_pids(editor), set(editor.client.progress_reports)
    request = asyncio.ensure_future(editor.command("run", "square"))
    await editor.until(lambda: len(worker_pids(editor)) == len(before) + 1, "the run has a process")
    (token,) = set(editor.client.progress_reports) - shown
    editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
    with pytest.raises(JsonRpcException, match="cancelled"):
        await request
    await editor.until(lambda: worker_pids(editor) == before, "its process is gone")


async def test_an_untrusted_workspace_checks_but_does_not_run(untrusted: LanguageClient) -> None:
    editor = Editor(untrusted)
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    with pytest.raises(JsonRpcException, match="trusted workspace"):
        await editor.command("run", "square")


async def test_a_new_target_is_taken_from_the_configuration_and_checked_for(fake_log: tuple[Editor, Path]) -> None:
    editor, log = fake_log
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    settings = {"tilewright": {"target": "sm_90a", "runner": "local"}}
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
    await editor.until(lambda: log.read_text().split() == ["square", "square"], "it was checked again")
    settings["tilewright"]["target"] = ""
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
    await editor.until_verdicts("✓ proved (3 obligations)")
    assert log.read_text().split() == ["square", "square"], "the first verdict still holds"


async def test_a_request_that_fails_leaves_the_server_answering(editor: Editor) -> None:
    never_opened = Editor(editor.client)
    never_opened.text = "x"
    never_opened.replace("x", "y")
    assert await never_opened.lenses() == []
    with pytest.raises(JsonRpcException, match="not defined"):
        await editor.client.workspace_execute_command_async(types.ExecuteCommandParams("tilewright.server.fly", []))
    with pytest.raises(JsonRpcException, match="none given"):
        await editor.client.workspace_execute_command_async(types.ExecuteCommandParams("tilewright.server.check", []))
    editor.open(HEADER + elementwise("square"))
    await editor.until_verdicts("✓ proved (3 obligations)")


async def test_a_client_without_options_is_asked_for_its_configuration(asked: LanguageClient) -> None:
    editor = Editor(asked)
    editor.open(HEADER + elementwise("square").replace('target="sm_80"', 'target="sm_90a"'))
    await editor.until_verdicts("? not checked")
    assert any("square was not checked: unknown target sm_12; there are sm_80" in m.message for m in asked.messages)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
async def test_the_server_at_rest_needs_less_than_200_mb_with_its_worker(real_editor: Editor) -> None:
    editor = real_editor
    editor.open(HEADER + elementwise("square"))
    await editor.until(lambda: bool(worker_pids(editor)), "the worker runs")
    assert (await editor.command("check", "square"))["verdict"] == "proved"
    server = editor.client._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    resident = {pid: resident_mb(pid) for pid in (server.pid, *worker_pids(editor))}
    assert sum(resident.values()) < 200, resident


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_the_last_run_stands_over_the_kernel_and_has_a_page(editor: Editor) -> None:
    kernel = elementwise("square").replace("warps=4", 'warps=4, reference="X * X"')
    editor.open(HEADER + kernel)
    with pytest.raises(JsonRpcException, match="was not run since the server started"):
        await editor.command("report", "square")
    result = await editor.command("profile", "square")
    if "interpreter" not in result["device"]:
        pytest.skip("there is a GPU")
    assert result["profile"]["tool"] == "" and "the interpreter has no counters" in result["profile"]["why"]
    titles = [lens.command.title for lens in await editor.lenses() if lens.command is not None]
    assert titles[-1] == "correct · interpreter (no GPU)"
    page = (await editor.command("report", "square"))["markdown"]
    assert "correct, largest error" in page and "| N\u00a0=\u00a0" in page and "the interpreter has no counters" in page
    editor.replace("x * x", "x * x + 1.0")
    await editor.until_verdicts("✓ proved (3 obligations)")
    titles = [lens.command.title for lens in await editor.lenses() if lens.command is not None]
    assert titles[-1].startswith("before the last edit: correct")
    assert "edited since" in (await editor.command("report", "square"))["markdown"]


async def test_a_runner_that_is_dead_stands_over_the_kernel_with_what_to_do(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square"))
    editor.client.workspace_did_change_configuration(
        types.DidChangeConfigurationParams({"tilewright": {"runner": f"{sys.executable} -c raise(SystemExit(3))"}})
    )
    with pytest.raises(JsonRpcException, match="run the command by hand"):
        await editor.command("run", "square")
    title = [lens.command.title for lens in await editor.lenses() if lens.command is not None][-1]
    assert title.startswith("✗ square was not run") and len(title) <= 90
    page = (await editor.command("report", "square"))["markdown"]
    assert "there is no result" in page and "SystemExit" in page and "run the command by hand" in page


async def test_runners_are_those_of_the_project_of_the_document(editor: Editor, tmp_path: Path) -> None:
    document = Editor(editor.client, (tmp_path / "kernels.py").as_uri())
    (tmp_path / "pyproject.toml").write_text('[tool.tilewright.runners]\nbox = "ssh box worker"\n', encoding="utf-8")
    found = await document.command("runners", "")
    assert found["runners"] == [{"name": "local", "command": ""}, {"name": "box", "command": "ssh box worker"}]
    assert found["file"] == str(tmp_path / "pyproject.toml") and found["problem"] == ""
    (tmp_path / "pyproject.toml").write_text("[tool.tilewright.runners]\nbox = 3\n", encoding="utf-8")
    found = await document.command("runners", "")
    assert found["runners"] == [{"name": "local", "command": ""}] and "'box' needs a command" in found["problem"]


async def test_verdicts_follow_the_keys_where_checks_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright_server.server import PAUSE_S, QUICK_MS, SHORT_PAUSE_S, TilewrightServer

    server, pauses = TilewrightServer(), list[float]()
    monkeypatch.setattr(server, "_restart", lambda _timers, _uri, delay, _action: pauses.append(delay))
    snapshot = server.session.open("file:///k.py", Path("k.py"), "x = 1\n", 1)
    for took in (None, QUICK_MS / 2, 2 * QUICK_MS):
        if took is not None:
            server._took[snapshot.uri] = took
        server.text_changed(snapshot)
    assert pauses == [PAUSE_S, SHORT_PAUSE_S, PAUSE_S]
