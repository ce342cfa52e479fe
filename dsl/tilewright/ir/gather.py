"""Statements on single elements of a tensor, one for each element of a tile: gathers, copies, scatters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.ir.base import BufRef, Operand, Stmt, TileRef


@dataclass(frozen=True, slots=True)
class Gather(Stmt):
    """`dst[i, …] = tensor[index[0][i, …], …]`: one index for each dimension of the tensor.

    An index is an i32 tile of the rank of `dst` (an extent of 1 stretches) or a scalar. Where `mask`, a tile of truth
    values of that rank, is false, nothing is read and `dst` holds `other`; every other index must be inside.
    `via="cp_async"` is the policy form: a pipeline copies the elements into a ring ahead of their iteration.
    """

    dst: str
    tensor: str
    index: tuple[Operand, ...]
    mask: TileRef | None = None
    other: float | None = None
    via: Literal["direct", "cp_async"] = "direct"


@dataclass(frozen=True, slots=True)
class CpGather(Stmt):
    """Asynchronous copy (generic proxy) of single elements into the shared stage `dst`, each thread its part.

    Indices as in `Gather`, of the rank of the stage; where `mask` is false nothing is read and the stage gets zero.
    Indices and mask are read when the copy is issued.
    """

    dst: BufRef
    tensor: str
    index: tuple[Operand, ...]
    mask: TileRef | None = None


@dataclass(frozen=True, slots=True)
class Scatter(Stmt):
    """`tensor[index[0][i, …], …] = src[i, …]` where `mask` is true; indices as in `Gather`.

    Elements of one statement that go to the same place are written in any order. With `op` they become `op` of what is
    there and the element of `src`, each in one step, as in `Atomic`: all of them count.
    """

    tensor: str
    index: tuple[Operand, ...]
    src: str
    mask: TileRef | None = None
    op: Literal["", "add", "max", "min"] = ""
