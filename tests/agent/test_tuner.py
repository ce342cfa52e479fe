"""`kernel.tune(…)` in Python: the winner as a kernel, runners by name, and what cannot be tuned."""

from __future__ import annotations

import importlib
import importlib.util
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tilewright as tw
from agent.support import HEAD
from agent.test_tune import SIZES, SPACE, gpu
from tilewright import function

ENTRIES = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the project declares, also where it was installed before it declared that."""

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in ENTRIES.get(group, {}).items()]

    monkeypatch.setattr(function, "entry_points", entry_points)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "doubling.py"
    path.write_text(HEAD + SPACE)
    spec = importlib.util.spec_from_file_location("doubling", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made


def test_declared_entry_points_exist() -> None:
    for group, entries in ENTRIES.items():
        for value in entries.values():
            name, _, attribute = value.partition(":")
            assert callable(getattr(importlib.import_module(name), attribute)), group


def test_the_winner_is_a_kernel_with_the_best_values(module: ModuleType, tmp_path: Path) -> None:
    double: tw.KernelFunction = module.double
    steps: list[tuple[int, int]] = []
    tuned = double.tune(
        SIZES, runners=gpu(tmp_path), limit=8, progress=lambda done, total, _: steps.append((done, total))
    )
    assert {c.name: c.value for c in tuned.kernel.consts}["BN"] == 256
    assert {c.name: c.value for c in double.kernel.consts}["BN"] == 128, "the kernel itself stays as it is"
    assert steps[-1] == (8, 8) and "BN = 256" in tuned.report.summary
    assert tuned.check().verdict == "proved"
    assert {c.name: c.value for c in tuned.using(ROWS=2).kernel.consts}["BN"] == 256
    x, out = np.ones((3, 300), np.float32), np.zeros((3, 300), np.float32)
    tuned.interpret(x, out)
    np.testing.assert_array_equal(out, 2)


def test_runners_have_names_and_several_sizes_count(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.tilewright.runners]\nbox = '''{gpu(tmp_path)}'''\n")
    tuned = module.double.tune([{"M": 512}, {"M": 1024, "N": 4096}], runners=["box"], limit=4)
    assert len(tuned.report.variants) == 4
    assert tuned.report.device.startswith("NVIDIA H200")


def test_a_kernel_that_is_best_as_written_comes_back_as_written(module: ModuleType, tmp_path: Path) -> None:
    tuned = module.double.using(BN=512).tune(SIZES, runners=gpu(tmp_path), limit=1)
    assert tuned.kernel == module.double.kernel
    assert tuned.report.proposed == tuned.report.original


@pytest.mark.parametrize(
    ("sizes", "options", "kind", "message"),
    [
        ({"Q": 4}, {}, ValueError, "double has no size Q; it has M, N"),
        ({"M": 0}, {}, ValueError, "the size M is a whole number from 1 on"),
        ({}, {"limit": 0}, ValueError, "limit = 0: at least 1 is tried"),
        ({}, {"runners": "nobody"}, ValueError, "there is no runner and no program 'nobody'"),
        ({}, {"runners": "false with an argument"}, ConnectionError, "false"),
    ],
)
def test_what_cannot_be_tuned_says_why(
    module: ModuleType, sizes: dict[str, int], options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        module.double.tune(sizes, **options)


def test_nothing_proved_is_no_winner(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        HEAD + SPACE.replace("(i * ROWS, j * BN), (ROWS, BN)), x +", "(i * ROWS + 1, j * BN), (ROWS, BN)), x +")
    )
    spec = importlib.util.spec_from_file_location("wrong", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    with pytest.raises(ValueError, match="No configuration of `double` is proved and right: TW"):
        made.double.tune(SIZES, runners=gpu(tmp_path), limit=1)


def test_without_a_tuner_the_kernel_says_what_is_missing(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "entry_points", lambda *, group: [])
    with pytest.raises(tw.KernelError, match="no tuner is installed; the package tilewright_agent provides it"):
        module.double.tune()
