"""The real verifier and optimizer behind the protocol."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from server.conftest import Editor

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = (EXAMPLES / "gemm.py").read_text(encoding="utf-8")
RIGHT, WRONG = "B.tile((k, pn * BN)", "B.tile((k, pm * BN)"


async def test_a_swapped_tile_origin_is_refuted_and_its_fix_is_proved(real_editor: Editor) -> None:
    assert RIGHT in GEMM
    editor = real_editor
    editor.open(GEMM.replace(RIGHT, WRONG, 1))
    await editor.until(lambda: any("counterexample" in d.message for d in editor.diagnostics), "it is refuted")
    assert any(d.related_information for d in editor.diagnostics)
    titles = await editor.verdicts()
    assert titles[0].startswith("✗")
    editor.replace(WRONG, RIGHT)
    await editor.until(lambda: editor.codes == [], "the squiggles are gone")

    async def proved() -> bool:
        return all(title.startswith("✓ proved") for title in await editor.verdicts())

    await editor.until(proved, "all kernels are proved")


async def test_an_edit_of_one_kernel_of_twenty_is_answered_at_once(real_editor: Editor) -> None:
    head, _, kernel = GEMM.partition("@tw.kernel")
    kernel = "@tw.kernel" + kernel.partition("\n\n\n@tw.kernel")[0] + "\n\n\n"
    name = kernel.partition("def ")[2].partition("(")[0]
    copies = [kernel.replace(f"def {name}(", f"def {name}_{number}(") for number in range(20)]
    editor = real_editor
    editor.open(head + "".join(copies))
    times: list[float] = []
    for number in range(5):
        begin = time.perf_counter()
        editor.replace(f"def {name}_19(", f"def {name}_19(oops{number}, ")
        await editor.until(lambda: bool(editor.codes), "the parameter without a type is shown")
        times.append(time.perf_counter() - begin)
        editor.replace(f"def {name}_19(oops{number}, ", f"def {name}_19(")
        await editor.until(lambda: not editor.codes, "it is gone")
    assert min(times) < 0.2, times  # the client looks every 20 ms


async def test_optimize_returns_whole_documents_and_ranked_variants(real_editor: Editor) -> None:
    editor = real_editor
    editor.open(GEMM)
    result = await editor.command("optimize", "gemm")
    assert result["original"] == GEMM
    assert result["verdict"] == "proved"
    assert {v["verdict"] for v in result["variants"]} >= {"proved"}
    if result["proposed"] != result["original"]:
        editor.replace_all(result["proposed"])
        assert (await editor.command("check", "gemm"))["verdict"] == "proved"


async def test_hover_on_a_kernel_name_estimates_its_speed_and_then_tells_what_the_compiler_made_of_it(
    real_editor: Editor,
) -> None:
    pytest.importorskip("triton", reason="compiled facts need triton")
    editor = real_editor
    editor.open(GEMM)
    first = await editor.hover("gemm(")
    assert "static model" in first
    assert "Compiling" in first

    async def compiled() -> bool:
        return "registers a thread" in await editor.hover("gemm(")

    await editor.until(compiled, "the compiler has answered", seconds=60)
