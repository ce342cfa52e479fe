"""The kernels of `generate.py` on a GPU of this machine, at their smaller shapes."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from gpu.generate import JOBS, Job
from tilewright.infer import infer_layouts
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
