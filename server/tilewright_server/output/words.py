"""Counterexamples and counts in words: the same in terminal, editor and annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright_analysis.report import Counterexample, KernelReport


def situation(example: Counterexample) -> Iterator[str]:
    """The concrete situation, one line a group: sizes; who and when; what differs."""
    if example.sizes:
        yield f"sizes: {pairs(example.sizes)}"
    where: list[str] = []
    if example.program is not None:
        where.append(f"program {example.program}")
    if example.iteration:
        where.append(f"iteration {pairs(example.iteration)}")
    if example.role:
        where.append(f"role {example.role}")
    if example.thread:
        where.append(", ".join(f"{name} {value}" for name, value in example.thread.items()))
    if example.element:
        where.append(f"element ({', '.join(map(str, example.element))})")
    if where:
        yield f"where: {', '.join(where)}"
    if example.values:
        yield f"values: {pairs(example.values)}"


def counts(report: KernelReport) -> str:
    """Such as "21 proved, 1 refuted"; counts of zero are left out, except when all are."""
    parts = [f"{n} {verdict}" for verdict in ("proved", "refuted", "unknown") if (n := report.count(verdict))]
    return ", ".join(parts) or "no obligations"


def plural(count: int, noun: str) -> str:
    """Such as "1 kernel", "2 kernels"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(milliseconds: float) -> str:
    """Milliseconds below a second, seconds above."""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def pairs(values: Mapping[str, object]) -> str:
    """Such as "M = 64, N = 128"."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())
