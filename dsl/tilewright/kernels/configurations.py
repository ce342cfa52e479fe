"""Which configuration of a kernel is used for which sizes: from measurements of a card, kept in `tuned/`.

A table holds for each tile shape of a matrix product what it costs, fitted to measured times: one step along K of one
wave of tiles, one wave, and one launch. Its time for any sizes follows, and the least time decides. Sizes that were
measured themselves have the configuration that was fastest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

PROCESSORS = 132
"""Multiprocessors of the card that was measured, an H200."""


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


PART_LENGTHS = (512, 1024, 2048, 4096)
"""Elements of K in one part of a product that is split along K."""

_PARTS = ((128, 128), (64, 128), (64, 64))
"""Tiles of such products, as BM and BN."""


@lru_cache(maxsize=4096)
def of_parts(m: int, n: int, k: int, processors: int = PROCESSORS) -> Mapping[str, int] | None:
    """Compile-time values for a product in parts along K; None if it takes longer than one in one part, or may do.

    Adding up the parts takes a launch of about 2.5 microseconds, and each partial sum is written and read once at about
    3 TB/s.
    """
    if (m, n, k) in _table()[1]:
        return None
    whole = min(t.time(m, n, k, processors) for t in tiles())
    best, least = None, 0.8 * whole
    for tile in part_tiles():
        own = dict(tile.values)
        count = -(-m // own["BM"]) * -(-n // own["BN"])
        for length in PART_LENGTHS:
            parts = -(-k // length)
            waves = -(-count * parts // processors)
            time = waves * (length // own["BK"] * tile.step + tile.wave) + tile.launch
            time += 2500 + (8 * parts + 2) * m * n / 3000
            if parts > 1 and time < least:
                best, least = {**own, "PART": length}, time
    return best


def part_tiles() -> tuple[Tile, ...]:
    """The tiles that `of_parts` chooses from: the fastest of each shape."""
    found = [[t for t in tiles() if (dict(t.values)["BM"], dict(t.values)["BN"]) == shape] for shape in _PARTS]
    return tuple(min(alike, key=lambda t: t.time(*shape, 4096)) for alike, shape in zip(found, _PARTS, strict=True))


FP8 = (
    ({"BM": 192, "BN": 128, "BK": 128, "STAGES": 3, "GROUP": 8, "CONSUMERS": 3, "warps": 4}, 1.0),
    ({"BM": 128, "BN": 128, "BK": 128, "STAGES": 4, "GROUP": 8, "CONSUMERS": 2, "warps": 4}, 1.1),
    ({"BM": 64, "BN": 64, "BK": 256, "STAGES": 5, "GROUP": 16, "CONSUMERS": 1, "warps": 4}, 2.5),
)
"""Tiles of products of 8-bit floats, with what one of their elements takes beside those of the first."""

INT8 = (
    ({"BM": 128, "BN": 128, "BK": 128, "STAGES": 4, "GROUP": 8, "warps": 8}, 1.0),
    ({"BM": 64, "BN": 128, "BK": 128, "STAGES": 5, "GROUP": 16, "warps": 4}, 1.3),
    ({"BM": 64, "BN": 64, "BK": 256, "STAGES": 5, "GROUP": 16, "warps": 4}, 2.2),
)
TF32 = (
    ({"BM": 128, "BN": 128, "BK": 32, "STAGES": 4, "GROUP": 8, "warps": 8}, 1.0),
    ({"BM": 64, "BN": 128, "BK": 32, "STAGES": 6, "GROUP": 8, "warps": 4}, 1.2),
)

Priced = tuple[tuple[Mapping[str, int], float], ...]


def of_waves(choices: Priced, m: int, n: int, processors: int = PROCESSORS) -> Mapping[str, int]:
    """The tile whose waves over the multiprocessors take the least time for m by n results."""

    def time(choice: tuple[Mapping[str, int], float]) -> float:
        values, price = choice
        count = -(-m // values["BM"]) * -(-n // values["BN"])
        return -(-count // processors) * values["BM"] * values["BN"] * price

    return min(choices, key=time)[0]


WIDE, SQUARE = (
    {"BM": 128, "BN": 256, "BK": 64, "STAGES": 3, "warps": 8},
    {"BM": 128, "BN": 128, "BK": 64, "STAGES": 5, "warps": 8},
)
GATED = (
    {"BM": 64, "BN": 128, "BK": 64, "STAGES": 4, "warps": 4},
    {"BM": 128, "BN": 128, "BK": 64, "STAGES": 4, "warps": 8},
)
"""Tiles of grouped products, and of gated ones for few and for many rows of an expert."""

SHARES = (1, 2, 4, 8, 16)
"""Programs that share the rows of an expert."""


def of_experts(rows: int, experts: int) -> Mapping[str, int]:
    """The tile of grouped products for that many rows over all experts."""
    return _shared(SQUARE if 64 * experts < rows <= 256 * experts else WIDE, rows, experts)


def of_gated(rows: int, experts: int) -> Mapping[str, int]:
    """The same for two products of the same rows."""
    return _shared(GATED[rows > 64 * experts], rows, experts)


def _shared(values: Mapping[str, int], rows: int, experts: int) -> Mapping[str, int]:
    """With programs for twice the rows that an expert has on average."""
    blocks = -(-2 * rows // (experts * values["BM"]))
    return {**values, "S": max(s for s in SHARES if s == 1 or s <= blocks)}


HEADS = (64, 96, 128, 256)
"""Head sizes of attention; others are padded to the next one."""

SHARED_BY = (1, 2, 4, 8, 16)
"""Query heads that share keys and values."""

CHUNKS = 256
"""Parts that the rows of `statistics` are cut into at most."""


def chunks(length: int) -> int:
    """Into how many equal parts a row of that length is cut, each of 4096 elements or more: a power of two."""
    count = 1
    while count < CHUNKS and length % (2 * count) == 0 and length // (2 * count) >= 4096:
        count *= 2
    return count


_ATTENTION: Mapping[tuple[int, bool], Mapping[str, int]] = {
    (64, False): {"BM": 192, "CONSUMERS": 3, "PERSISTENT": 1},
    (64, True): {"BM": 192, "CONSUMERS": 3, "TURNS": 1},
    (96, False): {"TURNS": 1, "PERSISTENT": 1},
    (96, True): {"TURNS": 1},
    (128, False): {"PERSISTENT": 1},
    (128, True): {},
    (256, False): {"BN": 64},
    (256, True): {"BN": 64},
}


MASKS = ("full", "causal", "window")


def of_attention(head: int, mask: str, shared_by: int) -> Mapping[str, int]:
    """Compile-time values for heads of one of `HEADS`, of which one of `SHARED_BY` share keys and values."""
    base = {"D": head, "GROUP": shared_by, "MASK": MASKS.index(mask)}
    defaults = {"BM": 128, "BN": 128, "STAGES": 2, "CONSUMERS": 2, "TURNS": 0, "PERSISTENT": 0}
    return {**base, **defaults, **_ATTENTION[head, mask != "full"]}


def of_group_norm(length: int) -> Mapping[str, int]:
    """Channels and elements of a tile for channels of that many elements."""
    width = min(8192, 1 << max(5, (length - 1).bit_length()))
    return {"BC": max(1, 2048 // width), "BL": width, "warps": 8 if width > 4096 else 4}


def of_reduction(columns: int) -> Mapping[str, int]:
    """Rows and columns of a tile for reductions along rows of any length."""
    width = min(4096, 1 << max(5, (columns - 1).bit_length()))
    return {"R": 4096 // width, "BN": width, "warps": 8 if width == 4096 else 4}


def of_rotary(pairs: int) -> Mapping[str, int]:
    """Positions and pairs of a tile for heads of that many pairs."""
    width = min(128, 1 << max(4, (pairs - 1).bit_length()))
    return {"BS": 512 // width, "BF": width}


def of_rows(operation: str, columns: int) -> Mapping[str, int]:
    """Rows and columns of a tile, and warps, for operations on rows in one tile: what was fastest on an H200."""
    width = 1 << max(5, (columns - 1).bit_length())
    if width <= 512:
        return {"R": 2048 // width, "BN": width, "warps": 4}
    several, warps = _ROWS[operation][width]
    return {"R": several, "BN": width, "warps": warps}


def of_cross_entropy(columns: int) -> Mapping[str, int]:
    """As `of_rows`, for one row in a tile."""
    width = 1 << max(5, (columns - 1).bit_length())
    return {"BN": width, "warps": 1 if width <= 1024 else min(max(4, width // 2048), width // 1024)}


_ROWS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "softmax": {1024: (1, 4), 2048: (1, 4), 4096: (1, 4), 8192: (1, 8)},
    "rms_norm": {1024: (2, 4), 2048: (2, 4), 4096: (1, 2), 8192: (1, 4), 16384: (2, 16), 32768: (1, 8)},
    "layer_norm": {1024: (2, 4), 2048: (2, 4), 4096: (2, 8), 8192: (2, 4), 16384: (2, 8), 32768: (1, 32)},
}
"""Rows of a tile and warps by the width of the row."""

LONGEST_ROW = 32768
"""Columns of a row that still lies in one tile."""

LONGEST_SOFTMAX = 8192
"""As `LONGEST_ROW` for softmax and its logarithm, which are faster in pieces from here on."""


def of_pieces(columns: int) -> Mapping[str, int]:
    """Columns of a piece, and warps, for softmax of longer rows: the second reading comes from a cache."""
    return {"BN": 4096 if columns <= 65536 else 2048, "warps": 8}


ROWS = {
    "softmax": "softmax", "log_softmax": "softmax", "rms_norm": "rms_norm", "layer_norm": "layer_norm",
    "quantize_int8": "rms_norm", "quantize_fp8": "rms_norm",
}  # fmt: skip
"""Operations on rows in one tile, and whose configurations they have."""


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[Tile, ...], dict[tuple[int, int, int], tuple[tuple[str, int], ...]]]:
    table = json.loads(files("tilewright.kernels").joinpath("tuned", "h200.json").read_text())["product"]
    priced = tuple(Tile(tuple(t["values"].items()), t["step"], t["wave"], t["launch"]) for t in table["tiles"])
    measured = {tuple(s["sizes"]): tuple(s["values"].items()) for s in table["sizes"]}
    return priced, measured
