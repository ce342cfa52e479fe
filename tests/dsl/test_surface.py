"""What ordinary Python sees of the language when it imports a file of kernels."""

import importlib.util
import inspect
from pathlib import Path

import pytest

import tilewright as tw

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_import_as_python(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels = [v for v in vars(module).values() if isinstance(v, tw.KernelFunction)]
    assert kernels and all(k.kernel.name == k.__name__ for k in kernels)


FUNCTIONS = [n for n in tw.__all__ if inspect.isfunction(getattr(tw, n))]
CLASSES = [n for n in tw.__all__ if inspect.isclass(getattr(tw, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_of_every_operation_shows_it_in_use(name):
    assert f"tw.{name}" in (getattr(tw, name).__doc__ or ""), f"write an example such as `tw.{name}(…)`, with shapes"


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_and_its_own_methods_have_docstrings(name):
    kind = getattr(tw, name)
    assert kind.__doc__ or name == "Const"
    methods = {n: m for n, m in vars(kind).items() if inspect.isfunction(m) and not n.startswith("_")}
    assert all(m.__doc__ for m in methods.values()), methods


def test_extents_may_be_arithmetic_over_sizes(tmp_path):
    path = tmp_path / "pairs.py"
    path.write_text(
        """import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel
def copy(X: Global[f32, M, N * 2], Y: Global[f32, M, tw.cdiv(N * 4, 2)], Z: Global[f32, M, N], *, B: Const = 128):
    for i in tw.tiles(M):
        for j in range(0, N * 2, B):
            tw.store(Y.tile((i, j), (1, B)), tw.load(X.tile((i, j), (1, B)), other=0.0))
"""
    )
    spec = importlib.util.spec_from_file_location("pairs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.copy.kernel.sizes == ("M", "N")


def test_operations_outside_of_kernels_say_where_they_belong():
    with pytest.raises(tw.KernelBodyError, match=r"body of a @tw\.kernel function"):
        tw.zeros(tw.f32, (4,))
    (m, n) = tw.sizes("M", "N")
    with pytest.raises(tw.KernelBodyError):
        _ = m < n
