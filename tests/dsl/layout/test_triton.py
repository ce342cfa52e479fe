"""Triton as the oracle, asked in a process of its own because invalid questions abort it."""

import importlib.util
import itertools
import json
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.layout import (
    Blocked,
    DistributedLayout,
    DotOperand,
    LayoutError,
    Mfma,
    MmaV2,
    SharedLayout,
    Slice,
    Swizzled,
    SwizzledShared,
    Wgmma,
    bank_conflicts,
    bases_of,
    default_swizzle,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (no wheel for this system)"
)

SHAPES = [(64, 128), (16, 16), (128, 64), (32, 8), (8, 8), (256, 256)]
TRANSFERS = [(64, 32), (64, 64), (128, 64), (16, 256)]
BLOCKED = [
    Blocked((1, 8), (4, 8), (4, 1), (1, 0)),
    Blocked((1, 4), (2, 16), (2, 2), (1, 0)),
    Blocked((2, 2), (8, 4), (2, 2), (0, 1)),
    Blocked((1, 1), (32, 1), (4, 1), (1, 0)),
    Blocked((1, 1), (1, 32), (1, 4), (1, 0)),
]
MMA = [
    MmaV2((2, 2)),
    MmaV2((1, 8)),
    DotOperand(0, MmaV2((2, 2)), 2),
    DotOperand(1, MmaV2((2, 2)), 2),
    DotOperand(1, MmaV2((4, 2)), 4),
    DotOperand(0, MmaV2((1, 4)), 1),
    DotOperand(1, MmaV2((1, 4)), 1),
]
WGMMA = [Wgmma(warps, (16, columns, 16)) for columns in (8, 64, 256) for warps in ((4, 1), (8, 1), (4, 2))]


MFMA = [
    Mfma((2, 2), (32, 32, 8), 3),
    Mfma((1, 4), (16, 16, 16), 3),
    Mfma((4, 1), (32, 32, 16), 4),
    Mfma((2, 4), (16, 16, 32), 4),
    Mfma((1, 1), (32, 32, 2), 3),
]
BLOCKED_64 = [
    Blocked((1, 8), (16, 4), (4, 1), (1, 0)),
    Blocked((1, 4), (4, 16), (2, 2), (1, 0)),
    Blocked((2, 2), (8, 8), (2, 2), (0, 1)),
]


