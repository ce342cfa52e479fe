"""What a person sees over a kernel about its speed, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.expand import ExpansionError, expand
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright.layout import LayoutError
from tilewright_analysis.perf.access import conversions, shared_accesses, vector_widths
from tilewright_analysis.perf.devices import Device, has_model
from tilewright_analysis.perf.estimate import Estimate, estimate
from tilewright_analysis.perf.hints import hints
from tilewright_analysis.perf.shapes import large_shapes


@dataclass(frozen=True, slots=True)
class Compiled:
    """Facts that the compiler reported: registers of a thread, bytes spilled, bytes of shared memory of a block."""

    registers: int
    spills: int
    shared: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """The last measured time: milliseconds at `sizes` on `device`, and those of the baseline in the same run."""

    device: str
    sizes: Mapping[str, int]
    median_ms: float
    baseline_ms: float | None = None


def hover_markdown(
    kernel: ir.Kernel,
    sizes: Mapping[str, int] | None = None,
    compiled: Compiled | None = None,
    timing: Timing | None = None,
    target: str | Device = "H200",
) -> str:
    """Performance of a kernel, policy or explicit; `sizes` default to large ones that its assumptions allow.

    Empty for a kernel that cannot be expanded or has no such sizes, and for targets without a performance model as
    long as nothing is compiled.
    """
    if not has_model(kernel):
        return _compiled(compiled) + "\n" if compiled is not None else ""
    found = sizes or next(iter(large_shapes(kernel)), None)
    if found is None:
        return ""
    try:
        explicit = expand(kernel)
        result = estimate(explicit, found, target, compiled.registers if compiled else None)
    except (ExpansionError, LayoutError, EvaluationError):
        return ""
    lines = [f"**Performance** on {result.device.name} at {_sizes(found)} (static model)", ""]
    lines += [f"- {line}" for line in _facts(explicit, result)]
    if compiled is not None:
        lines.append(_compiled(compiled))
    if timing is not None:
        ratio = ""
        if timing.baseline_ms:
            ratio = f", reference {timing.baseline_ms:.4g} ms ({timing.baseline_ms / timing.median_ms:.2f}×)"
        lines.append(f"- last measured on {timing.device} at {_sizes(timing.sizes)}: {timing.median_ms:.4g} ms{ratio}")
    lines += [f"- {f.code}: {f.message}" for f in hints(kernel, found, target)]
    return "\n".join(lines) + "\n"


def _compiled(compiled: Compiled) -> str:
    spills = f"{compiled.spills} bytes spilled" if compiled.spills else "no spills"
    where = f" for {compiled.target}" if compiled.target else ""
    shared = f"{_bytes(compiled.shared)} shared memory"
    return f"- compiled{where}: {compiled.registers} registers a thread, {spills}, {shared}"


def _facts(kernel: ir.Kernel, result: Estimate) -> list[str]:
    resources = result.resources
    rate = f"{result.tflops:.0f} TFLOP/s" if result.products else f"{result.bandwidth / 1e3:.2f} TB/s"
    times = sorted(result.times.items(), key=lambda item: -item[1])
    units = ", ".join(f"{name} {_time(t)}" for name, t in times[:3])
    facts = [
        f"predicted {_time(result.microseconds)}, {rate}; bound by {result.bound} ({units})",
        f"DRAM: {_bytes(result.bytes_read)} read, {_bytes(result.bytes_written)} written; "
        f"{result.flops:.3g} operations, {result.intensity:.1f} a byte",
        f"{result.tiles} tiles in {result.waves:.2f} waves; {resources.blocks} block"
        f"{'s' * (resources.blocks != 1)} of {resources.threads} threads a multiprocessor "
        f"({resources.occupancy(result.device):.0%} occupancy, limited by {resources.limiter})",
        f"shared memory {_bytes(resources.shared)} a block, at least {resources.registers} registers a thread"
        + (f" ({resources.accumulators} of them accumulators)" if resources.accumulators else "")
        + (f", {resources.stages} stages" if resources.stages > 1 else ""),
    ]
    conflicts = [a for a in shared_accesses(kernel)]
    if conflicts:
        worst = max(a.conflicts.excess for a in conflicts)
        facts.append("no bank conflicts" if worst == 0 else f"bank conflicts: up to {worst + 1} lanes meet in one bank")
    widths = {w.tensor: w.bytes for w in vector_widths(kernel)}
    if widths:
        facts.append("a thread moves " + ", ".join(f"{b} bytes of {t}" for t, b in widths.items()) + " at a time")
    for conversion, times in Counter(map(str, conversions(kernel))).items():
        facts.append(f"conversion of {conversion}" + (f" ({times} times)" if times > 1 else ""))
    return facts


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {v}" for n, v in sizes.items())


def _time(microseconds: float) -> str:
    return f"{microseconds:.1f} µs" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
