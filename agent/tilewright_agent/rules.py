"""Rules: which variants of a kernel are worth a look from where the search stands. Each changes one or two policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilewright_agent.rewrite import Knob, Point, Value

Knobs = Mapping[str, Knob]

SMALLEST_TILE, LARGEST_TILE = 16, 512
LARGEST_BLOCK = 16384  # elements of a one-dimensional tile
MOST_STAGES = 6
MOST_ROWS = 32
MOST_WARPS = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule. `steps` gives changed values, by knob; `why` is what a person reads."""

    name: str
    why: str
    steps: Callable[[Knobs, Mapping[str, Value]], Iterator[Mapping[str, Value]]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A variant to consider: its values and the rule that proposes it."""

    point: Point
    rule: Rule


def proposals(knobs: Knobs, point: Point, target: str) -> Iterator[Proposal]:
    """Variants one rule away from `point`; `target` decides whether roles can be split."""
    now = dict(point)
    for rule in RULES:
        for change in rule.steps(knobs, now):
            if change.get("roles") == "split" and not target.startswith("sm_90"):
                continue
            yield Proposal(tuple(sorted({**now, **change}.items())), rule)


def _powers(knob: Knob, value: int, least: int, most: int) -> Iterator[int]:
    """Neighbouring values: the declared choices, or half and twice."""
    if knob.choices:
        yield from (c for c in knob.choices if c != value)
        return
    yield from (v for v in (value * 2, value // 2) if least <= v <= most)


def _of_kind(knobs: Knobs, kind: str) -> Iterator[Knob]:
    return (k for k in knobs.values() if k.kind == kind)


def _tiles(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    tiles = list(_of_kind(knobs, "tile"))
    most = LARGEST_TILE if len(tiles) > 1 else LARGEST_BLOCK
    least = SMALLEST_TILE if len(tiles) > 2 else 1
    for knob in tiles:
        for value in _powers(knob, int(now[knob.name]), least, most):
            yield {knob.name: value}


def _traded_tiles(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    tiles = list(_of_kind(knobs, "tile"))
    for grown in tiles:
        for shrunk in tiles:
            value, other = int(now[grown.name]) * 2, int(now[shrunk.name]) // 2
            free = not grown.choices and not shrunk.choices
            if grown is not shrunk and free and value <= LARGEST_TILE and other >= SMALLEST_TILE:
                yield {grown.name: value, shrunk.name: other}


def _stages(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    for knob in _of_kind(knobs, "stages"):
        value = int(now[knob.name])
        near = knob.choices or (value + 1, value - 1)
        yield from ({knob.name: v} for v in near if v != value and 2 <= v <= MOST_STAGES)


def _shallow_and_deep(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    """A tile twice as deep with a stage less, or half as deep with a stage more: the same shared memory."""
    stages = [k for k in _of_kind(knobs, "stages") if not k.choices]
    for knob in (k for k in _of_kind(knobs, "tile") if not k.choices):
        for depth in stages:
            value, number = int(now[knob.name]), int(now[depth.name])
            for tile, count in ((value * 2, number - 1), (value // 2, number + 1)):
                if SMALLEST_TILE <= tile <= LARGEST_TILE and 2 <= count <= MOST_STAGES:
                    yield {knob.name: tile, depth.name: count}


def _tiles_and_stages(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    """A larger tile with a stage more: it leaves room for fewer blocks, which then hide less of each other's waits."""
    for change in _tiles(knobs, now):
        ((name, value),) = change.items()
        for depth in (k for k in _of_kind(knobs, "stages") if not k.choices):
            number = int(now[depth.name]) + 1
            if int(value) > int(now[name]) and number <= MOST_STAGES:
                yield {**change, depth.name: number}


def _order(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    for knob in _of_kind(knobs, "group"):
        yield from ({knob.name: v} for v in _powers(knob, int(now[knob.name]), 1, MOST_ROWS))
    if "order" in knobs:
        rows = int(now["order"])
        values = (8, 16) if rows == 0 else (rows * 2, rows // 2, 0)
        yield from ({"order": v} for v in values if v <= MOST_ROWS)


def _persistent(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    if "persistent" in knobs:
        yield {"persistent": not now["persistent"]}


def _roles(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    if "roles" in knobs:
        yield {"roles": "single" if now["roles"] == "split" else "split"}


def _warps(knobs: Knobs, now: Mapping[str, Value]) -> Iterator[Mapping[str, Value]]:
    warps = int(now["warps"])
    yield from ({"warps": w} for w in (warps * 2, warps // 2) if 1 <= w <= MOST_WARPS)
    # A larger tile needs more threads to hold its accumulator, a smaller one fewer to stay busy.
    for change in _tiles(knobs, now):
        ((name, value),) = change.items()
        factor = 2 if int(value) > int(now[name]) else 1 / 2
        if 1 <= warps * factor <= MOST_WARPS:
            yield {**change, "warps": int(warps * factor)}


RULES: tuple[Rule, ...] = (
    Rule("tile size", "larger tiles reuse more, smaller ones fill the machine", _tiles),
    Rule("tile shape", "the same area with other sides", _traded_tiles),
    Rule("stages", "more stages hide more latency, fewer leave room", _stages),
    Rule("depth and stages", "the same shared memory, cut otherwise", _shallow_and_deep),
    Rule("tile and stages", "a larger tile waits less with a stage more", _tiles_and_stages),
    Rule("grid order", "programs that run together should share tiles in L2", _order),
    Rule("persistent grid", "programs that stay hide the ends of tiles", _persistent),
    Rule("warps", "threads to hold a tile", _warps),
    Rule("roles", "a role of its own for loads, or none", _roles),
)
