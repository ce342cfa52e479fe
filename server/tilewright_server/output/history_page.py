"""The history as one HTML page with a drawing for each series; it needs no other file and no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tilewright_agent.history import Record
from tilewright_server.output.history_plot import bounds
from tilewright_server.output.history_series import Sample, Series, series
from tilewright_server.output.history_table import COLUMNS, NUMBERS, configuration, rows, when

WIDTH, HEIGHT = 720, 240  # of a drawing, in pixels of CSS
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 28
_STYLE = """
:root { color-scheme: light dark; --mine: #0969da; --other: #9a6700; --line: #8884; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .6rem; text-align: left; vertical-align: top; }
.number { text-align: right; }
svg { max-width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--line); } .mine { fill: none; stroke: var(--mine); stroke-width: 1.5; }
.spread { stroke: var(--mine); stroke-opacity: .35; stroke-width: 5; } .point { fill: var(--mine); }
.other { fill: none; stroke: var(--other); stroke-dasharray: 4 3; stroke-width: 1.5; }
.other-point { fill: var(--other); }
"""


def page(records: Sequence[Record], title: str) -> str:
    """The whole page."""
    body = [f"<h1>{escape(title)}</h1>"]
    for found in series(records):
        body += [f"<h2>{escape(found.title)}</h2>", drawing(found)]
    body += ["<h2>Runs</h2>", *_table(records)]
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def drawing(found: Series) -> str:
    """An SVG element: median with the distance of the quartiles around it, and the dashed baseline."""
    values = [v for s in found.samples for v in (_low(s), _high(s), s.baseline_ms) if v is not None]
    low, high = bounds(values)
    count = len(found.samples)

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / (count - 1) if count > 1 else 0.5)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(found.title)}">'
    ]
    for step in range(5):
        value = low + (high - low) * step / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g} ms</text>')
    ends = ((0, "start"), (count - 1, "end")) if count > 1 else ((0, "middle"),)
    for i, anchor in ends:
        label = when(found.samples[i].record)
        parts.append(f'<text x="{x(i):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    baseline = [(x(i), y(s.baseline_ms)) for i, s in enumerate(found.samples) if s.baseline_ms is not None]
    parts += [_line("other", baseline), _line("mine", [(x(i), y(s.median_ms)) for i, s in enumerate(found.samples)])]
    parts += [f'<circle class="other-point" cx="{at:.1f}" cy="{level:.1f}" r="2"/>' for at, level in baseline]
    for i, sample in enumerate(found.samples):
        at, level, top, bottom = (f"{v:.1f}" for v in (x(i), y(sample.median_ms), y(_high(sample)), y(_low(sample))))
        parts.append(f'<line class="spread" x1="{at}" x2="{at}" y1="{bottom}" y2="{top}"/>')
        tip = escape(f"{when(sample.record)}: {sample.median_ms:.4g} ms ({configuration(sample.record)})")
        parts.append(f'<circle class="point" cx="{at}" cy="{level}" r="3"><title>{tip}</title></circle>')
    return "".join([*parts, "</svg>"])


def _line(name: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _low(sample: Sample) -> float:
    return sample.median_ms - (sample.spread_ms or 0.0) / 2


def _high(sample: Sample) -> float:
    return sample.median_ms + (sample.spread_ms or 0.0) / 2


def _table(records: Sequence[Record]) -> Iterator[str]:
    classes = [' class="number"' if name in NUMBERS else "" for name in COLUMNS]
    yield "<table>"
    yield f"<tr>{''.join(f'<th{c}>{escape(n)}</th>' for n, c in zip(COLUMNS, classes, strict=True))}</tr>"
    for row in rows(records):
        yield f"<tr>{''.join(f'<td{c}>{escape(cell)}</td>' for cell, c in zip(row, classes, strict=True))}</tr>"
    yield "</table>"
