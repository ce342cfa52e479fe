"""Times of launches on a GPU: cold and warm, candidate and baseline in turn, over arguments that rotate.

A `Side` takes single samples, in the process that launches; `measure` decides which ones, in the process that judges.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .terms import Launch, Timing

WARM_UPS = 3
MOST_REPETITIONS = 200
TIMED_MS = 400.0  # the time that all measured launches of one side should take together
DELAY_CYCLES = 400_000  # about 0.2 ms, in which the host enqueues a whole launch
SHORT_MS = 0.05  # below this the gaps between launches from the host are no longer small
GRAPH_LAUNCHES = 24
WARM_SHARE = 4  # a warm figure takes this share of the repetitions of a cold one


class Side(Protocol):
    """Launches over sets of arguments that rotate; all figures are milliseconds of one launch."""

    def cold(self, turn: int) -> float:
        """With an overwritten L2."""
        ...

    def warm(self, turn: int) -> float:
        """Right after another launch of the same arguments."""
        ...

    def graph(self) -> bool:
        """Capture launches into a CUDA graph; whether that works."""
        ...

    def replay(self) -> float:
        """From the graph, right after itself."""
        ...


def measure(sides: Sequence[Side], sets: int, renew: Callable[[int], None]) -> Timing:
    """Time the candidate, the first of the sides, and the baseline, if there is a second.

    Cold: before each launch the L2 is overwritten and the stream is kept busy, so that the events enclose device time
    alone and not the time in which the host prepares the launch. Warm: each launch follows one like it. A short kernel
    is launched from a CUDA graph then, because an event costs about as much time as it. `renew` puts new inputs into
    the arguments of a turn, before each cold launch of the candidate: who replays an answer has to compute it too.
    """

    def cold(turn: int) -> list[float]:
        renew(turn)
        return [side.cold(turn) for side in sides]

    estimate = max(cold(i)[0] for i in range(max(WARM_UPS, sets)))
    repetitions = max(15, min(MOST_REPETITIONS, int(TIMED_MS / max(estimate, 1e-3))))
    samples = [cold(i) for i in range(repetitions)]
    mine = [s[0] for s in samples]
    other = [s[1] for s in samples] if len(sides) > 1 else None
    in_graph = statistics.median(mine) < SHORT_MS and all([side.graph() for side in sides])
    warms: list[list[float]] = [[] for _ in sides]
    for i in range(max(5, repetitions // WARM_SHARE)):
        for side, found in zip(sides, warms, strict=True):
            found.append(side.replay() if in_graph else side.warm(i))
    return Timing(
        statistics.median(mine), _spread(mine), statistics.median(other) if other else None,
        _spread(other) if other else None, repetitions, statistics.median(warms[0]),
        statistics.median(warms[1]) if other else None, "graph" if in_graph else "events",
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


class Sampler:
    """The launches of one side, on this process's stream; `cache` is the size of the L2 in bytes."""

    def __init__(self, torch: Any, cache: int, launches: Sequence[Launch]) -> None:
        self.torch, self.launches = torch, list(launches)
        self.flush = torch.empty(max(4 * cache, 1 << 27), dtype=torch.uint8, device="cuda")
        self.captured: Any = None

    def cold(self, turn: int) -> float:
        """As `Side`."""
        self.flush.zero_()
        return self._timed(self.launches[turn % len(self.launches)])

    def warm(self, turn: int) -> float:
        """As `Side`."""
        launch = self.launches[turn % len(self.launches)]
        launch()
        return self._timed(launch)

    def graph(self) -> bool:
        """As `Side`; the sets of arguments in turn."""
        self.captured = capture(self.torch, [self.launches[i % len(self.launches)] for i in range(GRAPH_LAUNCHES)])
        return self.captured is not None

    def replay(self) -> float:
        """As `Side`."""
        start, stop = self._events()
        self.captured.replay()
        start.record()
        self.captured.replay()
        stop.record()
        return self._elapsed(start, stop) / GRAPH_LAUNCHES

    def _timed(self, launch: Launch) -> float:
        start, stop = self._events()
        self.torch.cuda._sleep(DELAY_CYCLES)
        start.record()
        launch()
        stop.record()
        return self._elapsed(start, stop)

    def _events(self) -> tuple[Any, Any]:
        event = self.torch.cuda.Event
        return event(enable_timing=True), event(enable_timing=True)

    def _elapsed(self, start: Any, stop: Any) -> float:
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(stop))


def _spread(samples: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low