def ask(questions: list[dict[str, Any]]) -> list[Any]:
    oracle = Path(__file__).with_name("triton_oracle.py")
    process = subprocess.run(
        [sys.executable, str(oracle)], input=json.dumps(questions), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


def test_distributed_layouts_have_tritons_bases() -> None:
    cases: list[tuple[DistributedLayout, tuple[int, ...]]] = [
        *itertools.product([*BLOCKED, *MMA, *WGMMA, *(DotOperand(0, w, 2) for w in WGMMA)], SHAPES),
        *(
            (Slice(dim, parent), (shape[1 - dim],))
            for parent in (BLOCKED[0], MMA[0], MMA[2], WGMMA[3])
            for shape in SHAPES
            for dim in (0, 1)
        ),
        (Slice(1, Blocked((1, 2, 4), (2, 4, 4), (2, 2, 1), (2, 1, 0))), (16, 64)),
        (Blocked((1, 2, 4), (2, 4, 4), (2, 2, 1), (1, 2, 0)), (16, 32, 64)),
    ]
    answers = ask(
        [{"kind": "linear", "layout": layout.gluon(), "shape": shape, "warps": layout.warps} for layout, shape in cases]
    )
    for (layout, shape), answer in zip(cases, answers, strict=True):
        ours = {name: [list(vector) for vector in vectors] for name, vectors in bases_of(layout.linear(shape)).items()}
        assert ours == answer, (str(layout), shape)


def test_layouts_of_64_lanes_have_tritons_bases() -> None:
    operands = [DotOperand(i, m, w) for m in MFMA for i in (0, 1) for w in (1, 4, 8)]
    slices = [Slice(dim, parent) for parent in (BLOCKED_64[0], MFMA[0], MFMA[1], operands[1]) for dim in (0, 1)]
    cases: list[tuple[DistributedLayout, tuple[int, ...]]] = [
        *itertools.product([*BLOCKED_64, *MFMA, *operands], SHAPES),
        *((layout, (shape[1 - layout.dim],)) for layout in slices for shape in SHAPES),
    ]
    answers = ask(
        [
            {
                "kind": "linear",
                "layout": layout.gluon(),
                "shape": shape,
                "warps": layout.warps,
                "target": "gfx950" if "Layout(4" in layout.gluon() else "gfx942",
            }
            for layout, shape in cases
        ]
    )
    for (layout, shape), answer in zip(cases, answers, strict=True):
        ours = {name: [list(vector) for vector in vectors] for name, vectors in bases_of(layout.linear(shape)).items()}
        assert layout.warp_size == 64 and len(ours["lane"]) == 6
        assert ours == answer, (str(layout), shape)


def test_shared_layouts_have_tritons_offsets() -> None:
    cases: list[tuple[SharedLayout, tuple[int, ...], int]] = []
    for shape in [(64, 128), (16, 64), (32, 32), (512, 64), (64, 512), (512, 512), (8, 16), (2, 8, 64), (4, 4, 128)]:
        rank = len(shape)
        for bits in (8, 16, 32):
            swizzles = itertools.product((0, 32, 64, 128), (False, True))
            candidates: list[SharedLayout] = [Swizzled(width, bits, rank, turned) for width, turned in swizzles]
            candidates.append(default_swizzle(shape, bits))
            order = tuple(reversed(range(rank)))
            turned = (order[0], *order[:0:-1])
            candidates += [
                SwizzledShared(8, 1, 8, order),
                SwizzledShared(4, 2, 4, turned),
                SwizzledShared(1, 1, 1, order),
            ]
            cases += [(layout, shape, bits) for layout in candidates if fits(layout, shape)]
    answers = ask(
        [{"kind": "shared", "layout": layout.gluon(), "shape": shape, "bits": bits} for layout, shape, bits in cases]
    )
    assert len(cases) > 250
    for (layout, shape, _), bases in zip(cases, answers, strict=True):
        elements = np.zeros(1, dtype=np.int64)
        for (basis,) in bases:
            elements = np.concatenate([elements, elements ^ basis])
        # Triton maps offset -> row-major element; ours maps coordinates -> offset.
        linear = layout.linear(shape)
        row_major = linear.table.reshape(shape, order="F").reshape(-1)
        assert (row_major[elements] == np.arange(prod(shape))).all(), (str(layout), shape)


def test_bank_conflicts_are_tritons() -> None:
    cases: list[tuple[DistributedLayout, SharedLayout, tuple[int, int], int]] = []
    for shape, bits in itertools.product(TRANSFERS, (8, 16, 32)):
        shared: list[SharedLayout] = [Swizzled(width, bits) for width in (0, 32, 64, 128)]
        shared += [Swizzled(128, bits, 2, True), SwizzledShared(1, 1, 1), SwizzledShared(8, 1, 8)]
        shared += [SwizzledShared(4, 2, 4), SwizzledShared(8, 1, 4, (0, 1))]
        for layout, buffer in itertools.product([*BLOCKED, *MMA, WGMMA[3], WGMMA[6]], shared):
            if layout.warps == 4 and fits(buffer, shape):
                cases.append((layout, buffer, shape, bits))
    answers = ask(
        [
            {"kind": "conflicts", "layout": layout.gluon(), "shared": buffer.gluon(), "shape": shape, "bits": bits}
            for layout, buffer, shape, bits in cases
        ]
    )
    assert len(cases) > 900
    assert any(answers)
    for (layout, buffer, shape, bits), answer in zip(cases, answers, strict=True):
        ours = bank_conflicts(layout.linear(shape), buffer.linear(shape), bits)
        assert ours.excess == answer, (str(layout), str(buffer), shape, bits)


def fits(layout: SharedLayout, shape: tuple[int, ...]) -> bool:
    try:
        layout.linear(shape)
    except LayoutError:
        return False
    return True
