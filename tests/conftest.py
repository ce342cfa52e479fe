"""What all tests share: a history of their own; those marked `gpu` are skipped where there is no CUDA device."""

import importlib.util
import os
import tempfile

import pytest

_folder = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Runs that tests do, and the processes that they start, are not written to the history of whoever tests."""
    folder = tempfile.TemporaryDirectory(prefix="tilewright-history-", ignore_cleanup_errors=True)
    config.stash[_folder] = folder
    # Verdicts are those of the code that is tested.
    os.environ["TILEWRIGHT_NO_VERDICTS"] = "1"
    os.environ["TILEWRIGHT_HISTORY"] = os.path.join(folder.name, "history.db")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_folder].cleanup()


def _missing_for_gpu_tests() -> str | None:
    """Return what keeps the GPU tests from running, or None."""
    absent = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if absent:
        return f"needs {' and '.join(absent)}: pip install 'tilewright[gpu]'"
    import torch

    return None if torch.cuda.is_available() else "needs a CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = _missing_for_gpu_tests() if gpu else None
    if reason is not None:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=reason))
