"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from server.conftest import HEADER, HERE, SCHEMA, Run, elementwise
from tilewright_server import engine
from tilewright_server.cli import COMMANDS
from tilewright_server.commands.check import check_paths
from tilewright_server.output import text_format


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let comments in the kernel decide what the verifier says."""
    spec = importlib.util.spec_from_file_location("fake_verifier", HERE / "fake_verifier" / "sitecustomize.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(engine, "check", module.check)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a file into the current folder and return its name."""
    monkeypatch.chdir(tmp_path)

    def _write(text: str | bytes, name: str = "kernels.py") -> str:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return name

    return _write


# ------------------------------------------------------------------------------------------------ check, as text


@pytest.mark.usefixtures("fake")
def test_a_finding_shows_line_caret_counterexample_and_fix(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square", store="refute the tail is written past the end"))
    status, out, _ = tilewright("check", name)
    assert status == 1
    assert (
        out
        == """\
kernels.py:12:9: error[TW202]: the tail is written past the end
  12 │         tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), x * x)  # verifier: refute the tail is written past the end
     │         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  counterexample, replayed in the interpreter:
    sizes: M = 1, K = 65
    where: program 3, iteration k = 64, role load, warp 1, lane 2, element (0, 7)
    values: want = 1, got = 2
    what happens:
      1. line 7 [load]: it starts
      2. line 12: it ends
  note: kernels.py:7:1: here
  7 │ @tw.kernel(target="sm_80", warps=4)
    │ ^^^
  fix: Remove the comment
    -         tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), x * x)  # verifier: refute the tail is written past the end
    +         tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), x * x)
  help: tilewright explain TW202

✗ refuted kernels.py::square: 1 refuted in 0 ms
1 kernel: 1 refuted
""".replace("x * x)\n  help", "x * x)  \n  help")
    )


@pytest.mark.usefixtures("fake")
def test_a_proved_kernel_lists_its_obligations_when_asked(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square"))
    status, out, _ = tilewright("check", name)
    assert (status, out.splitlines()) == (
        0,
        ["✓ proved kernels.py::square: 3 proved in 0 ms", "1 kernel: 1 proved"],
    )
    status, out, _ = tilewright("check", "-v", name)
    assert "    ✓ TW201 line 7: memory is right (by fiat)" in out.splitlines()


@pytest.mark.usefixtures("fake")
def test_what_is_unknown_fails_only_with_strict(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square", store="unknown needs tw.assume(N % 4 == 0)"))
    status, out, _ = tilewright("check", name)
    assert status == 0
    assert "unknown[TW402]: needs tw.assume(N % 4 == 0)" in out
    assert "? unknown kernels.py::square: 1 unknown" in out
    assert tilewright("check", "--strict", name)[0] == 1


@pytest.mark.usefixtures("fake")
def test_a_crash_on_one_kernel_is_an_internal_error_and_leaves_the_others_checked(
    write: Callable[..., str], tilewright: Run
) -> None:
    name = write(HEADER + elementwise("odd", store="raise") + elementwise("square"))
    status, out, err = tilewright("check", name)
    assert status == 2
    assert "✓ proved kernels.py::square" in out
    assert "internal error: the verifier failed on kernel odd: RuntimeError: seeded failure" in out
    assert "Traceback" in err


@pytest.mark.usefixtures("fake")
def test_colour_is_for_terminals_only(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square", store="refute wrong"))
    assert "\x1b[" not in tilewright("check", name)[1]
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system="standard", highlight=False)
    text_format.print_results(check_paths([name], "", {}), terminal)
    assert isinstance(terminal.file, io.StringIO)
    assert "\x1b[1;31merror[TW202]" in terminal.file.getvalue()


@pytest.mark.usefixtures("fake")
def test_carets_stand_under_the_code_after_tabs_and_wide_characters(write: Callable[..., str], tilewright: Run) -> None:
    kernel = elementwise("square", store="refute wrong").replace("        tw.store", "\t\ttw.store")
    kernel = kernel.replace("        x =", "\t\tx =").replace("        y =", "\t\ty =").replace("    for", "\tfor")
    out = tilewright("check", write(HEADER + kernel))[1].splitlines()
    assert out[1].index("tw.store") == out[2].index("^")
    assert out[0].startswith("kernels.py:12:3: ")


# ------------------------------------------------------------------------------------------------ other formats


@pytest.mark.usefixtures("fake")
def test_json_obeys_its_schema_and_counts_utf16_columns(write: Callable[..., str], tilewright: Run) -> None:
    broken = elementwise("typo", value="x * z")
    text = HEADER + elementwise("square", store="refute wrong 🙂") + broken + elementwise("good")
    text = text.replace("        y = x\n        tw.store", '        "🙂🙂"; y = x\n        tw.store', 1)
    status, out, _ = tilewright("check", "--format", "json", write(text))
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert status == 1
    by_code = {finding["code"]: finding for finding in document["findings"]}
    refuted = by_code["TW202"]
    assert (refuted["file"], refuted["kernel"], refuted["verdict"]) == ("kernels.py", "square", "refuted")
    assert refuted["range"]["start"] == {"line": 11, "character": 8}
    assert refuted["counterexample"]["thread"] == {"warp": 1, "lane": 2}
    assert [step["role"] for step in refuted["counterexample"]["trace"]] == ["load", None]
    assert refuted["fixes"][0]["edits"][0]["newText"] == ""
    assert by_code["TW002"]["counterexample"] is None
    counts = {s["kernel"]: (s["verdict"], s["proved"], s["refuted"], s["unknown"]) for s in document["summary"]}
    assert counts == {"square": ("refuted", 0, 1, 0), "typo": ("refuted", 0, 0, 0), "good": ("proved", 3, 0, 0)}


def test_the_schema_refuses_what_it_should() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1, "findings": [{"file": "a.py"}], "summary": [], "errors": []}, SCHEMA)


@pytest.mark.usefixtures("fake")
def test_sarif_has_rules_results_and_code_flows(write: Callable[..., str], tilewright: Run) -> None:
    text = HEADER + elementwise("square", store="refute wrong") + elementwise("maybe", store="unknown why")
    status, out, _ = tilewright("check", "--format", "sarif", write(text))
    log = json.loads(out)
    assert (status, log["version"]) == (1, "2.1.0")
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TW202", "TW402"]
    assert all(rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"])
    refuted, unknown = run["results"]
    region = refuted["locations"][0]["physicalLocation"]["region"]
    assert (refuted["level"], refuted["kind"], refuted["ruleIndex"]) == ("error", "fail", 0)
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (12, 9, 58)
    assert len(refuted["codeFlows"][0]["threadFlows"][0]["locations"]) == 2
    assert refuted["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": ""}
    assert (unknown["level"], unknown["kind"]) == ("none", "open")


@pytest.mark.usefixtures("fake")
def test_github_annotations_are_one_escaped_line_each(write: Callable[..., str], tilewright: Run) -> None:
    text = HEADER + elementwise("square", store="refute 100% wrong") + elementwise("maybe", store="unknown why")
    status, out, _ = tilewright("check", "--format", "github", write(text, "a,b/k.py"))
    first, second = out.splitlines()
    assert status == 1
    assert first.startswith(
        "::error file=a%2Cb/k.py,line=12,endLine=12,title=TW202 square,col=9,endColumn=58::100%25 wrong%0Asizes: M = 1"
    )
    assert second.startswith("::warning file=a%2Cb/k.py,line=20,")


# ------------------------------------------------------------------------------------------------ which files


@pytest.mark.usefixtures("fake")
def test_folders_are_searched_and_other_python_is_left_out(write: Callable[..., str], tilewright: Run) -> None:
    write(HEADER + elementwise("square"), "src/deep/kernels.py")
    write("print 'python 2'\n", "src/old.py")
    write(HEADER + elementwise("hidden"), "src/.cache/kernels.py")
    write(HEADER + elementwise("other"), "src/env/lib/kernels.py")
    write("", "src/env/pyvenv.cfg")
    status, out, _ = tilewright("check", "src", "src/deep/kernels.py")
    assert (status, out.splitlines()[-1]) == (0, "1 kernel: 1 proved")
    assert "src/deep/kernels.py::square" in out


def test_a_folder_without_kernels_says_so(write: Callable[..., str], tilewright: Run) -> None:
    write("x = 1\n", "src/plain.py")
    assert tilewright("check", "src") == (0, "no kernels found in src\n", "")
    assert tilewright("check", "src/plain.py") == (0, "no kernels in 1 file\n", "")


def test_a_missing_file_is_wrong_usage(tilewright: Run) -> None:
    status, out, err = tilewright("check", "nowhere.py")
    assert (status, out, err) == (2, "", "tilewright: no such file or folder: nowhere.py\n")


def test_a_file_that_is_not_utf8_gets_one_finding_at_the_byte(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER.encode() + b"# caf\xe9\n")
    status, out, _ = tilewright("check", name)
    assert status == 1
    assert "kernels.py:7:6: error[TW010]: the file is not UTF-8: byte 0xe9" in out


def test_a_syntax_error_leaves_the_other_kernel_checked(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("broken", value="x * ") + elementwise("whole"))
    status, out, _ = tilewright("check", name)
    assert status == 1
    assert "error[TW001]" in out
    assert "✗ invalid kernels.py::broken: not verified, see above" in out
    assert "✓ proved kernels.py::whole" in out


def test_crlf_files_have_the_same_places(write: Callable[..., str], tilewright: Run) -> None:
    text = HEADER + elementwise("typo", value="x * z")
    out = tilewright("check", write(text.replace("\n", "\r\n")))[1]
    assert "kernels.py:12:56: error[TW002]" in out
    assert "\r" not in out


@pytest.mark.usefixtures("fake")
def test_a_file_of_50000_lines_is_checked(write: Callable[..., str], tilewright: Run) -> None:
    text = HEADER + "VALUE = 1\n" * 50_000 + elementwise("square", store="refute wrong")
    status, out, _ = tilewright("check", write(text))
    assert status == 1
    assert "kernels.py:50012:9: error[TW202]" in out


@pytest.mark.parametrize(
    ("old", "new", "place", "code"),
    [
        ("x * x)", "x * nothing)", "12:56", "TW002"),
        ('M, N, K = tw.sizes("M", "N", "K")\n', "", "7:27", "TW008"),
        ("y = x", "y = z; z = x", "11:13", "TW002"),
        ("y = x", "y = square(X, OUT)", "11:13", "TW007"),
        ("y = x", "y = open('secret').read()", "11:13", "TW002"),
        ("y = x", "import os", "11:9", "TW005"),
        ('target="sm_80"', 'target="sm_12"', "7:12", "TW009"),
    ],
    ids=[
        "undefined name", "sizes declared later", "used before it exists", "recursion", "file access", "import",
        "unknown target",
    ],
)  # fmt: skip
def test_bad_input_gets_a_message_at_its_place_and_the_rest_is_served(
    write: Callable[..., str], tilewright: Run, old: str, new: str, place: str, code: str
) -> None:
    text = HEADER + elementwise("square")
    assert old in text
    healthy = HEADER + elementwise("healthy")
    status, out, _ = tilewright("check", write(text.replace(old, new, 1) + healthy))
    assert status == 1
    assert f"kernels.py:{place}: error[{code}]" in out, out
    assert "✓ proved kernels.py::healthy" in out


# ------------------------------------------------------------------------------------------------ instances


@pytest.mark.usefixtures("fake")
def test_constants_and_target_pick_the_instance(
    write: Callable[..., str], tilewright: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    real = engine.check

    def spy(unit: engine.KernelUnit, **options: object) -> engine.KernelReport:
        assert unit.kernel is not None
        seen.append((unit.kernel.target, unit.kernel.consts[0].value))
        return real(unit, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "check", spy)
    name = write(HEADER + elementwise("square"))
    assert tilewright("check", name, "--const", "BLOCK=256", "--target", "sm_90a")[0] == 0
    assert seen == [("sm_90a", 256)]


def test_a_constant_or_target_that_does_not_exist_is_wrong_usage(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square"))
    status, _, err = tilewright("check", name, "--const", "BN=64")
    assert (status, err) == (
        2,
        "tilewright: --const BN: no kernel has this compile-time argument; there are BLOCK, warps\n",
    )
    status, _, err = tilewright("check", name, "--target", "sm_12")
    assert status == 2
    assert err.startswith("tilewright: unknown target sm_12; there are ")
    status, _, err = tilewright("check", name, "--const", "BLOCK=large")
    assert status == 2
    assert "write NAME=VALUE with a whole number" in err


# ------------------------------------------------------------------------------------------------ other commands


def test_lower_shows_each_stage(write: Callable[..., str], tilewright: Run) -> None:
    name = write(HEADER + elementwise("square") + elementwise("other"))
    expected = {"tree": "function_definition", "ir": "Tiles vars=(i)", "expanded": "tw.programs", "gluon": "@gluon.jit"}
    for stage, text in expected.items():
        status, out, _ = tilewright("lower", f"{name}::square", "--emit", stage)
        assert status == 0
        assert text in out, stage
    assert tilewright("lower", name)[2].startswith("tilewright: kernels.py has several kernels; name one: ")
    assert tilewright("lower", f"{name}::nothing")[2] == (
        "tilewright: kernels.py has no kernel nothing; it has square, other\n"
    )


def test_a_kernel_with_an_error_cannot_be_lowered_but_shows_its_tree(
    write: Callable[..., str], tilewright: Run
) -> None:
    name = write(HEADER + elementwise("broken", value="x * "))
    status, _, err = tilewright("lower", name)
    assert status == 2
    assert err.startswith("tilewright: broken is invalid: ")
    assert tilewright("lower", name, "--emit", "tree")[0] == 0


def test_explain_prints_the_page_of_a_code(tilewright: Run) -> None:
    status, out, _ = tilewright("explain", "tw202", "TW404")
    assert status == 0
    assert out.startswith("# TW202: ")
    assert "# TW404: " in out
    status, out, err = tilewright("explain", "TW999")
    assert (status, out) == (2, "")
    assert "there is no diagnostic 'TW999'; there are TW001, " in err


def test_compiling_without_triton_says_what_to_install(
    write: Callable[..., str], tilewright: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write(HEADER + elementwise("square"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    status, _, err = tilewright("lower", name, "--emit", "ptx")
    assert status == 2
    assert "compiling needs the package triton" in err
    assert "pip install 'tilewright[gpu]'" in err


def test_doctor_names_what_is_missing_and_what_it_is_for(tilewright: Run) -> None:
    status, out, _ = tilewright("doctor")
    assert status == 0
    assert "✓ z3-solver" in out
    if importlib.util.find_spec("torch") is None:
        assert "- torch" in out
        assert "pip install 'tilewright[gpu]'" in out


def test_help_lists_every_command_and_unknown_ones_are_wrong_usage(tilewright: Run) -> None:
    status, out, _ = tilewright("--help")
    assert status == 0
    assert all(f"    {name} " in out for name in COMMANDS)
    assert tilewright("frobnicate")[0] == 2
    assert tilewright()[0] == 2


def test_the_module_runs_as_a_program_and_bears_a_closed_pipe(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(HEADER + elementwise("broken", value="x * ") * 40, encoding="utf-8")
    command = f"{sys.executable} -m tilewright_server check {path} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "error[TW001]" in done.stdout
    assert "Traceback" not in done.stderr


def test_version_is_that_of_the_distribution(tilewright: Run) -> None:
    status, out, _ = tilewright("--version")
    assert status == 0
    assert out.startswith("tilewright 0.")


def test_one_kernel_of_a_file_is_checked(tilewright: Run) -> None:
    examples = Path(__file__).parents[2] / "examples"
    status, out, _ = tilewright("check", f"{examples}/gemm.py::gemm_sm80", f"{examples}/elementwise.py")
    assert status == 0 and "gemm_sm80" in out and "multiply_add" in out and "2 kernels" in out
    status, _, err = tilewright("check", f"{examples}/gemm.py::nothing")
    assert status == 2 and "has no kernel nothing; it has gemm, gemm_sm80" in err


def test_a_file_inside_a_folder_that_is_named_too_is_checked_whole(write: Callable[..., str], tilewright: Run) -> None:
    write(HEADER + elementwise("one"), "folder/a.py")
    status, out, _ = tilewright("check", "folder", "folder/a.py::one")
    assert status == 0 and "1 kernel" in out
