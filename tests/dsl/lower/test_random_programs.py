"""Random programs: inference leaves no disagreement, lowering accepts them, and so does the compiler."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.lower.programs import Program, disagreements
from tilewright.infer import infer_layouts
from tilewright.lower import compile_lowered, lower


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_every_operand_ends_in_the_layout_that_its_operation_needs(seed: int, steps: int) -> None:
    k = infer_layouts(Program(seed).build(steps))
    assert disagreements(k) == []
    assert infer_layouts(k) == k
    ast.parse(lower(k).source)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
@pytest.mark.parametrize("seed", range(12))
def test_the_compiler_accepts_what_lowering_accepts(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert compile_lowered(lower(infer_layouts(Program(seed).build(14))), "sm_80").registers > 0
