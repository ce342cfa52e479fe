"""The process that compiles: `python -m tilewright.lower.compile_process`, a JSON request in, a JSON answer out.

Wrong Gluon can abort the compiler, so it runs here and not in the caller's process. Nothing but the answer goes to
standard output; what the compiler prints goes to standard error.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

MODULE = "tilewright_generated_kernel.py"


def compile_module(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one generated module.

    Args:
        request: `source`, `entry`, `arguments` (name, type, divisibility), `backend` ("cuda" or "hip"), `arch`
            (compute capability times ten, or the name of the AMD architecture), `warp_size`, `options` (num_warps,
            maxnreg or waves_per_eu).

    Returns:
        `ptx` and `sass`, or `amdgcn`; `registers`, `stack` (bytes of spilled registers and local arrays a thread),
        `spill_stores` and `spill_loads` (bytes), `shared` (bytes a block), `num_warps` (all roles).
    """
    triton: Any = import_module("triton")
    targets: Any = import_module("triton.backends.compiler")
    runtime: Any = import_module("triton.experimental.gluon._runtime")
    source: str = request["source"]
    # The compiler asks `inspect` for the text of each function; there is no file to find it in.
    linecache.cache[MODULE] = (len(source), None, source.splitlines(keepends=True), MODULE)
    namespace: dict[str, Any] = {"__name__": "tilewright_generated_kernel"}
    exec(compile(source, MODULE, "exec"), namespace)
    signature = {a["name"]: a["type"] for a in request["arguments"]}
    attributes = {
        (i,): [["tt.divisibility", a["divisibility"]]]
        for i, a in enumerate(request["arguments"])
        if a["divisibility"] > 1 and a["kind"] != "descriptor"
    }
    kernel: Any = triton.compile(
        runtime.GluonASTSource(namespace[request["entry"]], signature, {}, attributes),
        target=targets.GPUTarget(request["backend"], request["arch"], request["warp_size"]),
        options=request["options"],
    )
    facts: dict[str, Any] = {
        "shared": int(kernel.metadata.shared),
        "num_warps": int(kernel.metadata.num_warps),
    }
    if request["backend"] == "hip":
        return facts | _amd_facts(kernel.asm["amdgcn"])
    facts["ptx"] = kernel.asm["ptx"]
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    return facts | _binary_facts(kernel.asm["cubin"], kernel.asm["ptx"], tools, request["arch"])


def _binary_facts(cubin: bytes, ptx: str, tools: Path, arch: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        binary, text = Path(folder) / "kernel.cubin", Path(folder) / "kernel.ptx"
        binary.write_bytes(cubin)
        text.write_text(ptx)
        usage = _run(tools / "cuobjdump", "--dump-resource-usage", str(binary))
        sass = _run(tools / "nvdisasm", "-gi", "-c", str(binary))
        ptxas = tools / ("ptxas-blackwell" if arch >= 100 else "ptxas")
        name = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
        verbose = _run(ptxas, "-v", f"-arch={name.group(1) if name else f'sm_{arch}'}", str(text), "-o", os.devnull)
    return {
        "sass": sass,
        "registers": _number(r"REG:(\d+)", usage),
        "stack": _number(r"STACK:(\d+)", usage),
        "spill_stores": _number(r"(\d+) bytes spill stores", verbose),
        "spill_loads": _number(r"(\d+) bytes spill loads", verbose),
    }


def _amd_facts(assembly: str) -> dict[str, Any]:
    """What LLVM writes into the assembly: comments behind the code, and the metadata of the code object."""
    spilled = 4 * _number(r"\.vgpr_spill_count: +(\d+)", assembly)
    return {
        "amdgcn": assembly,
        # VGPRs and AGPRs share one file on CDNA; this is what a lane takes of it.
        "registers": _number(r"; TotalNumVgprs: (\d+)", assembly),
        "accumulators": _number(r"; NumAgprs: (\d+)", assembly),
        "stack": _number(r"; ScratchSize: (\d+)", assembly),
        "spill_stores": spilled,
        "spill_loads": spilled,
    }


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"no {pattern!r} in the compiler's report:\n{text}")
    return int(found.group(1))


def _reason(error: BaseException) -> str:
    """What the innermost error says, without the source text that Triton quotes around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {getattr(error, 'error_message', None) or error}"


def _line_of(error: BaseException) -> int:
    """The line of the generated module where the error arose; 0 when it is nowhere in it."""
    seen: BaseException | None = error
    line = 0
    while seen is not None:
        node = getattr(seen, "node", None)
        if getattr(node, "lineno", 0) and getattr(seen, "src", None) is not None:
            # Lines of a CompilationError count within the function's own source text.
            begin = _find(seen.src)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownArgumentType]
            line = begin + node.lineno - 1 if begin else line  # pyright: ignore[reportOptionalMemberAccess]
        seen = seen.__cause__
    return line


def _find(text: str) -> int:
    at = "".join(linecache.getlines(MODULE)).find(text)
    return "".join(linecache.getlines(MODULE)).count("\n", 0, at) + 1 if at >= 0 else 0


def main() -> None:
    """Read a request, answer, and leave."""
    request: dict[str, Any] = json.load(sys.stdin)
    # Keep the way to the caller, and send everything that the compiler prints to standard error.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        triton: Any = import_module("triton")
    except ImportError:
        result: dict[str, Any] = {"missing": "triton"}
    else:
        try:
            result = {"facts": compile_module(request), "triton": triton.__version__}
        except Exception as error:
            result = {
                "error": _reason(error),
                "line": _line_of(error),
                "traceback": traceback.format_exc(),
            }
    json.dump(result, answer)
    answer.close()


if __name__ == "__main__":
    main()
