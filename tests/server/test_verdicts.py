"""From an edit to squiggles: streaming, caching, cancelling, and a verifier that dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from lsprotocol import types

from server.conftest import HEADER, Editor, elementwise, worker_pids

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_faulty_kernel_gets_a_squiggle_that_vanishes_with_the_fault(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute out of bounds"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    await editor.until_verdicts("✗ 1 refuted")
    editor.replace("  # verifier: refute out of bounds", "")
    await editor.until(lambda: editor.codes == [], "the squiggle is gone")
    await editor.until_verdicts("✓ proved (3 obligations)")


async def test_the_counterexample_is_in_the_message_and_its_steps_are_related_places(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute out of bounds"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    (shown,) = editor.diagnostics
    assert "out of bounds" in shown.message
    assert "M = 1, K = 65" in shown.message
    assert "role load, warp 1, lane 2, element (0, 7)" in shown.message
    assert shown.code_description is not None
    assert shown.code_description.href.endswith("/TW202.md")
    related = [place.message for place in shown.related_information or []]
    assert related == ["here", "1. [load] it starts", "2. it ends"]


async def test_each_kernel_of_a_file_has_its_own_verdict(editor: Editor) -> None:
    kernels = [
        elementwise("first"),
        elementwise("second", store="refute wrong"),
        elementwise("third", store="unknown cannot tell"),
    ]
    editor.open(HEADER + "".join(kernels))
    await editor.until_verdicts("✓ proved (3 obligations)", "✗ 1 refuted", "? 1 unknown")
    severities = {d.code: d.severity for d in editor.diagnostics}
    assert severities["TW202"] == types.DiagnosticSeverity.Error
    assert severities["TW402"] == types.DiagnosticSeverity.Warning


async def test_a_broken_kernel_leaves_the_others_served(editor: Editor) -> None:
    broken = elementwise("broken").replace("x * x)", "x * )")
    editor.open(HEADER + broken + elementwise("whole", store="refute wrong"))
    await editor.until(lambda: {"TW001", "TW202"} <= set(editor.codes), "both findings are shown")
    verdicts = await editor.verdicts()
    assert verdicts[-1] == "✗ 1 refuted"


async def test_problems_of_syntax_do_not_wait_for_the_verifier(editor: Editor) -> None:
    editor.open(HEADER + elementwise("busy", store="hang") + elementwise("typo", value="x * z"))
    await editor.until(lambda: "TW002" in editor.codes, "the undefined name is shown")
    assert (await editor.verdicts())[0].startswith("… checking")


async def test_decisions_arrive_while_the_kernel_is_still_checked(editor: Editor) -> None:
    text = elementwise("long", before="y = x  # verifier: refute early", store="slow 200")
    editor.open(HEADER + text)
    await editor.until(lambda: "TW202" in editor.codes, "the first refutation is shown")
    assert await editor.verdicts() == ["✗ 1 refuted so far"]


async def test_an_edit_cancels_the_check_of_the_text_before_it(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="hang"))
    await asyncio.sleep(0.6)
    editor.replace("  # verifier: hang", "")
    await editor.until_verdicts("✓ proved (3 obligations)")


async def test_two_quick_edits_end_in_the_verdict_on_the_last(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute one"))
    editor.replace("refute one", "refute two")
    editor.replace("refute two", "refute three")
    await editor.until_verdicts("✗ 1 refuted")
    assert [d.message.splitlines()[0] for d in editor.diagnostics] == ["three"]


async def test_an_unchanged_kernel_is_not_verified_again(fake_log: tuple[Editor, Path]) -> None:
    editor, log = fake_log
    editor.open(HEADER + elementwise("still") + elementwise("moving", store="refute one"))
    await editor.until_verdicts("✓ proved (3 obligations)", "✗ 1 refuted")
    editor.replace("refute one", "refute two")
    await editor.until(lambda: any("two" in d.message for d in editor.diagnostics), "the new message is shown")
    editor.replace("refute two", "refute one")  # a text that was checked before
    await editor.until(lambda: any("one" in d.message for d in editor.diagnostics), "the old message is back")
    editor.replace("import tilewright as tw\n", "import tilewright as tw\n\n")  # everything moves down a line
    await editor.until_verdicts("✓ proved (3 obligations)", "✗ 1 refuted")
    await asyncio.sleep(0.5)
    assert log.read_text().split() == ["still", "moving", "moving"]


async def test_old_findings_stay_in_place_until_newer_ones_are_known(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute wrong"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    line = editor.diagnostics[0].range.start.line
    editor.replace("y = x", "y = x\n        z = x  # verifier: hang")
    await editor.until(
        lambda: bool(editor.diagnostics) and editor.diagnostics[0].range.start.line == line + 1, "it moved"
    )
    assert await editor.verdicts() == ["… checking"]


async def test_a_worker_killed_from_outside_is_replaced_and_the_check_goes_on(editor: Editor, tmp_path: Path) -> None:
    editor.open(HEADER + elementwise("square", store="slow 40"))
    await asyncio.sleep(0.8)
    os.kill(worker_pids(editor)[0], signal.SIGKILL)
    await editor.until_verdicts("✓ proved (40 obligations)")
    assert any("stopped unexpectedly" in m.message for m in editor.client.log_messages)


async def test_a_crash_of_the_verifier_is_tried_once_more(editor: Editor, tmp_path: Path) -> None:
    editor.open(HEADER + elementwise("square", store=f"exit once {tmp_path / 'marker'}"))
    await editor.until_verdicts("✓ proved (3 obligations)")


async def test_a_kernel_that_always_crashes_the_verifier_is_given_up_and_the_next_one_checked(editor: Editor) -> None:
    editor.open(HEADER + elementwise("deadly", store="exit") + elementwise("square"))
    await editor.until_verdicts("? not checked", "✓ proved (3 obligations)")
    assert any("2 times on kernel deadly" in m.message for m in editor.client.messages)


async def test_an_exception_in_the_verifier_is_reported_and_the_server_goes_on(editor: Editor) -> None:
    editor.open(HEADER + elementwise("odd", store="raise") + elementwise("noisy", store="print"))
    await editor.until_verdicts("? not checked", "✓ proved (3 obligations)")
    assert any("seeded failure" in m.message for m in editor.client.messages)


async def test_status_notifications_count_obligations_per_kernel_and_document(editor: Editor) -> None:
    editor.open(HEADER + elementwise("first") + elementwise("second", store="refute wrong"))
    await editor.until_verdicts("✓ proved (3 obligations)", "✗ 1 refuted")

    def last() -> dict[str | None, dict[str, object]]:
        statuses = editor.client.statuses  # type: ignore[attr-defined]
        return {status["kernel"]: status for status in statuses if status["uri"] == editor.uri}

    await editor.until(lambda: last().get(None, {}).get("state") == "done", "the document is done")
    assert (last()["first"]["state"], last()["first"]["proved"]) == ("done", 3)
    assert (last()["second"]["state"], last()["second"]["refuted"]) == ("done", 1)
    assert last()[None] == {
        "uri": editor.uri, "kernel": None, "state": "done", "proved": 3, "refuted": 1, "unknown": 0,
    }  # fmt: skip


async def test_closing_a_document_clears_its_findings(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute wrong"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    editor.close()
    await editor.until(lambda: editor.diagnostics == [], "the findings are gone")


async def test_an_ordinary_python_file_is_left_alone(editor: Editor) -> None:
    editor.open("print 'python 2'\nx = (\n")
    assert await editor.lenses() == []
    assert editor.diagnostics == []


@pytest.mark.parametrize("how", ["disconnect", "kill"])
async def test_when_the_server_ends_its_worker_ends_too_whatever_it_does(
    fake_log: tuple[Editor, Path], how: str
) -> None:
    editor, log = fake_log
    editor.open(HEADER + elementwise("square", store="hang"))
    await editor.until(lambda: log.read_text() != "", "the worker is busy")
    server = editor.client._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    assert server.stdin is not None
    pids = worker_pids(editor)
    editor.client.capabilities = None  # nothing to shut down at the end
    if how == "kill":
        server.kill()
    else:
        server.stdin.close()
    await asyncio.wait_for(server.wait(), 10)
    for _ in range(200):
        if not any(runs(pid) for pid in pids):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"worker {pids} still runs")


async def test_two_kernels_of_the_same_text_are_both_served(editor: Editor) -> None:
    editor.open(HEADER + elementwise("twin") + elementwise("twin"))
    await editor.until(lambda: "TW011" in editor.codes, "the second is reported")
    await editor.until_verdicts("✓ proved (3 obligations)", "✓ proved (3 obligations)")


@pytest.mark.slow
async def test_a_burst_of_edits_of_a_huge_file_is_parsed_once_at_its_end(editor: Editor) -> None:
    editor.open(HEADER + "VALUE = 1\n" * 50_000 + elementwise("square"))
    for number in range(20):
        editor.replace("y = x" if number == 0 else f"y = x + {number - 1}.0", f"y = x + {number}.0")
    editor.replace("y = x + 19.0", "y = missing")
    await editor.until(lambda: "TW002" in editor.codes, "the last edit is understood", seconds=30)
    assert editor.diagnostics[0].range.start == editor.position("missing")


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
