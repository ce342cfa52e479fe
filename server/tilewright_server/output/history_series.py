"""Records of the history as series over time: what the terminal plot and the page of the history both draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright_agent.history import Record
from tilewright_server.output.words import pairs


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed shape of one record; times in milliseconds."""

    record: Record
    median_ms: float
    spread_ms: float | None
    baseline_ms: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Times that may be compared: one kernel on one device at one problem size, oldest first."""

    kernel: str
    device: str
    sizes: str
    samples: tuple[Sample, ...]

    @property
    def title(self) -> str:
        """Such as "gemm, M = 4096, on NVIDIA H200"."""
        return f"{self.kernel}, {self.sizes}, on {self.device}"


def series(records: Sequence[Record]) -> list[Series]:
    """The series of the records, in the order in which they begin. Shapes that were wrong or not timed are left out."""
    found: dict[tuple[str, str, str, str], list[Sample]] = {}
    for record in records:
        for case in record.cases:
            if case.median_ms is not None and case.correct is not False:
                key = record.file, record.kernel, record.device, pairs(case.sizes)
                sample = Sample(record, case.median_ms, case.spread_ms, case.baseline_ms)
                found.setdefault(key, []).append(sample)
    return [Series(kernel, device, sizes, tuple(s)) for (_, kernel, device, sizes), s in found.items()]
