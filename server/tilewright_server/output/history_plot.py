"""Times over runs as a plot for a terminal: of Braille dots, or of ASCII where those cannot be written."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_server.output.history_series import Series

WIDTH, HEIGHT = 64, 10  # characters; each has 2 by 4 dots
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # Unicode's numbering of the dots, by column and row


def plot(found: Series, width: int = WIDTH, *, ascii_only: bool = False) -> list[str]:
    """Lines of text: the kernel as dots that are joined, its baseline as single dots. Runs are evenly spaced.

    `width` is that of the drawing without its axis, in characters.
    """
    mine = [s.median_ms for s in found.samples]
    other = [s.baseline_ms for s in found.samples]
    low, high = bounds([*mine, *(b for b in other if b is not None)])
    cells = [[0] * width for _ in range(HEIGHT)]

    def place(at: float, value: float) -> tuple[int, int]:
        x = round(at * (2 * width - 1))
        return x, round((high - value) / (high - low) * (4 * HEIGHT - 1))

    def dot(x: int, y: int) -> None:
        cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]

    count = len(mine)
    places = [place(i / (count - 1) if count > 1 else 0.5, value) for i, value in enumerate(mine)]
    for i, value in enumerate(other):
        if value is not None:
            dot(*place(i / (count - 1) if count > 1 else 0.5, value))
    mine_at: set[tuple[int, int]] = set()
    for (x, y), (to_x, to_y) in zip(places, places[1:] or places, strict=False):
        steps = max(to_x - x, abs(to_y - y), 1)
        for step in range(steps + 1):
            at = x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)
            dot(*at)
            mine_at.add((at[1] // 4, at[0] // 2))
    labels = [""] * HEIGHT
    labels[0], labels[HEIGHT // 2], labels[-1] = (f"{v:.4g}" for v in (high, (low + high) / 2, low))
    margin = max(map(len, labels))
    lines = [found.title]
    side, corner, floor = ("|", "+", "-") if ascii_only else ("┤", "└", "─")
    for i, (label, row) in enumerate(zip(labels, cells, strict=True)):
        shown = "".join(chr(0x2800 + c) for c in row)
        if ascii_only:  # a star where the kernel is, a dot where only the baseline is
            shown = "".join("*" if (i, j) in mine_at else "." if c else " " for j, c in enumerate(row))
        lines.append(f"{label:>{margin}} {side}{shown}")
    lines.append(f"{'ms':>{margin}} {corner}{floor * width}")
    lines.append(f"{'':{margin}}  {_caption(found)}")
    return lines


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: the values with a little room, and never empty."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return max(0.0, low - room), high + room


def _caption(found: Series) -> str:
    last = found.samples[-1]
    best = min(s.median_ms for s in found.samples)
    count = len(found.samples)
    text = f"{count} run{'s' if count > 1 else ''}: best {best:.4g} ms, last {last.median_ms:.4g} ms"
    if last.baseline_ms is not None:
        text += f"; single dots: {last.record.baseline or 'baseline'}, last {last.baseline_ms:.4g} ms"
    return text
