"""Shared-memory bank conflicts of moving a tile between registers and shared memory.

NVIDIA shared memory has 32 banks of 4 bytes; one wavefront serves one word of each bank (CUDA C++ Programming Guide,
"Shared Memory"). A vectorised access of 8 or 16 bytes per lane is served in 2 or 4 groups of 16 or 8 lanes.
Lanes that read the same word share it. The count is that of Triton's `getSharedBankConflicts`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import f2
from .algebra import compose
from .errors import LayoutError
from .index_map import IndexMap, Table

BANKS = 32
BANK_BITS = 32
WIDEST_ACCESS_BITS = 128


@dataclass(frozen=True)
class BankConflicts:
    """What one warp-wide access costs.

    Attributes:
        vector_bits: bits that each lane moves at once.
        wavefronts: wavefronts of the worst access of one warp.
        excess: wavefronts over the fewest possible, per group of lanes; 0 is free of conflicts.
    """

    vector_bits: int
    wavefronts: int
    excess: int


def bank_conflicts(registers: IndexMap, shared: IndexMap, element_bits: int) -> BankConflicts:
    """Conflicts of the accesses that move a tile between `registers` and `shared`.

    Args:
        registers: (register, lane, warp) -> coordinates.
        shared: the same coordinates -> offset in elements.
        element_bits: 8, 16, 32 or 64.
    """
    if element_bits not in (8, 16, 32, 64):
        raise LayoutError(f"elements of {element_bits} bits: 8, 16, 32 or 64 expected")
    names = [axis.name for axis in registers.inputs]
    if names[:2] != ["register", "lane"]:
        raise LayoutError(f"a register layout has inputs register, lane, …, not {', '.join(names)}")
    address = compose(shared, registers)
    vector, rest = _vector(address, element_bits)
    lanes = registers.inputs[1].extent
    vector_bits = vector * element_bits
    groups = max(1, vector_bits // BANK_BITS)
    accesses = address.table.reshape(-1, lanes, registers.inputs[0].extent)[:, :, rest]
    words = accesses.transpose(0, 2, 1).reshape(-1, lanes) * element_bits // BANK_BITS
    worst_total, worst_excess = 0, 0
    for access in np.unique(words, axis=0):
        counts = [_wavefronts(part, groups) for part in np.split(access, groups)]
        worst_total = max(worst_total, sum(counts))
        worst_excess = max(worst_excess, max(counts) - 1)
    return BankConflicts(vector_bits, worst_total, worst_excess)


def _vector(address: IndexMap, element_bits: int) -> tuple[int, list[int]]:
    """Elements of the widest vector, and the registers that start one."""
    strides: list[tuple[str, int]] = []
    for axis in address.inputs:
        for bit in range(f2.log2_exact(axis.extent)):
            strides.append((axis.name, 1 << bit))
    origin = address.origin
    linear = address.columns is not None
    images = [_image(address, name, place) for name, place in strides]
    images = [image ^ origin if linear else image - origin for image in images]
    registers = [image for (name, _), image in zip(strides, images, strict=True) if name == "register"]
    vector, chosen = 1, list[int]()
    while vector * 2 * element_bits <= WIDEST_ACCESS_BITS and vector in registers:
        others = [image for position, image in enumerate(images) if position not in chosen]
        others.remove(vector)
        if origin % (2 * vector) or any(image % (2 * vector) for image in others):
            break
        chosen.append(images.index(vector))
        vector *= 2
    starts: list[int] = []
    count = address.inputs[0].extent
    taken = {strides[position][1] for position in chosen}
    for register in range(count):
        if not any(register & place for place in taken):
            starts.append(register)
    return vector, starts


def _image(address: IndexMap, name: str, place: int) -> int:
    scale = 1
    for axis in address.inputs:
        if axis.name == name:
            return address.at(scale * place)
        scale *= axis.extent
    raise LayoutError(f"the layout has no input {name}")


def _wavefronts(words: Table, span: int) -> int:
    """Most distinct words in one bank, for lanes that each read `span` words from an aligned address."""
    touched = np.unique((words[:, None] + np.arange(span)).reshape(-1))
    return int(np.bincount(touched % BANKS, minlength=BANKS).max())
