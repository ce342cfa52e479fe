"""Kernels over several element types: each call decides by its arrays, and every instance has its own code and verdict."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from reading import read
from tilewright import ArgumentError, bf16, f16
from tilewright_analysis import check_unit
from tilewright_server import configurations, engine, facts

TEXT = """import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

N = tw.sizes("N")
T = tw.element_types(f32, f16, bf16)
U = tw.element_types(f32, f16)


@tw.func
def doubled(x):
    return (x.to(f32) * 2.0).to(T)


@tw.kernel(target="sm_80", warps=4)
def double(X: Global[T, N], Y: Global[T, N], *, B: Const = 128):
    for i in tw.tiles(tw.cdiv(N, B)):
        tw.store(Y.tile((i * B,), (B,)), doubled(tw.load(X.tile((i * B,), (B,)), other=0.0)))


@tw.kernel(target="sm_80", warps=4)
def converted(X: Global[T, N], Y: Global[U, N]):
    for i in tw.tiles(tw.cdiv(N, 128)):
        tw.store(Y.tile((i * 128,), (128,)), tw.load(X.tile((i * 128,), (128,)), other=0.0).to(U))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path: Path = tmp_path_factory.mktemp("kernels") / "generic.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("generic", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_arrays_decide(kernels: ModuleType, dtype: type) -> None:
    x = np.arange(200).astype(dtype)
    y = np.zeros_like(x)
    kernels.double.interpret(x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_bits_stand_for_what_numpy_does_not_have(kernels: ModuleType) -> None:
    x = (np.arange(200, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    y = np.zeros_like(x)
    kernels.double.interpret(x, y)
    twice = y.astype(np.uint32) << 16
    np.testing.assert_array_equal(twice.view(np.float32), 2 * (x.astype(np.uint32) << 16).view(np.float32))


def test_each_name_is_decided_by_its_own_arrays(kernels: ModuleType) -> None:
    x = np.arange(200, dtype=np.float32)
    y = np.zeros(200, dtype=np.float16)
    kernels.converted.interpret(x, y)
    np.testing.assert_array_equal(y, x.astype(np.float16))


def test_other_types_and_arrays_that_differ_are_refused(kernels: ModuleType) -> None:
    x = np.zeros(3)
    with pytest.raises(ArgumentError, match="X has elements of float64; its element type T is one of float32, float16"):
        kernels.double.interpret(x, x)
    with pytest.raises(ArgumentError, match=r"Y has elements float16, expected float32"):
        kernels.double.interpret(np.zeros(3, np.float32), np.zeros(3, np.float16))


def test_a_type_that_is_chosen_stays(kernels: ModuleType) -> None:
    chosen = kernels.double.using(T=f16)
    assert "X: f16[N]" in repr(chosen)
    with pytest.raises(ArgumentError, match="X has elements float32, expected float16"):
        chosen.interpret(np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert kernels.double.using(T=bf16) is kernels.double.using(T=bf16)
    assert "bfloat16" in kernels.double.using(T=bf16).lower().source


def test_every_instance_is_verified_and_has_a_key_of_its_own() -> None:
    unit = read(TEXT).unit("double")
    assert unit is not None
    instances = [unit, unit.with_consts(T="f16"), unit.with_consts(T="bf16")]
    assert len({i.key for i in instances}) == 3
    assert [check_unit(i).verdict for i in instances] == ["proved"] * 3


def test_what_is_made_of_an_instance_keeps_its_types() -> None:
    unit = read(TEXT).unit("double")
    assert unit is not None
    again = unit.with_consts(T="bf16").with_consts(B=256)
    assert again.kernel is not None and again.kernel.params[0].type.dtype == bf16


def test_wrong_names_and_types_are_problems() -> None:
    unit = read(TEXT).unit("double")
    assert unit is not None
    assert "is one of the element types f32, f16, bf16, not i8" in unit.with_consts(T="i8").problems[0].message
    assert "takes no element type for 'B'; it has B, T" in unit.with_consts(B="f16").problems[0].message
    assert "takes no integer for 'T'; it has B, T" in unit.with_consts(T=3).problems[0].message
    assert "has no compile-time argument 'V'" in unit.with_consts(V="f16").problems[0].message


def test_all_configurations_have_all_types() -> None:
    module = read(TEXT)
    names = [c.name for c in configurations.configurations(module.units)]
    assert names[:3] == ["double[T=f32]", "double[T=f16]", "double[T=bf16]"] and len(names) == 3 + 6


def test_the_editor_says_what_it_is() -> None:
    unit = read(TEXT).unit("double")
    assert unit is not None
    found = facts.facts_of(engine.configured(unit, "", {"T": "bf16"}), "T")
    assert found is not None and found.type == "element type bf16"


def test_an_instance_may_have_other_warps() -> None:
    unit = read(TEXT).unit("double")
    assert unit is not None
    eight = engine.configured(unit, "", {"warps": 8})
    assert eight.kernel is not None and eight.kernel.warps == 8 and eight.key != unit.key
    assert "1, 2, 4, 8, 16 or 32 warps, not 3" in unit.with_consts(warps=3).problems[0].message
