"""Places in texts that are not plain ASCII with LF: columns are UTF-16, and lines end as editors count them."""

from __future__ import annotations

import pytest

from server.conftest import HEADER, Editor, elementwise

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNDEFINED = "missing"


@pytest.mark.parametrize(
    "before",
    ['"🙂𝔸é"; y = x', "y = x  # 🙂", "y = x"],
    ids=["astral characters on the line above", "in a comment", "plain"],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_squiggles_stand_under_the_code(editor: Editor, before: str, ending: str) -> None:
    text = HEADER + elementwise("typo", before=before, value=f"x * {UNDEFINED}")
    editor.open(text.replace("\n", ending))
    await editor.until(lambda: "TW002" in editor.codes, "the undefined name is shown")
    (shown,) = [d for d in editor.diagnostics if d.code == "TW002"]
    assert shown.range.start == editor.position(UNDEFINED)
    assert shown.range.end == editor.position(UNDEFINED, len(UNDEFINED))


async def test_columns_after_an_emoji_on_the_same_line_are_utf16(editor: Editor) -> None:
    editor.open(HEADER + elementwise("typo", before=f'"🙂"; y = {UNDEFINED}'))
    await editor.until(lambda: "TW002" in editor.codes, "the undefined name is shown")
    (shown,) = [d for d in editor.diagnostics if d.code == "TW002"]
    assert shown.range.start == editor.position(UNDEFINED)
    assert shown.range.start.character == len('        "🙂"; y = ') + 1


async def test_edits_after_emoji_and_separators_hit_the_right_text(editor: Editor) -> None:
    # A form feed and U+2028 end no line for an editor, although str.splitlines says otherwise.
    editor.open(HEADER + "# 🙂 \f \u2028 \x85 x\r\n" + elementwise("square", before='"🙂"; y = x'))
    await editor.until_verdicts("✓ proved (3 obligations)")
    editor.replace("y = x", f"y = {UNDEFINED}")
    await editor.until(lambda: "TW002" in editor.codes, "the undefined name is shown")
    assert editor.diagnostics[0].range.start == editor.position(UNDEFINED)
    editor.replace(UNDEFINED, "x")
    await editor.until_verdicts("✓ proved (3 obligations)")
    assert editor.codes == []


async def test_tabs_count_as_one_column(editor: Editor) -> None:
    kernel = elementwise("typo", value=f"x * {UNDEFINED}").replace("    ", "\t")
    editor.open(HEADER + kernel)
    await editor.until(lambda: "TW002" in editor.codes, "the undefined name is shown")
    assert editor.diagnostics[0].range.start == editor.position(UNDEFINED)


async def test_a_whole_text_replacement_is_understood(editor: Editor) -> None:
    editor.open(HEADER + elementwise("square", store="refute wrong"))
    await editor.until(lambda: editor.codes == ["TW202"], "the fault is shown")
    editor.replace_all(HEADER + elementwise("other"))
    await editor.until_verdicts("✓ proved (3 obligations)")
    assert editor.codes == []
