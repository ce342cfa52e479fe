"""Makes `dsl/tilewright/kernels/tuned/h200.json` of measured products: `python tests/bench/gpu/fit.py`.

Of the tiles that were measured, those stay without which some size takes longer: the fewest, one after the other, that
are within a ten-thousandth of the best at all sizes. The costs of a tile are the least squares of relative errors over
all sizes, none below zero.
"""

from __future__ import annotations

import json
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.kernels.configurations import PROCESSORS, Tile

HERE = Path(__file__).parent
TARGET = HERE.parents[2] / "dsl" / "tilewright" / "kernels" / "tuned" / "h200.json"
NAMES = ("BM", "BN", "BK", "STAGES", "warps", "GROUP")


def main() -> None:
    measured = json.loads((HERE / "h200_products.json").read_text())
    shapes = measured["shapes"]
    kept = chosen_tiles(shapes)
    for row in shapes:
        row["us"] = {tile: row["us"][tile] for tile in kept}
    tiles = []
    for tile in kept:
        values = dict(zip(NAMES, map(int, tile.split("_")), strict=True))
        rows, times = [], []
        for row in shapes:
            m, n, k = row["shape"]
            waves = ceil(ceil(m / values["BM"]) * ceil(n / values["BN"]) / PROCESSORS)
            rows.append((waves * ceil(k / values["BK"]), waves, 1))
            times.append(1000 * row["us"][tile])
        relative = np.array(rows, float) / np.array(times)[:, None]
        costs = np.zeros(3)
        for _ in range(50_000):
            costs = np.maximum(costs - relative.T @ (relative @ costs - 1) / np.trace(relative.T @ relative), 0)
        tiles.append({"values": values, **dict(zip(("step", "wave", "launch"), costs.round(1).tolist(), strict=True))})
    best = [(row["shape"], min(row["us"], key=row["us"].get)) for row in shapes]
    sizes = [{"sizes": s, "values": dict(zip(NAMES, map(int, t.split("_")), strict=True))} for s, t in best]
    table = {"card": measured["machine"], "date": measured["date"], "product": {"tiles": tiles, "sizes": sizes}}
    TARGET.write_text(json.dumps(table, indent=1) + "\n")
    costs_of = {
        name: Tile(tuple(t["values"].items()), t["step"], t["wave"], t["launch"])
        for name, t in zip(shapes[0]["us"], tiles, strict=True)
    }
    losses = []
    for row in shapes:
        chosen = min(row["us"], key=lambda tile, sizes=row["shape"]: costs_of[tile].time(*sizes))
        losses.append(row["us"][chosen] / min(row["us"].values()))
    print(
        f"{len(tiles)} tiles; the tile that the costs choose takes {np.exp(np.mean(np.log(losses))):.3f} of the best time"
    )


def chosen_tiles(shapes: list[dict[str, Any]]) -> list[str]:
    """Tiles, each the one that gains most beside those before it."""

    def loss(tiles: list[str]) -> float:
        return sum(log(min(row["us"][t] for t in tiles) / min(row["us"].values())) for row in shapes) / len(shapes)

    kept: list[str] = []
    while not kept or loss(kept) > 1e-4:
        kept.append(min((t for t in shapes[0]["us"] if t not in kept), key=lambda t: loss([*kept, t])))
    return kept


if __name__ == "__main__":
    main()
