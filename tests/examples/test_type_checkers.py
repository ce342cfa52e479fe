"""The examples under Python's own tools: as written, and with every tensor in the `Annotated` spelling."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tilewright.frontend import parse_module
from tilewright.printer import module_source
from tilewright.source import SourceText

ROOT = Path(__file__).parents[2]
DSL = str(ROOT / "dsl")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def annotated(text: str) -> str:
    """`Global[f16, M, K]` as `Annotated[Global, f16, M, K]`."""
    spelled, count = re.subn(r"\bGlobal\[", "Annotated[Global, ", text)
    assert count, "an example without tensors"
    return spelled.replace("import tilewright as tw", "from typing import Annotated\n\nimport tilewright as tw", 1)


# Each in a folder of its own, with the defaults of the tool: what a person sees who opens a kernel file.
TOOLS: dict[str, Callable[[Path], Sequence[str]]] = {
    "pyright": lambda folder: ("pyright", "-p", str(folder)),
    "ruff": lambda folder: ("ruff", "check", "--isolated", "--no-cache", str(folder)),
    "pyrefly": lambda folder: ("pyrefly", "check", "--search-path", DSL, *map(str, folder.glob("*.py"))),
    "mypy": lambda folder: ("mypy", "--no-incremental", "--follow-imports=silent", *map(str, folder.glob("*.py"))),
    "ty": lambda folder: ("ty", "check", "--python", sys.prefix, "--extra-search-path", DSL, str(folder)),
}
AS_WRITTEN = ("pyright", "ruff", "pyrefly")
by_tool = pytest.mark.parametrize(
    "tool",
    [
        pytest.param(t, marks=pytest.mark.skipif(find_spec(t) is None, reason=f"needs {t} (the extra dev)"))
        for t in TOOLS
    ],
)


def complaints(tool: str, folder: Path) -> str:
    """What a tool says against the files of a folder; empty when it is content."""
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [DSL]}))
    name, *arguments = TOOLS[tool](folder)
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    assert program is not None, f"{name} is installed but has no program beside {sys.executable}"
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": DSL},
        timeout=250,
    )
    return done.stdout + done.stderr if done.returncode else ""


@by_tool
def test_examples_pass(tool: str, tmp_path: Path) -> None:
    for path in EXAMPLES:
        text = path.read_text()
        (tmp_path / path.name).write_text(text if tool in AS_WRITTEN else annotated(text))
    assert complaints(tool, tmp_path) == ""


WRONG = {
    "pyright": "x = tw.load(3)",
    "pyrefly": "x = tw.load(3)",
    "mypy": "x = tw.load(3)",
    "ty": "x = tw.load(3)",
    "ruff": "x = tw.load(undefined)",
}


@by_tool
def test_a_mistake_is_found(tool: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(f"import tilewright as tw\n\n{WRONG[tool]}\n")
    assert complaints(tool, tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_both_spellings_are_the_same_kernels(path: Path) -> None:
    text = path.read_text()
    first, second = (parse_module(SourceText.of(t)) for t in (text, annotated(text)))
    assert not second.all_problems
    for one, other in zip(first.units, second.units, strict=True):
        assert one.kernel is not None and other.kernel is not None
        assert module_source(one.kernel) == module_source(other.kernel)
