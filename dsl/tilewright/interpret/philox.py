"""Random numbers: the counter-based generator Philox 4x32-10, with the counters and keys of Triton's `tl.rand`.

Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 4.3 and table 2.
"""

from __future__ import annotations

import numpy as np

from tilewright.interpret.numeric import Array

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


def random_bits(seed: Array | int | float, offsets: Array) -> Array:
    """A u32 for each offset: the first word of the block whose counter is the offset and whose key is the seed.

    Args:
        seed: an integer, or integers that broadcast with the offsets; its 64 bits (sign-extended) are the key.
        offsets: integers; types of more than 32 bits use two words of the counter.
    """
    key = np.asarray(seed).astype(np.int64).astype(np.uint64)
    key, wide = np.broadcast_arrays(key, offsets.astype(np.uint64))
    k0, k1 = key & _MASK, key >> _HALF
    c0, c1 = wide & _MASK, (wide >> _HALF if offsets.dtype.itemsize > 4 else np.zeros_like(wide))
    c2, c3 = np.zeros_like(wide), np.zeros_like(wide)
    a, b = (np.uint64(m) for m in _MULTIPLIERS)
    for _ in range(_ROUNDS):
        first, second = a * c0, b * c2
        c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _MASK, (first >> _HALF) ^ c3 ^ k1, first & _MASK
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _MASK, (k1 + np.uint64(_WEYL[1])) & _MASK
    return c0.astype(np.uint32)


def uniform(bits: Array) -> Array:
    """Random bits as float32 in [0, 1): the magnitude of the signed integer, scaled so that none rounds up to 1."""
    signed = bits.astype(np.uint32).view(np.int32)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)
