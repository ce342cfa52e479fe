"""What a hover says about the coordinates that a tile carries."""

from pathlib import Path

import pytest

from reading import HEADER, read
from tilewright.expand import expand
from tilewright_analysis.tags import coordinate_tags

EXAMPLES = Path(__file__).parents[2] / "examples"


def tags(text: str, explicit: bool = False) -> dict[str, str]:
    kernel = read(text).units[0].kernel
    assert kernel is not None
    return {n: str(t) for n, t in coordinate_tags(expand(kernel) if explicit else kernel).items()}


@pytest.mark.parametrize("explicit", [False, True])
def test_a_product_carries_rows_of_a_and_columns_of_b(explicit):
    found = tags((EXAMPLES / "gemm.py").read_text(), explicit)
    assert found["acc"] == "element [i, j] carries M = pm * 128 + i, N = pn * 256 + j, contracted over K"
    if not explicit:
        assert found["a"] == "element [i, j] carries M = pm * 128 + i, K = k + j"


def test_reductions_contract_and_elementwise_operations_keep():
    found = tags((EXAMPLES / "softmax.py").read_text())
    assert found["e"].startswith("element [i, j] carries M = row + i, N = 0 + j") or "N = j" in found["e"]


def test_where_tags_are_lost_is_said():
    found = tags(
        HEADER
        + """
@tw.kernel
def k(A: Global[f32, M, N], B: Global[f32, M, N]):
    for i in tw.tiles(M):
        x = tw.load(A.tile((i, 0), (1, 128)), other=0.0)
        y = tw.load(A.tile((i, 128), (1, 128)), other=0.0)
        z = x + y
        tw.store(B.tile((i, 0), (1, 128)), z)
"""
    )
    assert "lost along axis 1, where operands at 0 and 128 meet" in found["z"]


def test_tags_of_ones_own_are_shown():
    found = tags(
        HEADER
        + """
@tw.kernel
def k(A: Global[f32, M, N], B: Global[f32, M, N]):
    for p in tw.tiles(M):
        x = tw.load(A.tile((p, 0), (1, 128)), other=0.0)
        x = tw.tag(x, HALF=lambda row, column: column // 64)
        tw.store(B.tile((p, 0), (1, 128)), x)
"""
    )
    assert found["x"] == "element [i, j] carries M = p + i, N = j, HALF = j // 64"
