"""Index tensors of a job: elements that satisfy what a kernel assumes of its data.

They are made here, where the language is, and travel as values: the machine of the worker has nothing that could read
`tw.assume(lambda t: 0 <= IDS[t] < V)`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.interpret import ArgumentError
from tilewright.interpret.contracts import check_contracts, index_tables
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright_analysis.perf.shapes import Sizes, table_bytes

MOST_BYTES = 4 << 20
"""Bytes of the index tensors of one case, all draws together, before they are compressed."""

Draw = Mapping[str, Any]
"""One array for each tensor that the contracts of the kernel speak of."""


def draws(kernel: ir.Kernel, sizes: Sizes, seed: int, count: int) -> list[Draw]:
    """Up to `count` draws, each with a seed of its own; fewer where they would be larger than `MOST_BYTES`.

    Empty for a kernel that assumes nothing of its data. Raises ArgumentError where one draw is larger than that, and
    where no data was found that satisfies the contracts.
    """
    if not kernel.contracts:
        return []
    size = table_bytes(kernel, sizes)
    if size > MOST_BYTES:
        names = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        raise ArgumentError(
            f"the index tensors of {kernel.name} have {size} bytes for {names}; they are sent with the job, which "
            f"takes at most {MOST_BYTES}: choose smaller sizes"
        )
    fit = min(count, MOST_BYTES // max(1, size))
    return [index_tables(kernel, sizes, np.random.default_rng((seed, i))) for i in range(fit)]


def require_satisfied(kernel: ir.Kernel, names: Sequence[str], drawn: Sequence[Draw], sizes: Sizes) -> None:
    """Raise ArgumentError unless draws made for another kernel, with arguments `names` by position, suit this one."""
    own = dict(zip(names, (a.name for a in kernel.arguments), strict=True))
    for draw in drawn or [{}]:
        tables = {own[name]: table for name, table in draw.items()}
        for contract in kernel.contracts:
            if missing := {i.tensor for i in ex.items(contract.expr)} - tables.keys():
                raise ArgumentError(f"{kernel.name} assumes something of {min(missing)}, the other kernel does not")
        check_contracts(kernel, tables, sizes)


def encoded(kernel: ir.Kernel, draw: Draw) -> dict[str, str]:
    """A draw as text: little-endian elements of the type of each tensor, compressed with zlib, in base64."""
    found: dict[str, str] = {}
    for name, table in draw.items():
        dtype = kernel.param(name).type.dtype
        raw: Any = np.asarray(table).astype(f"<{dtype.kind[0]}{dtype.bytes}")
        found[name] = base64.b64encode(zlib.compress(raw.tobytes())).decode("ascii")
    return found
