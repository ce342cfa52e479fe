"""What one block of a kernel occupies, and how many blocks a multiprocessor holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TileType
from tilewright.lower.limits import shared_bytes, total_warps
from tilewright_analysis.perf.devices import Device

# Registers that addresses, loop counters and descriptors take besides tiles; ptxas rarely needs fewer.
_BASE_REGISTERS = 24
_MMA_DEPTH = 16  # elements along K of one mma.sync on 16-bit operands


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one block. `shared` in bytes, `registers` of a thread of the first role (a lower bound).

    `accumulators` are the registers of matrix accumulators among them. `blocks` fit one multiprocessor (0: the kernel
    spills or does not run), `limiter` says which resource stops the next one. `stages` is the depth of the deepest ring
    (1 without rings), `stage_bytes` one stage of all rings together.
    """

    shared: int
    threads: int
    registers: int
    accumulators: int
    blocks: int
    limiter: str
    stages: int
    stage_bytes: int

    def occupancy(self, device: Device) -> float:
        """Share of the threads that a multiprocessor can hold."""
        return self.blocks * self.threads / device.limits.threads_per_sm


def measure_resources(kernel: ir.Kernel, device: Device, registers: int | None = None) -> Resources:
    """Resources of an explicit kernel. `registers` replaces the estimate by what the compiler reported."""
    limits = device.limits
    shared, threads = shared_bytes(kernel), total_warps(kernel) * limits.warp_size
    accumulators = _accumulators(kernel)
    estimated = _BASE_REGISTERS + max(accumulators, _live_registers(kernel))
    used = registers or estimated
    # Registers are given out to warps in units of 256, that is 8 a thread (CUDA occupancy calculator).
    by = {
        "shared memory": limits.shared_per_sm // (shared + limits.reserved_shared),
        "threads": limits.threads_per_sm // threads,
        "registers": limits.registers_per_sm // _block_registers(kernel, used, threads),
        "blocks": limits.blocks_per_sm,
    }
    limiter = min(by, key=lambda name: by[name])
    blocks = by[limiter]
    if used > limits.registers_per_thread:
        limiter, blocks = f"registers: a thread has {limits.registers_per_thread}", 0
    rings = [t for t in kernel.types.values() if isinstance(t, SharedType) and t.ring]
    return Resources(
        shared, threads, used, accumulators, blocks, limiter,
        max((t.stages for t in rings), default=1), sum(t.stage_bytes for t in rings),
    )  # fmt: skip


@lru_cache(maxsize=512)
def tile_registers(tile: TileType, threads: int) -> int:
    """Registers of 32 bits that a thread needs for a tile; copies that its layout keeps are counted."""
    elements = -(-prod(tile.shape) // threads)
    if tile.layout is not None:
        elements = tile.layout.linear(tile.shape).inputs[0].extent
    return -(-elements * tile.dtype.bits // 32)


def _block_registers(kernel: ir.Kernel, used: int, threads: int) -> int:
    """Registers of a block. Roles move registers among each other, so each counts with its own budget."""
    roles = next((s.roles for s in kernel.body if isinstance(s, ir.Roles)), ())
    if not roles:
        return -(-used // 8) * 8 * threads
    others = threads - roles[0].warps * 32
    budget = max((r.registers or _BASE_REGISTERS for r in roles[1:]), default=_BASE_REGISTERS)
    return -(-used // 8) * 8 * (threads - others) + -(-budget // 8) * 8 * others


def _accumulators(kernel: ir.Kernel) -> int:
    names = {s.dst for s in ir.walk(kernel.body) if isinstance(s, ir.Mma | ir.Wgmma)}
    return _sum(kernel, names)


def _sum(kernel: ir.Kernel, names: set[str]) -> int:
    depths = _operand_depths(kernel)
    total = 0
    for name in names:
        tile = kernel.types[name]
        if isinstance(tile, TileType):
            registers = tile_registers(tile, kernel.warps * 32)
            total += -(-registers * min(_MMA_DEPTH, depths[name]) // depths[name]) if name in depths else registers
    return total


def _operand_depths(kernel: ir.Kernel) -> dict[str, int]:
    """Extent along K of the operands of mma_v2: the compiler loads and uses them slice by slice."""
    depths: dict[str, int] = {}
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Mma):
            left = kernel.types[stmt.a]
            assert isinstance(left, TileType)
            depths[stmt.a] = depths[stmt.b] = left.shape[1]
    return depths


def _live_registers(kernel: ir.Kernel) -> int:
    """The most registers that tiles need at one point, by the last use of each name in source order.

    A name that is used before it is assigned in a loop lives through the loop; walking the body twice shows that.
    """
    order: list[ir.Stmt] = []
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.For | ir.While):
            order += [*ir.walk(stmt.body)]
        order.append(stmt)
    last: dict[str, int] = {}
    for i, stmt in enumerate(order):
        for name in _uses(stmt):
            last[name] = i
    live: set[str] = set()
    most = 0
    for i, stmt in enumerate(order):
        # A result may take the registers of an operand that is used here for the last time.
        live = {name for name in live if last.get(name, -1) > i}
        target = getattr(stmt, "dst", None)
        if isinstance(target, str) and isinstance(kernel.types.get(target), TileType):
            live.add(target)
        most = max(most, _sum(kernel, live))
    return most


def _uses(stmt: ir.Stmt) -> set[str]:
    match stmt:
        case ir.Compute(args=args):
            return {a.name for a in args if isinstance(a, ir.TileRef)}
        case ir.Mma(a=a, b=b, acc=acc):
            return {a, b, acc}
        case ir.Wgmma(a=ir.TileRef(name=a), acc=acc):
            return {a, acc}
        case ir.Wgmma(acc=acc):
            return {acc}
        case ir.Gather(index=index, mask=mask) | ir.CpGather(index=index, mask=mask):
            return {i.name for i in (*index, mask) if isinstance(i, ir.TileRef)}
        case ir.Scatter(index=index, mask=mask, src=src):
            return {src, *(i.name for i in (*index, mask) if isinstance(i, ir.TileRef))}
        case ir.Store(src=src) | ir.SharedStore(src=src):
            return {src}
        case ir.Atomic(src=src, mask=mask):
            return {src} if mask is None else {src, mask}
        case _:
            return set()
