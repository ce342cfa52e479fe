"""Counters of a launch: which ones are asked of Nsight Compute, and what its CSV and the traces of torch say.

Names of metrics: https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-reference
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from .protocol import Message

METRICS: Mapping[str, str] = MappingProxyType({
    "time_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_limit_percent": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "conflicts_read": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "conflicts_written": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "sectors_per_load": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "sectors_per_store": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
})  # fmt: skip

REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""What a resident warp does in a cycle: it issues ("selected"), could issue ("not_selected"), or waits for this."""

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
# Each value in the unit that the name of our counter says: microseconds, bytes, percent.
_UNITS: Mapping[str, float] = MappingProxyType({
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6,
    "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
})  # fmt: skip


def metrics() -> list[str]:
    """All metrics that Nsight Compute is asked for."""
    return [*METRICS.values(), *(f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in REASONS)]


def read_csv(text: str) -> list[Message]:
    """Kernels in a raw page: `{"name", "counters", "stalls"}` each, in order of their launches.

    Stalls are shares of the cycles of resident warps; they add up to 1. What is no number is left out. Lines that
    Nsight Compute writes beside the table (`==PROF== …`) may stand anywhere.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    start = next((i for i, row in enumerate(rows) if "Kernel Name" in row), None)
    if start is None or len(rows) < start + 3:
        return []
    header, units = rows[start], rows[start + 1]
    return [_kernel(header, units, row) for row in rows[start + 2 :] if len(row) == len(header)]


def main_kernel(kernels: Sequence[Message]) -> Message:
    """That of the kernel which took longest, with the number of "kernels" of the launch and the time of all."""
    if not kernels:
        return {}
    longest = max(kernels, key=lambda k: k["counters"].get("time_us", 0.0))
    return {**longest, "kernels": len(kernels)}


def read_trace(trace: Message, launches: int) -> Message:
    """The same from a trace of torch.profiler over some launches: time, registers, shared memory, occupancy."""
    found: dict[str, list[Message]] = {}
    events = trace.get("traceEvents")
    for event in cast("list[Any]", events) if isinstance(events, list) else []:
        if isinstance(event, dict) and cast("Message", event).get("cat") == "kernel":
            found.setdefault(str(cast("Message", event).get("name")), []).append(cast("Message", event))
    if not found:
        return {}
    name, runs = max(found.items(), key=lambda item: sum(float(e.get("dur") or 0) for e in item[1]))
    facts: Message = runs[0].get("args") or {}
    names = {
        "registers": "registers per thread", "shared_bytes": "shared memory",
        "occupancy_percent": "est. achieved occupancy %",
    }  # fmt: skip
    counters = {"time_us": statistics.median(float(e.get("dur") or 0) for e in runs)}
    counters |= {ours: float(facts[theirs]) for ours, theirs in names.items() if _is_number(facts.get(theirs))}
    total = sum(len(events) for events in found.values())
    return {"name": name, "counters": counters, "stalls": {}, "kernels": max(1, total // max(1, launches))}


def _kernel(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> Message:
    values: dict[str, float] = {}
    for name, unit, text in zip(header, units, row, strict=True):
        try:
            values[name] = float(text.replace(",", "")) * _UNITS.get(unit.strip().lower().split("/")[0], 1.0)
        except ValueError:
            continue
    stalls = {m[1]: v for name, v in values.items() if (m := _STALL.fullmatch(name)) and v > 0}
    total = sum(stalls.values())
    return {
        "name": row[header.index("Kernel Name")],
        "counters": {ours: values[theirs] for ours, theirs in METRICS.items() if theirs in values},
        "stalls": {reason: v / total for reason, v in stalls.items()},
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
