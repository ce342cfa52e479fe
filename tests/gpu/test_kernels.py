"""The kernels of `generate.py` on a GPU of this machine, at their smaller shapes."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from dsl.lower.programs import Program
from gpu.generate import JOBS, Job
from tilewright.infer import infer_layouts
from tilewright.interpret import run
from tilewright.lower import lower

# Elements of the largest operand; larger shapes are for the timed run.
LARGEST = 2**23


@pytest.mark.gpu
@pytest.mark.parametrize("job", JOBS, ids=[job[0] for job in JOBS])
def test_results_agree_with_torch(job: Job, tmp_path: Path) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    from gpu import run_h200

    name, kind, kernel, shapes, _ = job
    if kernel.target == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs an sm_90 device")
    path = tmp_path / f"{name}.py"
    path.write_text(lower(infer_layouts(kernel)).source)
    module = run_h200.load_module(path)
    for shape in shapes:
        if prod(shape) <= LARGEST:
            result = run_h200.check(module, kind, shape)
            assert result["ok"], result


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_agree_with_the_interpreter(seed: int, tmp_path: Path) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    from gpu import run_h200

    program = Program(seed)
    kernel = infer_layouts(program.build(14))
    values = np.random.default_rng(seed)
    # An odd row length unless the kernel assumes one.
    columns = 64 if kernel.assumptions else 61
    shapes = ((29, columns), (columns,), (64 * len(program.values()), columns), (64 * len(program.values()),))
    arrays = [values.standard_normal(shape).astype(np.float32) / 2 for shape in shapes]
    tensors = [torch.tensor(a, device="cuda") for a in arrays]
    run(kernel, arrays)
    path = tmp_path / "program.py"
    path.write_text(lower(kernel).source)
    run_h200.load_module(path).launch(*tensors)
    for got, expected in zip(tensors[2:], arrays[2:], strict=True):
        # Half-width operands of matrix products, and sums in another order.
        np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=2e-3, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(60))
def test_random_sources_agree_with_the_interpreter(seed: int) -> None:
    from gpu import fuzz_sources

    assert not fuzz_sources.one(seed)
