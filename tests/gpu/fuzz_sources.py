"""Random kernels on a GPU against the interpreter: `python tests/gpu/fuzz_sources.py [FIRST LAST]`, a line a failure.

Needs torch, triton, NumPy and tree-sitter. Each kernel runs in a process of its own, for a wrong one may take the
device's context with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
_SECONDS = 120


def one(seed: int) -> list[str]:
    """What is wrong with one kernel, a line each."""
    import torch  # pyright: ignore[reportMissingImports]

    from gpu.run_h200 import load_module
    from gpu.sources import Source, differences
    from reading import read
    from tilewright.expand import expand
    from tilewright.interpret import run
    from tilewright.lower import lower

    major, minor = torch.cuda.get_device_capability()
    source = Source(seed, "sm_90a" if (major, minor) == (9, 0) and seed % 2 else "sm_80")
    (unit,) = read(source.text).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    kernel, wanted = expand(unit.kernel), source.arguments()
    run(kernel, wanted)
    given = [a if isinstance(a, int | float) else torch.tensor(a, device="cuda") for a in source.arguments()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(lower(kernel).source)
        load_module(path).launch(*given)
        torch.cuda.synchronize()
    found = [a if isinstance(a, int | float) else a.cpu().numpy() for a in given]
    return differences(source, wanted, found)


def _apart(seed: int) -> list[str]:
    """`one` in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, str(HERE), "--one", str(seed)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"seed {seed}: not done after {_SECONDS} s"]
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        return [f"seed {seed}: {last[-1][:300]}"]
    return done.stdout.splitlines()


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print("\n".join(one(int(sys.argv[2]))), end="")
        return
    seeds = range(*map(int, sys.argv[1:3] or ("60",)))
    with ThreadPoolExecutor(8) as pool:
        lines = [line for found in pool.map(_apart, seeds) for line in found]
    print(*lines, f"{len(seeds)} kernels, {len({line.split(':')[0].split(',')[0] for line in lines})} wrong", sep="\n")


if __name__ == "__main__":
    main()
