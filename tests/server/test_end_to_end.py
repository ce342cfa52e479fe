"""The real verifier, runner and optimizer behind the protocol and the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
import pytest
from pytest_lsp import LanguageClient

from server.conftest import Editor
from server.test_cli import SCHEMA, Run, tilewright  # noqa: F401  (a fixture)

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = (EXAMPLES / "gemm.py").read_text(encoding="utf-8")
RIGHT, WRONG = "B.tile((k, pn * BN)", "B.tile((k, pm * BN)"


async def test_a_swapped_tile_origin_is_refuted_and_its_fix_is_proved(real: LanguageClient) -> None:
    assert RIGHT in GEMM
    editor = Editor(real)
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


async def test_an_edit_of_one_kernel_of_twenty_is_answered_at_once(real: LanguageClient) -> None:
    head, _, kernel = GEMM.partition("@tw.kernel")
    kernel = "@tw.kernel" + kernel.partition("\n\n\n@tw.kernel")[0] + "\n\n\n"
    name = kernel.partition("def ")[2].partition("(")[0]
    copies = [kernel.replace(f"def {name}(", f"def {name}_{number}(") for number in range(20)]
    editor = Editor(real)
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


async def test_optimize_returns_whole_documents_and_ranked_variants(real: LanguageClient) -> None:
    editor = Editor(real)
    editor.open(GEMM)
    result = await editor.command("optimize", "gemm")
    assert result["original"] == GEMM
    assert result["verdict"] == "proved"
    assert {v["verdict"] for v in result["variants"]} >= {"proved"}
    if result["proposed"] != result["original"]:
        editor.replace_all(result["proposed"])
        assert (await editor.command("check", "gemm"))["verdict"] == "proved"


async def test_hover_on_a_kernel_name_estimates_its_speed_and_then_tells_what_the_compiler_made_of_it(
    real: LanguageClient,
) -> None:
    pytest.importorskip("triton", reason="compiled facts need triton")
    editor = Editor(real)
    editor.open(GEMM)
    first = await editor.hover("gemm(")
    assert "static model" in first
    assert "Compiling" in first

    async def compiled() -> bool:
        return "registers a thread" in await editor.hover("gemm(")

    await editor.until(compiled, "the compiler has answered", seconds=60)


def test_the_examples_are_checked_as_json_that_obeys_the_schema(tilewright: Run) -> None:  # noqa: F811
    status, out, _ = tilewright("check", "--format", "json", str(EXAMPLES))
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    verdicts = {Path(s["file"]).stem + "::" + s["kernel"]: s["verdict"] for s in document["summary"]}
    faulty = {name for name, verdict in verdicts.items() if verdict == "refuted"}
    assert status == int(bool(faulty))
    assert {name for name in verdicts if name.startswith("faulty")} == faulty
    assert verdicts["gemm::gemm"] == "proved"


def test_run_compares_with_the_reference_on_even_and_odd_sizes(tilewright: Run) -> None:  # noqa: F811
    status, out, _ = tilewright("run", f"{EXAMPLES / 'elementwise.py'}", "--json")
    result = json.loads(out)
    assert (status, result["correct"]) == (0, True)
    assert result["max_error"] < 1e-2
    sizes = [shape["N"] for shape in result["shapes"]]
    assert any(size % 2 for size in sizes)


def test_optimize_prints_the_variants_and_leaves_the_file_alone(
    tilewright: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "gemm.py"
    path.write_text(GEMM, encoding="utf-8")
    status, out, _ = tilewright("optimize", f"{path}::gemm")
    assert status == 0
    assert "| as written | proved |" in out
    assert path.read_text(encoding="utf-8") == GEMM


@pytest.mark.parametrize("stage", ["ptx", "sass"])
def test_compiled_stages_need_no_gpu(tilewright: Run, stage: str) -> None:  # noqa: F811
    pytest.importorskip("triton", reason="compiling needs triton")
    status, out, _ = tilewright("lower", f"{EXAMPLES / 'elementwise.py'}", "--emit", stage)
    assert status == 0
    assert {"ptx": ".visible .entry", "sass": "registers a thread"}[stage] in out
