"""The configurations of a kernel that tuning considers: declared choices, and what rules make of the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from math import prod

from tilewright.frontend import KernelUnit
from tilewright_agent.candidates import predict, refuse, with_text
from tilewright_agent.rewrite import Point, Source, Value
from tilewright_agent.rules import proposals
from tilewright_agent.variants import Candidate, title
from tilewright_analysis.perf import has_model
from tilewright_analysis.perf.shapes import Sizes

MOST_POINTS = 4096  # of declared choices; a larger product is searched from its default outwards
LOOKED_AT = 8  # times the limit: how many configurations get a prediction at most


def configurations(
    unit: KernelUnit, sizes: Sizes, device: str, limit: int, cancelled: Callable[[], bool] = lambda: False
) -> list[Candidate]:
    """At most `limit` configurations that may be tried, the kernel as written first, then by their prediction.

    All combinations of declared choices come before those that rules add. Configurations that are invalid, that assume
    other things than the kernel as written, or that the model finds impossible are left out. The result depends on the
    arguments alone, so a search that was broken off finds the same ones again. The unit has its default values.
    """
    return _Space(unit, sizes, device, limit, cancelled).collect()


class _Space:
    def __init__(self, unit: KernelUnit, sizes: Sizes, device: str, limit: int, cancelled: Callable[[], bool]) -> None:
        assert unit.kernel is not None
        self.unit, self.kernel, self.sizes, self.device = unit, unit.kernel, sizes, device
        self.limit, self.cancelled = limit, cancelled
        self.source = Source(unit.text, unit.kernel)
        self.modelled = has_model(unit.kernel)
        written = unit.with_consts().kernel
        self.written_target = written.target if written is not None else unit.kernel.target
        self.seen: set[str] = {unit.text}
        self.tried = 0

    def collect(self) -> list[Candidate]:
        original = Candidate(self.source.point(), self.unit, "as written")
        if self.modelled:
            predict(original, self.sizes, self.device)
        declared = sorted(self._made(self._declared()), key=_order)
        found = [original, *declared[: self.limit - 1]]
        grown: list[Candidate] = []
        waiting = sorted(found, key=_order)
        while waiting and len(found) + len(grown) < self.limit * 2 and self.tried < LOOKED_AT * self.limit:
            if self.cancelled():
                break
            place = waiting.pop(0)
            near = (p.point for p in proposals(self.source.knobs, place.point, self.written_target))
            made = list(self._made(near))
            grown += made
            waiting = sorted([*waiting, *made], key=_order)
        return [*found, *sorted(grown, key=_order)[: self.limit - len(found)]]

    def _declared(self) -> Iterator[Point]:
        """All combinations of declared choices; none when there are too many."""
        chosen = [k for k in self.source.knobs.values() if k.choices]
        if not chosen or prod(len(k.choices) for k in chosen) > MOST_POINTS:
            return
        start: Mapping[str, Value] = dict(self.source.point())
        for values in product(*(k.choices for k in chosen)):
            yield tuple(sorted({**start, **{k.name: v for k, v in zip(chosen, values, strict=True)}}.items()))

    def _made(self, points: Iterator[Point]) -> Iterator[Candidate]:
        """The candidates among points that are new and possible."""
        for point in islice(points, MOST_POINTS):
            if self.cancelled():
                return
            text = self.source.with_point(dict(point))
            if text in self.seen:
                continue
            self.seen.add(text)
            self.tried += 1
            unit = with_text(self.unit, text, self.kernel.target)
            candidate = Candidate(point, unit, title(self.source.point(), point))
            if refuse(self.kernel, candidate):
                continue
            if self.modelled:
                predict(candidate, self.sizes, self.device)
            if not candidate.impossible:
                yield candidate


def _order(candidate: Candidate) -> tuple[float, str]:
    predicted = candidate.predicted_us
    return (predicted if predicted is not None else float("inf")), candidate.title
