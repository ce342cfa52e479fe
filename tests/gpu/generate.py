"""Writes generated modules and the list of their shapes for `run_h200.py`: `python tests/gpu/generate.py FOLDER`.

Hand-built kernels of the tests, so that the lowering is measured apart from front end and expansion, and the examples.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from analysis import kernels as build
from dsl.lower.kernels import (
    biased_gemm,
    column_sums,
    math_functions,
    maxima_of_three_axes,
    rotated,
    scaled_by_tma,
    transposed_plus_sums,
    types_and_casts,
)
from tilewright.expand import expand
from tilewright.frontend import parse_module
from tilewright.infer import infer_layouts
from tilewright.ir import nodes as ir
from tilewright.lower import lower
from tilewright.source import SourceText

GEMM_CHECKS = [
    [4096, 4096, 4096], [8192, 8192, 8192], [513, 1000, 264], [128, 256, 64], [256, 512, 8], [1, 8, 8], [2000, 8, 4096],
    [1, 4096, 1000],
]  # fmt: skip
GEMM_TIMINGS = [[4096, 4096, 4096], [8192, 8192, 8192], [2048, 8192, 8192], [8192, 8192, 16384], [1024, 1024, 8192]]


def assume(kernel: ir.Kernel, *conditions: str) -> ir.Kernel:
    return replace(kernel, assumptions=(*kernel.assumptions, *(ir.Assumption(build.x(c)) for c in conditions)))


# Name, kind of case in `run_h200.py`, kernel, shapes to check, shapes to time.
Job = tuple[str, str, ir.Kernel, list[list[int]], list[list[int]]]
JOBS: tuple[Job, ...] = (
    ("split_gemm", "gemm", build.split_gemm(), GEMM_CHECKS, GEMM_TIMINGS),
    ("split_gemm_128", "gemm", build.split_gemm(4, 128, 128, 64, warps=4), GEMM_CHECKS[2:], [[1024, 1024, 8192]]),
    (
        "cp_async_gemm",
        "gemm",
        assume(build.cp_async_gemm(), "K % 8 == 0", "N % 8 == 0"),
        GEMM_CHECKS,
        [[4096, 4096, 4096]],
    ),
    (
        "softmax",
        "softmax",
        build.softmax(),
        [[4096, 1000], [333, 1024], [1, 1], [77, 513]],
        [[65536, 1000], [65536, 1024]],
    ),
    ("softmax_4k", "softmax", build.softmax(1, 4096, 8), [[333, 4096], [64, 3001]], [[32768, 4096], [32768, 4001]]),
    ("fma", "fma", build.fma(), [[2**26 + 3], [1], [1023], [4096]], [[2**26], [2**26 + 3]]),
    ("math", "math", math_functions(), [[100001], [4096]], []),
    ("rows", "rows", column_sums(), [[333, 1000], [1, 1], [4096, 64]], []),
    ("transposed", "transposed", transposed_plus_sums(), [[64, 64], [33, 64], [64, 5]], []),
    ("types", "types", types_and_casts(), [[5000], [1]], []),
    ("three_axes", "three_axes", maxima_of_three_axes(), [[7, 16, 32], [3, 5, 17]], []),
    ("scaled_by_tma", "scaled", scaled_by_tma(), [[64, 64], [300, 24], [1, 8]], []),
    ("rotated", "rotated", rotated(), [[7 * 256]], []),
    ("biased_gemm", "biased", biased_gemm(), GEMM_CHECKS[2:], []),
    (
        "persistent_cp_async",
        "gemm",
        assume(build.cp_async_gemm(persistent=True), "K % 8 == 0", "N % 8 == 0"),
        GEMM_CHECKS[:4],
        [],
    ),
)


def example(name: str) -> ir.Kernel:
    """An example's kernel, through front end and expansion."""
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py")):
        for unit in parse_module(SourceText(path.read_bytes(), path.name)).units:
            if unit.name == name and unit.kernel is not None:
                return unit.kernel
    raise KeyError(name)


EXAMPLES = (
    ("gemm", "gemm", GEMM_CHECKS, GEMM_TIMINGS[:4]),
    ("gemm_instructions", "gemm", GEMM_CHECKS[:4], GEMM_TIMINGS[:1]),
    ("gemm_sm80", "gemm", GEMM_CHECKS, GEMM_TIMINGS[:1]),
    ("softmax", "softmax", [[4096, 1000], [333, 1024], [1, 1]], [[65536, 1000], [65536, 1024]]),
    ("multiply_add", "fma", [[2**26 + 3], [1]], [[2**26], [2**26 + 3]]),
)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[dict[str, object]] = []
    examples = [(f"example_{n}", kind, expand(example(n)), checks, times) for n, kind, checks, times in EXAMPLES]
    for name, kind, kernel, checks, timings in (*JOBS, *examples):
        lowered = lower(infer_layouts(kernel))
        (folder / f"{name}.py").write_text(lowered.source)
        jobs.append({"name": name, "kind": kind, "checks": checks, "timings": timings})
    (folder / "jobs.json").write_text(json.dumps(jobs, indent=1))


if __name__ == "__main__":
    main()
