"""The static performance model: what bounds a kernel at given sizes, and how long it should take.

Time is the largest of the times that each unit of the machine needs by itself (roofline, Williams et al. 2009), plus
what cannot overlap: the start of the launch, and the beginning and end of each tile. Rates are those of `devices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.expand import expand
from tilewright.ir import nodes as ir
from tilewright_analysis.perf.devices import LATENCY_S, LAUNCH_S, Device, device_for
from tilewright_analysis.perf.resources import Resources, measure_resources
from tilewright_analysis.perf.traffic import Access, Product, Work, count_work

Bound = Literal["DRAM bandwidth", "L2 bandwidth", "tensor cores", "arithmetic", "shared memory", "latency", "launch"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit, and how it was obtained."""

    name: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the model says of one kernel at one set of sizes on one device. Bytes, FLOPs and microseconds.

    `bound` is the unit that needs longest, `microseconds` the predicted time, `times` the microseconds of each unit.
    `waves` is tiles over the tiles that run at a time; `wave_efficiency` the share of the slots that the last wave and
    the ones before fill together. `figures` are all numbers in words.
    """

    device: Device
    sizes: Mapping[str, int]
    bytes_read: float
    bytes_written: float
    flops: float
    intensity: float
    bound: Bound
    microseconds: float
    times: Mapping[str, float]
    resources: Resources
    tiles: int
    waves: float
    wave_efficiency: float
    accesses: tuple[Access, ...]
    products: tuple[Product, ...]
    figures: tuple[Figure, ...]

    @property
    def tflops(self) -> float:
        """Predicted throughput in TFLOP/s."""
        return self.flops / self.microseconds / 1e6

    @property
    def bandwidth(self) -> float:
        """Predicted DRAM throughput in GB/s."""
        return (self.bytes_read + self.bytes_written) / self.microseconds / 1e3


def estimate(
    kernel: ir.Kernel, sizes: Mapping[str, int], target: str | Device = "H200", registers: int | None = None
) -> Estimate:
    """Judge a kernel, policy or explicit, at the given sizes.

    `target` names a device ("H200", "A100"). `registers` is what the compiler reported for a thread, if known. Raises
    ExpansionError or LayoutError for a kernel that cannot be expanded, EvaluationError when a size is missing.
    """
    device = target if isinstance(target, Device) else device_for(target)
    explicit = expand(kernel)
    resources = measure_resources(explicit, device, registers)
    slots = device.sms * max(1, resources.blocks)
    work = count_work(explicit, sizes, slots, device.l2)
    times = _times(work, resources, device)
    overhead = LAUNCH_S * 1e6 + _per_tile(explicit, work, resources, device)
    # With two stages a copy waits for the product before it and the next product for the copy: 256 × 192 × 64 tiles
    # measured as long as both together on an H200 (docs/measurements.md).
    serial = resources.stages <= 2 and bool(work.products) and "latency" in times
    busiest = max(times, key=lambda name: times[name]) if times else "launch"
    body = sum(times[n] for n in ("latency", busiest)) if serial and busiest != "latency" else times.get(busiest, 0.0)
    total = body + overhead
    bound: Bound = "launch" if overhead > body else busiest  # pyright: ignore[reportAssignmentType]
    read = sum(a.dram for a in work.accesses if not a.write)
    written = sum(a.dram for a in work.accesses if a.write)
    flops = sum(p.flops for p in work.products) or work.elementwise
    waves = work.tiles / slots
    efficiency = waves / -(-work.tiles // slots) if work.tiles else 1.0
    intensity = flops / (read + written) if read + written else 0.0
    figures = _figures(device, work, resources, times, read, written, flops, intensity, total, bound, waves, efficiency)
    return Estimate(
        device, dict(sizes), read, written, flops, intensity, bound, total, times, resources, work.tiles, waves,
        efficiency, tuple(work.accesses), tuple(work.products), figures,
    )  # fmt: skip


def _times(work: Work, resources: Resources, device: Device) -> dict[str, float]:
    """Microseconds of each unit by itself. A unit of a multiprocessor waits for the one that has most tiles."""
    per_sm = -(-work.tiles // device.sms) * device.sms / work.tiles if work.tiles else 1.0
    dram = sum(a.dram for a in work.accesses)
    l2 = sum(a.l2 for a in work.accesses)
    times = {
        "DRAM bandwidth": dram / device.dram,
        "L2 bandwidth": l2 / device.l2_rate,
        "tensor cores": sum(
            p.flops / device.tensor_rate(p.instr if p.instr in device.tensor else "mma_v2", p.bits)
            for p in work.products
        ) * per_sm,
        "arithmetic": max(work.elementwise / device.scalar, work.special / device.special) * per_sm,
        "shared memory": work.shared / (device.shared_rate * device.sms) * per_sm,
        "latency": _latency(work, resources, device),
    }  # fmt: skip
    return {name: seconds * 1e6 for name, seconds in times.items() if seconds > 0}


def _latency(work: Work, resources: Resources, device: Device) -> float:
    """Seconds when loads wait for each other: bytes in flight over latency is the rate (Little's law).

    A ring keeps all stages but one in flight; loads into registers are issued together, all that a tile's body has.
    """
    asynchronous = sum(a.l2 for a in work.accesses if not a.write and a.kind != "direct")
    direct = sum(a.l2 for a in work.accesses if not a.write and a.kind == "direct")
    blocks = min(device.sms * max(1, resources.blocks), max(1, work.tiles))
    seconds = 0.0
    if asynchronous and resources.stage_bytes:
        seconds += asynchronous * LATENCY_S / (max(1, resources.stages - 1) * resources.stage_bytes * blocks)
    if direct:
        boxes = {a.tensor: a.box for a in work.accesses if not a.write and a.kind == "direct"}
        seconds += direct * LATENCY_S / (sum(boxes.values()) * blocks)
    return seconds


def _per_tile(kernel: ir.Kernel, work: Work, resources: Resources, device: Device) -> float:
    """Microseconds at the beginning and end of tiles in which the tensor cores idle; other blocks can hide them."""
    if not work.products or not work.tiles:
        return 0.0
    rounds = -(-work.tiles // (device.sms * max(1, resources.blocks)))
    out = sum(a.l2 for a in work.accesses if a.write) / work.tiles
    # Accumulators go through shared memory once in and once out.
    epilogue = 2 * out / device.shared_rate
    persistent = any(isinstance(s, ir.Programs) and s.persistent for s in ir.walk(kernel.body))
    # A loading role runs ahead into the next tile; otherwise each tile begins with an empty ring.
    fill = LATENCY_S if not (persistent and any(isinstance(s, ir.Roles) for s in kernel.body)) else 0.0
    return (rounds * epilogue + (rounds * fill if resources.blocks <= 1 else fill) + LATENCY_S) * 1e6


def _figures(
    device: Device, work: Work, resources: Resources, times: Mapping[str, float], read: float, written: float,
    flops: float, intensity: float, total: float, bound: str, waves: float, efficiency: float,
) -> tuple[Figure, ...]:  # fmt: skip
    padding = "those of padding included" if work.products else "operations on elements"
    counted = "counted over a sample of the programs" if work.sampled else "counted over all programs"
    slots = device.sms * max(1, resources.blocks)
    return (
        Figure(
            "predicted time", total, "us", f"largest of the times below, plus launch and tile ends; {device.source}"
        ),
        *(Figure(f"time for {n}", t, "us", "amount over the rate of the device") for n, t in times.items()),
        Figure("read from DRAM", read, "B", f"{counted}; tiles that {slots} programs share at a time count once"),
        Figure("written to DRAM", written, "B", counted),
        Figure("read and written at L2", sum(a.l2 for a in work.accesses), "B", f"{counted}, clipped at the edges"),
        Figure("operations", flops, "FLOP", f"{counted}, {padding}"),
        Figure("intensity", intensity, "FLOP/B", "operations over bytes of DRAM"),
        Figure("shared memory of a block", resources.shared, "B", "rings, tiles and barriers as declared"),
        Figure("registers of a thread", resources.registers, "", "lower bound: live tiles by their layouts, plus 24"),
        Figure("accumulators of a thread", resources.accumulators, "registers", "from the layout of the accumulator"),
        Figure("blocks of a multiprocessor", resources.blocks, "", f"limited by {resources.limiter}"),
        Figure("tiles", work.tiles, "", "the grid at these sizes"),
        Figure("waves", waves, "", f"{work.tiles} tiles over {slots} at a time, {efficiency:.0%} of the slots filled"),
        Figure("stages", resources.stages, "", "of the deepest ring"),
        Figure("bound", 0.0, bound, "the unit that needs longest"),
    )
