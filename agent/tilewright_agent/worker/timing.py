"""Times of launches on a GPU: cold and warm, candidate and baseline in turn, over arguments that rotate."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from .grade import Launch, Timing

WARM_UPS = 3
MOST_REPETITIONS = 200
TIMED_MS = 400.0  # the time that all measured launches of one side should take together
DELAY_CYCLES = 400_000  # about 0.2 ms, in which the host enqueues a whole launch
SHORT_MS = 0.05  # below this the gaps between launches from the host are no longer small
GRAPH_LAUNCHES = 24
WARM_SHARE = 4  # a warm figure takes this share of the repetitions of a cold one


def measure(torch: Any, cache: int, candidate: Sequence[Launch], baseline: Sequence[Launch]) -> Timing:
    """Time both sides; `cache` is the size of the L2 in bytes.

    Cold: before each launch the L2 is overwritten and the stream is kept busy, so that the events enclose device time
    alone and not the time in which the host prepares the launch. Warm: each launch follows one like it. A short kernel
    is launched from a CUDA graph then, because an event costs about as much time as it.
    """
    clock = _Clock(torch, cache)
    sides = [candidate, baseline] if baseline else [candidate]
    estimate = max(clock.cold([side[i % len(side)] for side in sides])[0] for i in range(max(WARM_UPS, len(candidate))))
    repetitions = max(15, min(MOST_REPETITIONS, int(TIMED_MS / max(estimate, 1e-3))))
    samples = [clock.cold([side[i % len(side)] for side in sides]) for i in range(repetitions)]
    mine = [s[0] for s in samples]
    other = [s[1] for s in samples] if baseline else None
    method, warm = "events", [clock.warm for _ in sides]
    if statistics.median(mine) < SHORT_MS:
        graphs = [_Graph(torch, side) for side in sides]
        if all(graph.works for graph in graphs):
            method, warm = "graph", [graph.time for graph in graphs]
    rounds = max(5, repetitions // WARM_SHARE)
    warms: list[list[float]] = [[] for _ in sides]
    for i in range(rounds):
        for side, time, found in zip(sides, warm, warms, strict=True):
            found.append(time(side[i % len(side)]))
    return Timing(
        statistics.median(mine), _spread(mine), statistics.median(other) if other else None,
        _spread(other) if other else None, repetitions, statistics.median(warms[0]),
        statistics.median(warms[1]) if baseline else None, method,
    )  # fmt: skip


def capture(torch: Any, launches: Sequence[Launch]) -> Any:
    """A CUDA graph of launches, None when they cannot be captured. Nothing is executed."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
    except Exception:  # whatever cannot be captured is timed by events; a real fault shows again in its next launch
        torch.cuda.set_stream(stream)  # a capture that fails may leave its own one
        return None
    return graph


class _Clock:
    def __init__(self, torch: Any, cache: int) -> None:
        self.torch = torch
        self.flush = torch.empty(max(4 * cache, 1 << 27), dtype=torch.uint8, device="cuda")

    def cold(self, sides: Sequence[Launch]) -> list[float]:
        """One launch of each side, in milliseconds."""
        events: list[tuple[Any, Any]] = []
        for side in sides:
            self.flush.zero_()
            events.append(self._enclosed(side))
        return _elapsed(self.torch, events)

    def warm(self, side: Launch) -> float:
        """One launch right after another of the same arguments."""
        side()
        return _elapsed(self.torch, [self._enclosed(side)])[0]

    def _enclosed(self, side: Launch) -> tuple[Any, Any]:
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(DELAY_CYCLES)
        start.record()
        side()
        stop.record()
        return start, stop


class _Graph:
    """Launches of one side in a graph, its sets of arguments in turn."""

    def __init__(self, torch: Any, side: Sequence[Launch]) -> None:
        self.torch = torch
        self.graph = capture(torch, [side[i % len(side)] for i in range(GRAPH_LAUNCHES)])
        self.works = self.graph is not None

    def time(self, launch: Launch) -> float:
        """The time of one launch; which one the graph decides."""
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph.replay()
        start.record()
        self.graph.replay()
        stop.record()
        return _elapsed(self.torch, [(start, stop)])[0] / GRAPH_LAUNCHES


def _elapsed(torch: Any, events: Sequence[tuple[Any, Any]]) -> list[float]:
    torch.cuda.synchronize()
    return [float(start.elapsed_time(stop)) for start, stop in events]


def _spread(samples: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low
