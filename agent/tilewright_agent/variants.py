"""Variants of a kernel: what is known about each, and the table that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.frontend import KernelUnit
from tilewright_agent.rewrite import Point
from tilewright_analysis.perf.shapes import Sizes
from tilewright_analysis.report import Finding

TABLE_ROWS = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant that was looked at. `verdict` is "proved", "refuted", "unknown", or "not checked".

    `reason` says in one line why it was not taken; `text` is the kernel's source.
    """

    title: str
    verdict: str
    predicted_us: float | None
    measured_ms: float | None
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Optimization:
    """What came out. `original` and `proposed` are whole documents, equal when nothing better was found.

    `verdict` is that of the proposed kernel. `summary` is Markdown with a table of the variants; `variants` come best
    first, the original among them. `sizes` are those of predictions and measurements on `device`.
    """

    kernel: str
    original: str
    proposed: str
    verdict: str
    summary: str
    variants: tuple[Variant, ...]
    sizes: Sizes
    device: str
    cancelled: bool = False


@dataclass
class Candidate:
    """A variant while it is being judged. `reason` is set once something speaks against it.

    `impossible`: it cannot be expanded, or one block of it does not fit the device.
    """

    point: Point
    unit: KernelUnit
    title: str
    predicted_us: float | None = None
    verdict: str = "not checked"
    measured_ms: float | None = None
    baseline_ms: float | None = None
    reason: str = ""
    impossible: bool = False


def summary(headline: str, notes: Sequence[str], variants: Sequence[Variant]) -> str:
    """Markdown: the outcome, what else is worth knowing, and the first variants as a table."""
    lines = [headline, ""]
    lines += [f"{note}\n" for note in notes]
    lines += ["| variant | verdict | predicted µs | measured ms | reason |", "| --- | --- | ---: | ---: | --- |"]
    for v in variants[:TABLE_ROWS]:
        predicted = f"{v.predicted_us:.1f}" if v.predicted_us is not None else "–"
        measured = f"{v.measured_ms:.4g}" if v.measured_ms is not None else "–"
        lines.append(f"| {v.title} | {v.verdict} | {predicted} | {measured} | {v.reason.replace('|', '/')} |")
    if len(variants) > TABLE_ROWS:
        lines += ["", f"{len(variants) - TABLE_ROWS} more variants were looked at."]
    return "\n".join(lines) + "\n"


def headline(kernel: str, where: str, original: Candidate, best: Candidate) -> str:
    """One sentence about the outcome."""
    if best is original:
        return f"No better verified variant of `{kernel}` at {where}."
    if best.measured_ms is not None and original.measured_ms is not None:
        gain = original.measured_ms / best.measured_ms
        times = f"measured {original.measured_ms:.4g} → {best.measured_ms:.4g} ms"
    else:
        gain = (original.predicted_us or 0.0) / (best.predicted_us or 1.0)
        times = f"predicted {original.predicted_us or 0.0:.1f} → {best.predicted_us or 0.0:.1f} µs, not measured"
    return f"**{best.title}**: {gain:.2f}× at {where} ({times}), {best.verdict}."


def rank(candidate: Candidate, best: Candidate) -> tuple[int, float, float]:
    """The winner first, then proved ones by time, then the rest by prediction; sorts ascending."""
    far = float("inf")
    order = 0 if candidate is best else 1 if candidate.verdict == "proved" else 2
    predicted = candidate.predicted_us if candidate.predicted_us is not None else far
    return order, candidate.measured_ms if candidate.measured_ms is not None else far, predicted


def as_variant(candidate: Candidate) -> Variant:
    """The candidate as a value."""
    return Variant(
        candidate.title, candidate.verdict, candidate.predicted_us, candidate.measured_ms, candidate.reason,
        candidate.unit.text,
    )  # fmt: skip


def title(start: Point, point: Point) -> str:
    """What differs from the original, such as "BM = 256, order = row by row"."""
    before = dict(start)
    changes = [f"{name} = {_word(name, value)}" for name, value in point if value != before[name]]
    return ", ".join(changes) or "as written"


def _word(name: str, value: int | str | bool) -> str:
    if name == "order":
        return f"groups of {value} rows" if value else "row by row"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def one_line(finding: Finding) -> str:
    """A finding and its counterexample in one line."""
    text = f"{finding.code}: {' '.join(finding.message.split())}"
    example = finding.counterexample
    if example is None:
        return text
    where = [f"{n} = {v}" for n, v in {**example.sizes, **example.iteration}.items()]
    if example.program is not None:
        where.append(f"program {example.program}")
    if example.role:
        where.append(f"role {example.role}")
    return f"{text} (at {', '.join(where)})" if where else text


def size_text(sizes: Mapping[str, int]) -> str:
    """Sizes as "M = 1, N = 2"."""
    return ", ".join(f"{n} = {v}" for n, v in sizes.items())
