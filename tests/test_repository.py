"""The shape of the repository: its top level, its packages, and what no tracked file may contain."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = {".ci", "agent", "analysis", "docs", "dsl", "examples", "server", "tests", "vscode-client"}
FILES = {
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "pyproject.toml",
}
PACKAGES = (
    "dsl/tilewright",
    "dsl/tilewright_reference",
    "analysis/tilewright_analysis",
    "agent/tilewright_agent",
    "server/tilewright_server",
)
# Written so that this file does not match itself.
MACHINE_PATH = re.compile(r"/(?:work|farm|root)/|/tmp/(?:bash|brief|venv)")
MAX_LINES = 450


def tracked() -> list[str]:
    """Return the tracked paths, relative to the root, without those deleted in the working tree."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in listing.stdout.split("\0") if path and (ROOT / path).exists()]


def machine_paths(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if MACHINE_PATH.search(line)]


def test_top_level_is_the_documented_one() -> None:
    paths = tracked()
    assert {path.partition("/")[0] for path in paths if "/" in path} == FOLDERS
    assert {path for path in paths if "/" not in path} == FILES


def test_no_path_of_a_machine_is_tracked() -> None:
    found: list[str] = []
    for path in tracked():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture, or a test input that is not UTF-8 on purpose
        found += [f"{path}: {line[:160]}" for line in machine_paths(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["/".join(("", "work", "x.py")), "/".join(("", "root", ".cache"))])
def test_a_machine_path_is_seen(folder: str) -> None:
    assert machine_paths(f"cache = '{folder}'")


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_typed_and_in_the_wheel(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert (ROOT / package / "__init__.py").is_file()
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert package in build["targets"]["wheel"]["packages"]
    assert package.partition("/")[0] in build["dev-mode-dirs"]


def test_modules_have_one_subject() -> None:
    long = [
        f"{path}: {count} lines"
        for path in tracked()
        if path.endswith((".py", ".ts"))
        and (count := len((ROOT / path).read_bytes().splitlines())) > MAX_LINES
        and not path.startswith("tests/specs/")
    ]
    assert not long, f"more than {MAX_LINES} lines; look for a second subject:\n" + "\n".join(long)


def test_lock_file_names_only_the_public_registry() -> None:
    text = (ROOT / "vscode-client" / "package-lock.json").read_text(encoding="utf-8")
    hosts = set(re.findall(r'"resolved": "https?://([^/"]+)', text))
    assert hosts <= {"registry.npmjs.org"}


def test_scripts_are_executable() -> None:
    scripts = [path for path in tracked() if path.endswith(".sh") or path == ".ci/run"]
    assert ".ci/run" in scripts
    assert not [path for path in scripts if not (ROOT / path).stat().st_mode & 0o100]


def test_links_of_the_documents_lead_somewhere() -> None:
    dead: list[str] = []
    for path in tracked():
        if not path.endswith(".md") or path.startswith("tests/specs/"):
            continue
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", (ROOT / path).read_text(encoding="utf-8")):
            if "://" not in target and not (ROOT / path).parent.joinpath(target).exists():
                dead.append(f"{path}: {target}")
    assert not dead, "\n".join(dead)
