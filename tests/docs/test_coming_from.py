"""What the page about Triton says is there: every name of `triton.language`, and recipes that compute what they say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright
from reading import HEADER, read
from tilewright.expand import expand
from tilewright.interpret import run

PAGE = (Path(__file__).parents[2] / "docs" / "language" / "coming-from.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.split("## Every name")[1].splitlines() if line.startswith("| `")][1:]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (Linux)")
def test_every_name_of_triton_language_is_in_the_table_once() -> None:
    import triton.language as tl

    listed = [n for row in ROWS for n in re.findall(r"`(\w+)`", row[1])]
    public = sorted(n for n in dir(tl) if not n.startswith("_"))
    assert sorted(listed) == public


def test_what_stands_for_them_exists() -> None:
    text = " ".join(row[2] for row in ROWS)
    missing = {n for n in re.findall(r"\btw\.(\w+)", text) if not hasattr(tilewright, n)}
    same = [row for row in ROWS if "the same names" in row[2]]
    missing |= {n for row in same for n in re.findall(r"`(\w+)`", row[1]) if not hasattr(tilewright, n)}
    assert not missing and len(same) > 3


def test_recipes_compute_what_they_say() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.split("What has no operation of its own")[1], flags=re.S)[0]
    (unit,) = read(HEADER + code).units
    assert unit.kernel is not None, [p.message for p in unit.problems]
    x = np.random.default_rng(0).permutation(11 * 128).reshape(11, 128).astype(np.float32)
    wide, normal = (np.zeros((11, n), np.float32) for n in (256, 128))
    run(expand(unit.kernel), [x, wide, normal])
    np.testing.assert_array_equal(wide, np.concatenate([x, x], 1))
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1 and np.isfinite(normal).all()
