"""`tilewright doctor`: what is installed here, what works with it, and what to install for the rest."""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tilewright_server import installed_version

SUMMARY = "show what is installed on this machine and what works with it"

REQUIRED = ("tree-sitter", "tree-sitter-python", "z3-solver", "numpy", "pygls", "lsprotocol", "rich")


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that Tilewright can use. `needed_for` is empty for what must be there."""

    name: str
    found: str
    needed_for: str = ""
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare whether runners are asked."""
    parser.add_argument("--no-runners", action="store_true", help="do not connect to the runners of pyproject.toml")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each part and runner; 1 when a required part is missing or a runner cannot run kernels."""
    parts = list(examine())
    width = max(len(part.name) for part in parts)
    for part in parts:
        if part.found:
            print(f"✓ {part.name:{width}}  {part.found}")
        elif part.needed_for:
            print(f"- {part.name:{width}}  not found; needed for {part.needed_for}: {part.remedy}")
        else:
            print(f"✗ {part.name:{width}}  missing: {part.remedy}")
    broken = not arguments.no_runners and _print_runners()
    return int(broken or any(not part.found and not part.needed_for for part in parts))


def _print_runners() -> bool:
    """Greet each runner of the project; true when one cannot run kernels at all."""
    from tilewright_agent.runner_check import examine as examine_runners
    from tilewright_agent.runner_config import RunnerConfigError, find_config

    try:
        config = find_config(Path.cwd())
    except RunnerConfigError as error:
        print(f"✗ runners: {error}")
        return True
    if not config.commands:
        return False
    print(f"\nrunners of {config.file}:")
    states = examine_runners(config.commands)
    width = max(len(state.name) for state in states)
    for state in states:
        if state.found:
            print(f"{'-' if state.problem else '✓'} {state.name:{width}}  {state.found}")
        if state.problem:
            lead = "  " + " " * width if state.found else f"✗ {state.name:{width}}"
            print(f"{lead}  {state.problem}")
            print(f"  {'':{width}}  {state.advice}")
    return any(not state.found for state in states)


def examine() -> Iterator[Part]:
    """Look at this machine. Starts `nvidia-smi` if it is there; imports neither torch nor triton."""
    yield Part("tilewright", f"{installed_version()} in {Path(__file__).parents[1]}")
    yield Part("python", f"{platform.python_version()} at {sys.executable}")
    for package in REQUIRED:
        yield Part(package, _installed(package), remedy=f"pip install {package}")
    remedy = "pip install 'tilewright[gpu]'" if sys.platform == "linux" else "it exists for Linux only"
    triton = _installed("triton")
    if triton and not triton.startswith("3.6."):
        # Gluon's interface moves between releases.
        remedy = f"triton {triton} is installed; generated code needs 3.6: pip install 'triton>=3.6,<3.7'"
        triton = ""
    yield Part("triton", triton, "lowering to PTX and SASS, and running on a GPU", remedy)
    yield Part("ptxas", _ptxas(), "registers and spills of compiled kernels", "it comes with triton, or with CUDA")
    yield Part("torch", _installed("torch"), "running on a GPU", remedy)
    yield Part(
        "gpu",
        _gpu(),
        "real timings",
        "use a runner on another machine, such as --runner 'ssh HOST tilewright-worker'; "
        "without one, kernels run on the CPU interpreter",
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _ptxas() -> str:
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
        if bundled.exists():
            return str(bundled)
    return shutil.which("ptxas") or ""


def _gpu() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    query = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else ""
