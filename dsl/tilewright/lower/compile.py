"""Compile a lowered kernel ahead of time, without a GPU: in a process of its own, with a time limit and a cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from tilewright.lower.errors import LoweringError
from tilewright.lower.lowered import Lowered
from tilewright.source import NO_SPAN, Span
from tilewright.targets import TARGETS

# Part of every cache key; raise it when the meaning of a stored answer changes.
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of a kernel.

    `registers` a thread (AMD: VGPRs and AGPRs together, of which `accumulators` are AGPRs); `stack` bytes of local
    memory a thread; `spill_stores` and `spill_loads` in bytes (AMD: 4 for each spilled register); `shared` bytes a
    block, with what the compiler adds; `num_warps` of all roles. `ptx` and `sass` for NVIDIA, `sass` annotated with
    lines of the generated module; `amdgcn` for AMD.
    """

    target: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    num_warps: int
    ptx: str = ""
    sass: str = ""
    amdgcn: str = ""
    accumulators: int = 0


def compile_lowered(lowered: Lowered, target: str | None = None, *, timeout: float = 120.0) -> Compiled:
    """Compile for `target` (default: the kernel's own), from the cache when the same text was compiled before.

    Raises LoweringError: the target cannot run the kernel; triton is missing; the compiler refused, with the span of
    the kernel's statement where it says one; it crashed; it took longer than `timeout` seconds; or the result needs
    more shared memory than the target has.
    """
    name = lowered.target if target is None else target
    if name not in TARGETS:
        raise LoweringError(f"unknown target '{name}'; there are {', '.join(TARGETS)}")
    machine = TARGETS[name]
    if not machine.runs(TARGETS[lowered.target]):
        raise LoweringError(f"a kernel for {lowered.target} does not run on {name}")
    request = {
        "source": lowered.source,
        "entry": lowered.entry,
        "arguments": [asdict(a) for a in lowered.launch.arguments],
        "backend": machine.backend,
        "arch": machine.arch,
        "warp_size": machine.warp_size,
        "options": lowered.launch.options,
    }
    if importlib.util.find_spec("triton") is None:
        raise LoweringError("compiling needs triton, which is not installed: pip install 'tilewright[gpu]' (Linux)")
    key = hashlib.sha256(json.dumps([_FORMAT, version("triton"), request], sort_keys=True).encode()).hexdigest()
    path = cache_folder() / "compiled" / key[:2] / f"{key}.json"
    facts = _read(path)
    if facts is None:
        facts = _run(request, lowered, timeout)
        _write(path, facts)
    result = Compiled(target=name, **facts)
    if result.shared > machine.shared_per_block:
        raise LoweringError(
            f"the compiled kernel needs {result.shared} bytes of shared memory, with what the compiler adds for "
            f"reductions and layout conversions; {name} has {machine.shared_per_block} for a block"
        )
    return result


def cache_folder() -> Path:
    """Where compiled kernels are kept: `TILEWRIGHT_CACHE`, else `tilewright` in the platform's cache folder."""
    given = os.environ.get("TILEWRIGHT_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "tilewright"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tilewright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"


def _read(path: Path) -> dict[str, Any] | None:
    """A stored answer; None when there is none, or it was cut short."""
    try:
        stored = cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return None
    return stored


def _write(path: Path, facts: dict[str, Any]) -> None:
    """Store an answer in one step, so that a reader sees all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(file.name, path)
    except OSError:
        # A cache that cannot be written costs time, not the result.
        return


def _run(request: dict[str, Any], lowered: Lowered, timeout: float) -> dict[str, Any]:
    stdout, stderr, status = _process(json.dumps(request), timeout)
    try:
        answer = cast("dict[str, Any]", json.loads(stdout))
    except ValueError:
        line = _located(stderr)
        raise LoweringError(
            f"the compiler crashed (exit status {status}){_said(stderr)}",
            lowered.span_of(line) if line else NO_SPAN,
            stderr,
        ) from None
    if "missing" in answer:
        raise LoweringError(f"compiling needs {answer['missing']}: pip install 'tilewright[gpu]' (Linux)")
    if "error" in answer:
        line = int(answer["line"]) or _located(stderr)
        span: Span = lowered.span_of(line) if line else NO_SPAN
        said = _said(stderr) if "PassManager" in answer["error"] or "RuntimeError" in answer["error"] else ""
        raise LoweringError(
            f"the compiler refused the kernel: {answer['error']}{said}",
            span,
            f"{stderr}\n{answer['traceback']}",
        )
    return cast("dict[str, Any]", answer["facts"])


def _process(request: str, timeout: float) -> tuple[str, str, int]:
    """Standard output, standard error and exit status of a compile process."""
    command = [sys.executable, "-m", "tilewright.lower.compile_process"]
    # The result is kept in our own cache; Triton's would only keep it twice.
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TRITON_CACHE_DIR": folder},
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(request, timeout)
        except subprocess.TimeoutExpired as error:
            raise LoweringError(f"the compiler did not finish within {timeout:g} seconds and was stopped") from error
        finally:
            if process.returncode is None:
                _kill(process)
    return stdout, stderr, process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and what it has started: the assembler runs as a child of the compiler."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _located(stderr: str) -> int:
    """The line of the generated module in the first error that the compiler printed; 0 when it printed none."""
    found = re.search(r"tilewright_generated_kernel\.py\"?:(\d+):\d+\)?: error:", stderr)
    return int(found.group(1)) if found else 0


def _said(stderr: str) -> str:
    found = re.search(r"error: (.*)", stderr)
    return f": {found.group(1).strip()}" if found else ""
