"""The real verifier, runner, optimizer and compiler behind the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from server.conftest import SCHEMA, Run

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = (EXAMPLES / "gemm.py").read_text(encoding="utf-8")


def test_the_examples_are_checked_as_json_that_obeys_the_schema(tilewright: Run) -> None:
    status, out, _ = tilewright("check", "--format", "json", str(EXAMPLES))
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    verdicts = {Path(s["file"]).stem + "::" + s["kernel"]: s["verdict"] for s in document["summary"]}
    faulty = {name for name, verdict in verdicts.items() if verdict == "refuted"}
    assert status == int(bool(faulty))
    assert {name for name in verdicts if name.startswith("faulty")} == faulty
    assert verdicts["gemm::gemm"] == "proved"


def test_run_compares_with_the_reference_on_even_and_odd_sizes(tilewright: Run) -> None:
    status, out, _ = tilewright("run", f"{EXAMPLES / 'elementwise.py'}", "--json")
    result = json.loads(out)
    assert (status, result["correct"]) == (0, True)
    assert result["max_error"] < 1e-2
    sizes = [shape["N"] for shape in result["shapes"]]
    assert any(size % 2 for size in sizes)


def test_optimize_prints_the_variants_and_leaves_the_file_alone(
    tilewright: Run,
    tmp_path: Path,
) -> None:
    path = tmp_path / "gemm.py"
    path.write_text(GEMM, encoding="utf-8")
    status, out, _ = tilewright("optimize", f"{path}::gemm")
    assert status == 0
    assert "| as written | proved |" in out
    assert path.read_text(encoding="utf-8") == GEMM


@pytest.mark.parametrize("stage", ["ptx", "sass"])
def test_compiled_stages_need_no_gpu(tilewright: Run, stage: str) -> None:
    pytest.importorskip("triton", reason="compiling needs triton")
    status, out, _ = tilewright("lower", f"{EXAMPLES / 'elementwise.py'}", "--emit", stage)
    assert status == 0
    assert {"ptx": ".visible .entry", "sass": "registers a thread"}[stage] in out


def test_one_kernel_is_checked_and_compiled_for_amd(tilewright: Run) -> None:
    pytest.importorskip("triton", reason="compiling needs triton")
    name = f"{EXAMPLES / 'elementwise.py'}"
    assert tilewright("check", name, "--target", "gfx942")[0] == 0
    status, out, _ = tilewright("lower", name, "--target", "gfx942", "--emit", "amdgcn")
    assert status == 0
    assert out.startswith("; gfx942: ") and '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"' in out
    status, _, err = tilewright("lower", name, "--target", "gfx942", "--emit", "ptx")
    assert status == 2 and "is for gfx942, for which there is no PTX; --emit amdgcn" in err
    status, _, err = tilewright("lower", name, "--emit", "amdgcn")
    assert status == 2 and "there is no AMD assembly; --emit ptx or sass" in err


def test_two_edits_of_one_line_are_shown_as_one(tilewright: Run, tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    text = (EXAMPLES / "softmax.py").read_text(encoding="utf-8").replace("other=-tw.inf", "other=0.0")
    path.write_text(text, encoding="utf-8")
    status, out, _ = tilewright("check", str(path))
    assert status == 1
    added = [line.strip() for line in out.splitlines() if line.startswith("    + ")]
    assert any("tw.where(" in line and line.count("(") == line.count(")") for line in added), out
