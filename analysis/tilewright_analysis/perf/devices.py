"""Devices of the performance model: rates, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import nodes as ir
from tilewright.targets import TARGETS, Target

# From the issue of a load to its data while DRAM is busy; assumed, about 1.4 k cycles. An idle H100 needs about half.
LATENCY_S = 0.8e-6
# From the end of one kernel to the start of the next on one stream; assumed.
LAUNCH_S = 2.5e-6


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Rates are a second, sizes in bytes; `tensor` gives the f16 FLOP/s of each matrix instruction.

    `scalar` and `special` are operations a second on single elements: 128 additions and 16 special functions a cycle
    and multiprocessor, 64 and 16 on an A100 (CUDA C++ Programming Guide, "Throughput of Native Arithmetic
    Instructions"). Rates are what a long kernel sustains, not the peak of the data sheet; `source` says where from.
    """

    name: str
    target: str
    sms: int
    clock: float
    dram: float
    l2: int
    l2_rate: float
    scalar: float
    special: float
    tensor: dict[str, float]
    source: str

    @property
    def limits(self) -> Target:
        """Resources of a multiprocessor and a block."""
        return TARGETS[self.target]

    @property
    def shared_rate(self) -> float:
        """Bytes a second of one multiprocessor's shared memory: 32 banks of 4 bytes (CUDA C++ Programming Guide)."""
        return 128 * self.clock

    def tensor_rate(self, instr: str, bits: int) -> float:
        """FLOP/s of a matrix instruction on operands of `bits` bits: half the f16 rate for tf32, twice for 8 bits."""
        return self.tensor[instr] * 16 / bits


# Sustained rates of one H200 (docs/measurements.md). While its tensor cores are busy, f16 products by wgmma run at
# 800 TFLOP/s: with that the model gives the times of a GEMM at four shapes (753 to 792 TFLOP/s) within 3 %.
_WGMMA = 800e12
# A single-role GEMM by cp.async and mma.sync reached 406 of them. The instruction alone would allow 62.9 % of the peak
# of 989 TFLOP/s (Luo et al., arXiv:2402.13499); loading operands into registers in between costs the rest.
_MMA_ON_HOPPER = 425e12
# Share of the data sheet's bandwidth that a copy reached: 4.23 of 4.8 TB/s (elementwise kernels 4.27).
_DRAM_SHARE = 4.25 / 4.8
# L2 to SM: 5120 bytes a cycle (NVIDIA A100 architecture whitepaper).
_L2_BYTES = 5120
# Not published for Hopper. Tiles of GEMMs, which several multiprocessors ask for at a time, arrived at up to 14.6 TB/s
# (64 × 128 × 64 at 4096 × 14336 × 4096 on one H200, docs/measurements.md): requests for one line are merged before L2.
_L2_BYTES_ON_HOPPER = 8000

H200 = Device(
    name="H200",
    target="sm_90a",
    sms=132,
    clock=1.83e9,
    dram=4.25e12,
    l2=50 << 20,
    l2_rate=_L2_BYTES_ON_HOPPER * 1.83e9,
    scalar=132 * 128 * 1.83e9,
    special=132 * 16 * 1.83e9,
    tensor={"wgmma": _WGMMA, "mma_v2": _MMA_ON_HOPPER},
    source="DRAM and wgmma rates measured on an H200, the rest from NVIDIA's H200 data sheet",
)
H100 = Device(
    name="H100 SXM",
    target="sm_90a",
    sms=132,
    clock=1.83e9,
    dram=3.35e12 * _DRAM_SHARE,
    l2=50 << 20,
    l2_rate=_L2_BYTES_ON_HOPPER * 1.83e9,
    scalar=132 * 128 * 1.83e9,
    special=132 * 16 * 1.83e9,
    tensor={"wgmma": _WGMMA, "mma_v2": _MMA_ON_HOPPER},
    source="NVIDIA's H100 data sheet; DRAM times the share that an H200 reached, whose chip is the same",
)
A100 = Device(
    name="A100 SXM 80 GB",
    target="sm_80",
    sms=108,
    clock=1.41e9,
    dram=2.039e12 * _DRAM_SHARE,
    l2=40 << 20,
    l2_rate=_L2_BYTES * 1.41e9,
    scalar=108 * 64 * 1.41e9,
    special=108 * 16 * 1.41e9,
    tensor={"mma_v2": 312e12 * 0.85},
    source="NVIDIA's A100 data sheet; DRAM times the share that an H200 reached, tensor cores times 0.85 (assumed)",
)

DEVICES: tuple[Device, ...] = (H200, H100, A100)


def has_model(kernel: ir.Kernel) -> bool:
    """Whether the devices say anything about the kernel: they are of the architectures sm_80 and sm_90a."""
    target = TARGETS[kernel.target]
    return target.backend == "cuda" and not target.has("tcgen05")


def device_for(name: str) -> Device:
    """The device of that name ("H200", "NVIDIA H200"), or the default one for a target ("sm_80").

    Kernels for sm_80 and up are judged on an H200 as well, unless the name says A100. Anything else gives the H200.
    """
    for device in DEVICES:
        if device.name.split()[0].lower() in name.lower():
            return device
    return H200
