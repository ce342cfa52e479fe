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
    """There are none."""


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each part; 1 when a required one is missing."""
    parts = list(examine())
    width = max(len(part.name) for part in parts)
    for part in parts:
        if part.found:
            print(f"✓ {part.name:{width}}  {part.found}")
        elif part.needed_for:
            print(f"- {part.name:{width}}  not found; needed for {part.needed_for}: {part.remedy}")
        else:
            print(f"✗ {part.name:{width}}  missing: {part.remedy}")
    return int(any(not part.found and not part.needed_for for part in parts))


def examine() -> Iterator[Part]:
    """Look at this machine. Starts `nvidia-smi` if it is there; imports neither torch nor triton."""
    yield Part("tilewright", f"{installed_version()} in {Path(__file__).parents[1]}")
    yield Part("python", f"{platform.python_version()} at {sys.executable}")
    for package in REQUIRED:
        yield Part(package, _installed(package), remedy=f"pip install {package}")
    remedy = "pip install 'tilewright[gpu]'" if sys.platform == "linux" else "it exists for Linux only"
    yield Part("triton", _installed("triton"), "lowering to PTX and SASS, and running on a GPU", remedy)
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
