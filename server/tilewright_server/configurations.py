"""Every configuration of a kernel's choices, verified by several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context

from tilewright.frontend import KernelUnit
from tilewright.source import SourceText
from tilewright_analysis.report import KernelReport
from tilewright_server import engine


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point of a kernel's choices: the number of its unit in the file, and the values that are not the default."""

    unit: int
    kernel: str
    values: tuple[tuple[str, int | str], ...]

    @property
    def name(self) -> str:
        """Such as `gemm[BM=64, BN=128]`."""
        return f"{self.kernel}[{', '.join(f'{n}={v}' for n, v in self.values)}]" if self.values else self.kernel


def configurations(units: Sequence[KernelUnit]) -> Iterator[Configuration]:
    """All points of the choices of each kernel; one for a kernel that offers none."""
    for number, unit in enumerate(units):
        axes: list[tuple[str, Sequence[int | str]]] = []
        if unit.kernel is not None:
            axes += [(c.name, c.choices) for c in unit.kernel.consts if len(c.choices) > 1]
            axes += [(t.name, [c.name for c in t.choices]) for t in unit.kernel.element_types if len(t.choices) > 1]
        for values in product(*(choices for _, choices in axes)):
            yield Configuration(number, unit.name, tuple(zip((name for name, _ in axes), values, strict=True)))


def check_all(
    source: SourceText, found: Sequence[Configuration], target: str, on_report: Callable[[int], None]
) -> list[KernelReport]:
    """The reports on configurations of one file, in their order; spans are absolute.

    `on_report` hears how many are done.
    """
    jobs = [(source, c, target) for c in found]
    workers = min(len(jobs), os.cpu_count() or 1)
    reports: list[KernelReport] = []
    if workers <= 1:
        for job in jobs:
            reports.append(_check(job))
            on_report(len(reports))
        return reports
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for report in pool.map(_check, jobs):
            reports.append(report)
            on_report(len(reports))
    return reports


def _check(job: tuple[SourceText, Configuration, str]) -> KernelReport:
    source, configuration, target = job
    unit = engine.parse(source).units[configuration.unit]
    unit = engine.configured(unit, target, dict(configuration.values))
    report = engine.check(unit).shift(unit.offset)
    return replace(report, kernel=configuration.name)
