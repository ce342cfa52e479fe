"""Counters of a launch in words, beside what the static model says of the same launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.expand import ExpansionError
from tilewright.ir import nodes as ir
from tilewright.ir.expr import EvaluationError
from tilewright.layout import LayoutError
from tilewright_analysis.perf.devices import DEVICES, has_model
from tilewright_analysis.perf.estimate import Estimate, estimate

# What is shown, in this order: the counter, its name for a person, and how its value is written.
_SHOWN = (
    ("time_us", "time", "time"),
    ("dram_read_bytes", "read from DRAM", "bytes"),
    ("dram_written_bytes", "written to DRAM", "bytes"),
    ("dram_percent", "DRAM throughput", "percent"),
    ("l2_percent", "L2 throughput", "percent"),
    ("l2_hit_percent", "L2 hits", "percent"),
    ("l1_percent", "L1 and shared memory throughput", "percent"),
    ("tensor_percent", "tensor cores busy", "percent"),
    ("issue_percent", "issue slots busy", "percent"),
    ("occupancy_percent", "occupancy", "percent"),
    ("occupancy_limit_percent", "occupancy at most", "percent"),
    ("registers", "registers of a thread", "count"),
    ("shared_bytes", "shared memory of a block", "bytes"),
    ("conflicts_read", "bank conflicts, reading", "count"),
    ("conflicts_written", "bank conflicts, writing", "count"),
    ("sectors_per_load", "sectors of a global load", "ratio"),
    ("sectors_per_store", "sectors of a global store", "ratio"),
)  # fmt: skip
_STALLS_SHOWN = 4
_STALL_LEAST = 0.02


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: what was counted, and what the model says ("" where it says nothing)."""

    name: str
    counted: str
    predicted: str = ""


def counted_lines(
    kernel: ir.Kernel, sizes: Mapping[str, int], device: str, counters: Mapping[str, float]
) -> tuple[Line, ...]:
    """Counters (named as in `worker.counters`: microseconds, bytes, percent) beside the estimate.

    The estimate is at the same sizes; there is none for devices without a model and kernels that cannot be expanded.
    """
    predicted = model_figures(_estimate(kernel, sizes, device))
    return tuple(
        Line(name, _write(counters[key], how), _write(predicted[key], how) if key in predicted else "")
        for key, name, how in _SHOWN
        if key in counters
    )


def stall_text(stalls: Mapping[str, float]) -> str:
    """The largest shares of what warps did, such as "long scoreboard 41 %, wait 20 %"; empty without counters."""
    largest = sorted(stalls.items(), key=lambda item: -item[1])[:_STALLS_SHOWN]
    return ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in largest if share >= _STALL_LEAST)


def model_figures(result: Estimate | None) -> Mapping[str, float]:
    """What an estimate says of counters, by their names."""
    if result is None:
        return {}
    figures = {
        "time_us": result.microseconds,
        "dram_read_bytes": result.bytes_read, "dram_written_bytes": result.bytes_written,
        "dram_percent": 100 * result.times.get("DRAM bandwidth", 0.0) / result.microseconds,
        "shared_bytes": result.resources.shared,
    }  # fmt: skip
    if result.resources.blocks:  # otherwise the model takes more tiles for alive at a time than the compiler keeps
        figures["occupancy_limit_percent"] = 100 * result.resources.occupancy(result.device)
        figures["registers"] = result.resources.registers
    if result.products:
        figures["tensor_percent"] = 100 * result.times.get("tensor cores", 0.0) / result.microseconds
    return figures


def _estimate(kernel: ir.Kernel, sizes: Mapping[str, int], device: str) -> Estimate | None:
    known = next((d for d in DEVICES if d.name.split()[0].lower() in device.lower()), None)
    if known is None or not has_model(kernel):
        return None
    try:
        return estimate(kernel, sizes, known)
    except (ExpansionError, LayoutError, EvaluationError):
        return None


def _write(value: float, how: str) -> str:
    match how:
        case "time":
            return f"{value:.1f} µs" if value < 1000 else f"{value / 1000:.2f} ms"
        case "bytes":
            unit, size = next(((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)) if value >= s), ("B", 1.0))
            return f"{value / size:.1f} {unit}" if size > 1 else f"{value:.0f} B"
        case "percent":
            return f"{value:.1f} %"
        case "ratio":
            return f"{value:.1f}"
        case _:
            return f"{value:,.0f}"
