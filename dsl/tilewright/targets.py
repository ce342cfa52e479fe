"""What each GPU target can do: limits and instructions, with where the numbers come from.

NVIDIA: CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical Specifications per Compute
Capability"; instructions from the PTX ISA ("Target ISA Notes" of each instruction). A test asks ptxas for instructions,
threads and blocks. AMD: see `_amd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Feature = Literal["cp_async", "mma_v2", "mbarrier", "tma", "wgmma", "setmaxnreg", "tcgen05", "mfma", "buffer_load"]
Backend = Literal["cuda", "hip"]


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU architecture. Memory in bytes; registers are 32 bits wide and counted for one lane.

    `arch` is what Triton calls the target: the compute capability times ten, or the name of the AMD architecture.
    `shared_per_sm` and the like are for one multiprocessor (AMD: one compute unit). `reserved_shared` is what the
    system takes from `shared_per_sm` for each resident block.
    """

    name: str
    backend: Backend
    arch: int | str
    warp_size: int
    shared_per_block: int
    shared_per_sm: int
    reserved_shared: int
    registers_per_sm: int
    registers_per_thread: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    features: frozenset[Feature]
    cdna: int = 0
    """Generation of AMD's matrix cores, which decides the shapes of mfma; 0: none."""

    def has(self, feature: Feature) -> bool:
        """Whether the instructions behind `feature` exist."""
        return feature in self.features

    def runs(self, other: Target) -> bool:
        """Whether code written for `other` runs here.

        Architecture-specific targets (sm_90a, sm_100a) run nowhere else; the plain ones run on everything newer.
        """
        if self.name == other.name:
            return True
        if self.backend == "hip" or other.backend == "hip" or other.name.endswith("a"):
            return False
        return isinstance(self.arch, int) and isinstance(other.arch, int) and self.arch >= other.arch


TENSOR_MEMORY_ROWS = (64, 128)
"""Rows of an accumulator that one block computes (PTX ISA, "tcgen05.mma", shapes with `.cta_group::1`)."""
TENSOR_MEMORY_COLUMNS = 512
"""Tensor memory of a multiprocessor of sm_100a: 128 lanes of 512 columns of 32 bits (PTX ISA, "Tensor Memory")."""

_AMPERE: frozenset[Feature] = frozenset(("cp_async", "mma_v2", "mbarrier"))
_HOPPER: frozenset[Feature] = _AMPERE | frozenset[Feature](("tma", "wgmma", "setmaxnreg"))
_BLACKWELL: frozenset[Feature] = _AMPERE | frozenset[Feature](("tma", "setmaxnreg", "tcgen05"))
_CDNA: frozenset[Feature] = frozenset(("mfma", "buffer_load"))


def _nvidia(
    name: str, arch: int, shared: tuple[int, int], threads: int, blocks: int, features: frozenset[Feature]
) -> Target:
    block, sm = (size * 1024 for size in shared)
    return Target(name, "cuda", arch, 32, block, sm, 1024, 65536, 255, 1024, threads, blocks, features)


def _amd(name: str, lds: int, cdna: int) -> Target:
    """A compute unit of CDNA3 or CDNA4: 4 SIMDs, each with 512 vector registers (VGPR and AGPR) a lane for up to 8
    waves of 64 lanes.

    LDS and registers: ROCm documentation, "AMD GPU specifications" (LDS 64 and 160 KiB, VGPR file
    512 KiB a compute unit, wavefront size 64); 512 registers a lane: AMD Instinct MI300 and CDNA4 ISA manuals, "VGPRs".
    Waves and work-groups: LLVM, `AMDGPUBaseInfo.cpp` (`getMaxWavesPerEU` is 8 from gfx90a on;
    `getMaxWorkGroupsPerCU`: the compute unit has barriers for 16 groups of several waves). 1024 threads: HIP,
    `hipDeviceProp_t::maxThreadsPerBlock`.
    """
    size = lds * 1024
    return Target(name, "hip", name, 64, size, size, 0, 4 * 512 * 64, 512, 1024, 4 * 8 * 64, 16, _CDNA, cdna)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        _nvidia("sm_80", 80, (163, 164), 2048, 32, _AMPERE),
        _nvidia("sm_86", 86, (99, 100), 1536, 16, _AMPERE),
        _nvidia("sm_89", 89, (99, 100), 1536, 24, _AMPERE),
        _nvidia("sm_90a", 90, (227, 228), 2048, 32, _HOPPER),
        _nvidia("sm_100a", 100, (227, 228), 2048, 32, _BLACKWELL),
        _amd("gfx942", 64, 3),
        _amd("gfx950", 160, 4),
    )
}


def target(name: str) -> Target:
    """The target of that name. Raises KeyError with the list of names."""
    if name not in TARGETS:
        raise KeyError(f"no target '{name}'; there are {', '.join(TARGETS)}")
    return TARGETS[name]
