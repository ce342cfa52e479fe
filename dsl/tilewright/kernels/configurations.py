"""Which configuration of a kernel is used for which sizes: from measurements of a card, kept in `tuned/`.

A table holds for each tile shape of a matrix product what it costs, fitted to measured times: one step along K of one
wave of tiles, one wave, and one launch. Its time for any sizes follows, and the least time decides. Sizes that were
measured themselves have the configuration that was fastest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

PROCESSORS = 132
"""Multiprocessors of the card that was measured, an H200."""

HALVES = ("f16", "bf16")
FLOATS = ("f32", *HALVES)


@dataclass(frozen=True, slots=True)
class Tile:
    """A configuration of a matrix product, with its costs in nanoseconds: a step of a wave, a wave, a launch."""

    values: tuple[tuple[str, int], ...]
    step: float
    wave: float
    launch: float

    def time(self, m: int, n: int, k: int, processors: int = PROCESSORS) -> float:
        """Nanoseconds that a product of m by k and k by n takes on a card with that many multiprocessors."""
        own = dict(self.values)
        tiles = -(-m // own["BM"]) * -(-n // own["BN"])
        waves = -(-tiles // processors)
        return waves * (-(-k // own["BK"]) * self.step + self.wave) + self.launch


@lru_cache(maxsize=4096)
def of_product(m: int, n: int, k: int, processors: int = PROCESSORS) -> Mapping[str, int]:
    """Compile-time values and warps for a product of m by k and k by n elements of 16 bits."""
    found = _table()[1].get((m, n, k)) if processors == PROCESSORS else None
    return dict(found if found is not None else min(tiles(), key=lambda t: t.time(m, n, k, processors)).values)


def tiles() -> tuple[Tile, ...]:
    """All configurations that `of_product` chooses from."""
    return _table()[0]


def of_rows(operation: str, columns: int) -> Mapping[str, int]:
    """Rows and columns of a tile, and warps, for operations on rows in one tile: what was fastest on an H200."""
    width = 1 << max(5, (columns - 1).bit_length())
    if width <= 512:
        return {"R": 2048 // width, "BN": width, "warps": 4}
    several, warps = _ROWS[operation][width]
    return {"R": several, "BN": width, "warps": warps}


def of_cross_entropy(columns: int) -> Mapping[str, int]:
    """As `of_rows`, for one row in a tile."""
    values = of_rows("softmax", columns)
    return {"BN": values["BN"], "warps": values["warps"]}


_ROWS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "softmax": {1024: (1, 4), 2048: (1, 4), 4096: (1, 8), 8192: (1, 8), 16384: (2, 16), 32768: (1, 32)},
    "rms_norm": {1024: (2, 4), 2048: (2, 4), 4096: (1, 2), 8192: (1, 4), 16384: (2, 16), 32768: (1, 8)},
    "layer_norm": {1024: (2, 4), 2048: (2, 4), 4096: (2, 8), 8192: (2, 4), 16384: (2, 8), 32768: (1, 32)},
}
"""Rows of a tile and warps by the width of the row."""

LONGEST_ROW = 32768
"""Columns of a row that still lies in one tile."""

ELEMENTWISE = (
    "relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "selu", "elu", "hardsigmoid", "hardtanh",
    "softplus", "softsign", "silu_and_multiply",
)  # fmt: skip
ROWS = {"softmax": "softmax", "log_softmax": "softmax", "rms_norm": "rms_norm", "layer_norm": "layer_norm"}
"""Operations on rows, and whose configurations they have."""


def shipped() -> Iterator[tuple[str, str, dict[str, int | str]]]:
    """Every kernel that the operators may launch: its file, its name, its compile-time values."""
    for t in FLOATS:
        for name in ELEMENTWISE:
            yield "activations", name, {"T": t}
        for width in (1 << bits for bits in range(5, LONGEST_ROW.bit_length())):
            for name, like in ROWS.items():
                yield "rows", name, {**of_rows(like, width), "T": t}
            yield "rows", "cross_entropy", {**of_cross_entropy(width), "T": t}
        yield "rows", "online_softmax", {"T": t}
    for t in HALVES:
        yield "gemm", "gemm_any", {"T": t}
        for values in (dict(tile.values) for tile in tiles()):
            yield "gemm", "gemm_nn", {**values, "T": t}
            yield "gemm", "gemm_nt", {**values, "T": t}
            for activation in range(4):
                yield "gemm", "linear", {**values, "T": t, "ACT": activation}


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[Tile, ...], dict[tuple[int, int, int], tuple[tuple[str, int], ...]]]:
    table = json.loads(files("tilewright.kernels").joinpath("tuned", "h200.json").read_text())["product"]
    priced = tuple(Tile(tuple(t["values"].items()), t["step"], t["wave"], t["launch"]) for t in table["tiles"])
    measured = {tuple(s["sizes"]): tuple(s["values"].items()) for s in table["sizes"]}
    return priced, measured
