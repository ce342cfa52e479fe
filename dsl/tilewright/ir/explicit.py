"""Explicit statements: shared memory, barriers, asynchronous copies, matrix instructions, fences.

The hardware rules are those of the PTX ISA, sections "Asynchronous copy", "mbarrier" and "wgmma".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.ir.base import BarRef, BufRef, Stmt, TileRef, View
from tilewright.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class AllocShared(Stmt):
    """Shared memory `dst`, of type `Kernel.types[dst]` (SharedType); contents undefined."""

    dst: str


@dataclass(frozen=True, slots=True)
class AllocBarrier(Stmt):
    """Barriers `dst`, of type `Kernel.types[dst]` (BarrierType), initialized, in phase 0, and visible to the
    asynchronous proxy when the roles start (the lowering emits the fence).
    """

    dst: str


@dataclass(frozen=True, slots=True)
class BarrierWait(Stmt):
    """Block until the phase of parity `parity` (0 or 1) of the slot has ended. All threads of the role wait."""

    bar: BarRef
    parity: Expr


@dataclass(frozen=True, slots=True)
class BarrierArrive(Stmt):
    """One elected thread of the role arrives, after a role-wide sync that the back end adds (`Sync(auto=True)`)."""

    bar: BarRef


@dataclass(frozen=True, slots=True)
class BarrierExpect(Stmt):
    """One elected thread arrives and announces `bytes` that asynchronous copies will deliver in this phase."""

    bar: BarRef
    bytes: Expr


@dataclass(frozen=True, slots=True)
class TmaLoad(Stmt):
    """Bulk copy of `view` into a shared stage by the asynchronous proxy; zeros past the edge of the tensor.

    Always delivers the bytes of the whole box to `bar`, edge or not. Issued by one elected thread.
    """

    view: View
    dst: BufRef
    bar: BarRef


@dataclass(frozen=True, slots=True)
class TmaStore(Stmt):
    """Bulk copy of a shared stage to `view`, committed as one group of the issuing thread; clipped at the edge."""

    view: View
    src: BufRef


@dataclass(frozen=True, slots=True)
class TmaStoreWait(Stmt):
    """Block until at most `pending` bulk-store groups of this role still read shared memory."""

    pending: int


@dataclass(frozen=True, slots=True)
class CpAsync(Stmt):
    """Asynchronous copy (generic proxy) of `view` into a shared stage, each thread its part; zeros past the edge."""

    view: View
    dst: BufRef


@dataclass(frozen=True, slots=True)
class CpCommit(Stmt):
    """Close the group of the cp.async copies issued since the last commit (a group may be empty)."""


@dataclass(frozen=True, slots=True)
class CpWait(Stmt):
    """Block until at most `pending` cp.async groups of the *own* thread are in flight. `Sync` shows them to others."""

    pending: int


@dataclass(frozen=True, slots=True)
class SharedLoad(Stmt):
    """`dst = src`: a shared stage into registers (generic proxy)."""

    dst: str
    src: BufRef


@dataclass(frozen=True, slots=True)
class SharedStore(Stmt):
    """`dst = src`: a register tile into a shared stage (generic proxy)."""

    dst: BufRef
    src: str


@dataclass(frozen=True, slots=True)
class Atomic(Stmt):
    """Each element of `view` inside the tensor becomes `op` of itself and the element of the tile `src`, in one step.

    Elements past the edge, and those where the tile `mask` is false, are left out. Relaxed order, scope of the GPU:
    updates of one element by any programs all count, in no order; nothing else is ordered with them.
    """

    view: View
    op: Literal["add", "max", "min"]
    src: str
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class Wgmma(Stmt):
    """Issue `dst = a @ b + acc` asynchronously, as one group; operands are read from shared memory by the async proxy.

    `a` may be a register tile instead; its name must not be assigned again before a wait that covers the group, since
    the instruction reads the registers as long as it is in flight (PTX ISA, wgmma.mma_async). `dst` is usable after a
    `WgmmaWait` that covers the group. sm_90a; M a multiple of 64 a warpgroup, N of 8 up to 256.
    """

    dst: str
    a: BufRef | TileRef
    b: BufRef
    acc: str


@dataclass(frozen=True, slots=True)
class WgmmaWait(Stmt):
    """Block until at most `pending` wgmma groups of the warpgroup are in flight."""

    pending: int


@dataclass(frozen=True, slots=True)
class AllocTensor(Stmt):
    """Tensor memory `dst`, of type `Kernel.types[dst]` (TensorMemoryType); contents undefined."""

    dst: str


@dataclass(frozen=True, slots=True)
class Tcgen05(Stmt):
    """One elected thread issues `acc = a @ b`, plus what `acc` holds if `accumulate` is not 0, asynchronously.

    Operands are read from shared memory and `acc` is written in tensor memory by the asynchronous proxy. Products of
    one thread execute in order. When this one and those before it are complete, one arrival counts on `bar` (PTX ISA,
    "tcgen05.mma" and "tcgen05.commit"). sm_100a.
    """

    acc: BufRef
    a: BufRef
    b: BufRef
    accumulate: Expr
    bar: BarRef


@dataclass(frozen=True, slots=True)
class Tcgen05Commit(Stmt):
    """One elected thread: an arrival on `bar` once all its products so far are complete; at once without any."""

    bar: BarRef


@dataclass(frozen=True, slots=True)
class TensorLoad(Stmt):
    """`dst = src`: an accumulator in tensor memory into registers; complete when the statement is (sm_100a).

    Who loads must know, from a barrier, that the products into `src` are complete.
    """

    dst: str
    src: BufRef


@dataclass(frozen=True, slots=True)
class FenceAsync(Stmt):
    """Make this thread's generic-proxy writes to shared memory visible to the asynchronous proxy."""


@dataclass(frozen=True, slots=True)
class Sync(Stmt):
    """Barrier over all threads of the role (of the program, outside of roles).

    `auto`: added by the back end by itself; it is explicit here so that the verifier sees what runs. The printer leaves
    it out and the front end puts it back (`tilewright.ir.backend_sync`).
    """

    auto: bool = False
