"""The instruction level: shared memory, barriers, copies, matrix instructions, fences, with types and documentation.

As in `surface`, the functions tell editors and type checkers what exists; none has a body that does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tilewright.dtypes import DType
from tilewright.surface_values import (
    Accumulator,
    Barrier,
    Scalar,
    Shared,
    SharedLayoutSpec,
    Slot,
    Stage,
    TensorMemory,
    Tile,
    View,
    in_kernel,
)


def shared(dtype: DType, shape: Any, *, layout: SharedLayoutSpec | None = None, ring: bool | None = None) -> Shared:
    """Shared memory. Three dimensions are a ring (stages, rows, columns); `ring=` decides for other ranks.

    The layout defaults to the widest TMA swizzle that fits a row.

    `ring = tw.shared(f16, (3, 128, 64))`: three stages of 128 x 64, 48 KiB.
    """
    in_kernel("shared")


def barrier(slots: int = 1, *, arrivals: int = 1) -> Barrier:
    """`slots` mbarriers. A phase ends after `arrivals` arrivals and when all announced bytes have come.

    `full = tw.barrier(3)`: `full[0]` to `full[2]`.
    """
    in_kernel("barrier")


def wait(bar: Slot, parity: Any) -> None:
    """Block until the phase of that parity (0 or 1; the first phase has parity 0) has ended.

    `tw.wait(full[it % 3], it // 3 % 2)`.
    """
    in_kernel("wait")


def arrive(bar: Slot) -> None:
    """One thread of the role arrives, after all threads of the role have come here. `tw.arrive(empty[it % 3])`."""
    in_kernel("arrive")


@overload
def expect(bar: Slot, bytes: Any) -> None: ...
@overload
def expect(condition: Callable[[Scalar], Any], /) -> None: ...
@overload
def expect(condition: Callable[[Scalar, Scalar], Any], /) -> None: ...
@overload
def expect(condition: Callable[[Scalar, Scalar, Scalar], Any], /) -> None: ...
@overload
def expect(condition: Callable[[Scalar, Scalar, Scalar, Scalar], Any], /) -> None: ...
def expect(bar: Any, bytes: Any = None) -> None:
    """Two operations, told apart by the argument.

    `tw.expect(bar, bytes)`: one thread arrives and announces that asynchronous copies will deliver `bytes` bytes in
    this phase. `tw.expect(lambda i, j: acc[i, j].M == pm * BM + i)`: the condition on tags holds for all elements; the
    verifier shows it, and nothing of it is executed. See `tw.tag`.
    """
    in_kernel("expect")


def tma_load(view: View, dst: Stage, bar: Slot) -> None:
    """Copy a tile into shared memory asynchronously and count its bytes on `bar`; zeros outside the tensor.

    `tw.tma_load(A.tile((i, k), (128, 64)), a_ring[s], full[s])`: equal shapes and types.
    """
    in_kernel("tma_load")


def tma_store(view: View, src: Stage) -> None:
    """Copy a shared tile to global memory asynchronously, as one group; what is outside the tensor is dropped.

    `tw.tma_store(C.tile((i, j), (128, 256)), c_tile)`: equal shapes and types.
    """
    in_kernel("tma_store")


def tma_store_wait(pending: int) -> None:
    """Block until at most `pending` bulk-store groups still read shared memory. `tw.tma_store_wait(0)`."""
    in_kernel("tma_store_wait")


def cp_async(view: View, dst: Stage, *, mask: Tile | None = None) -> None:
    """Copy a tile into shared memory by cp.async, each thread a part; zeros outside the tensor.

    `tw.cp_async(A.tile((i, k), (64, 32)), a_ring[s])`: equal shapes and types. Single elements are copied with
    `tw.cp_async(A.at((rows[:, None], cols[None, :])), a_ring[s], mask=m)`: zeros where the mask is false, and every
    other index must be inside. Neighbours of a row must be contiguous, at least 4 bytes of them.
    """
    in_kernel("cp_async")


def cp_commit() -> None:
    """Close the group of cp.async copies issued since the last commit. `tw.cp_commit()`."""
    in_kernel("cp_commit")


def cp_wait(pending: int) -> None:
    """Block until at most `pending` groups of the own thread are in flight; `tw.sync()` shows them to the others.

    `tw.cp_wait(1)`.
    """
    in_kernel("cp_wait")


def load_shared(src: Stage) -> Tile:
    """A shared tile into registers. `tw.load_shared(ring[s])` has the shape and element type of the stage."""
    in_kernel("load_shared")


def store_shared(dst: Stage, tile: Tile) -> None:
    """A register tile into shared memory; follow with `tw.fence_async()` before TMA or wgmma reads it.

    `tw.store_shared(c_tile, acc.to(f16))`: equal shapes and types.
    """
    in_kernel("store_shared")


def wgmma(a: Stage | Tile, b: Stage, acc: Tile) -> Tile:
    """Issue `a @ b + acc` asynchronously on operands in shared memory (sm_90a); usable after `tw.wgmma_wait`.

    `a` may be a register tile; its name must not get another value before that wait.
    """
    in_kernel("wgmma")


def wgmma_wait(pending: int) -> None:
    """Block until at most `pending` wgmma groups of the warpgroup are in flight. `tw.wgmma_wait(1)`."""
    in_kernel("wgmma_wait")


def tensor_memory(dtype: DType, shape: Any) -> TensorMemory:
    """Accumulators in tensor memory (sm_100a), contents undefined: `(128, N)`, or `(stages, 128, N)` for a ring.

    `dtype` is f32 and N at most 256; all of a kernel share 512 columns. `acc = tw.tensor_memory(f32, (2, 128, 128))`.
    """
    in_kernel("tensor_memory")


def tcgen05_mma(a: Stage, b: Stage, acc: Accumulator, bar: Slot, *, accumulate: Any) -> None:
    """Issue `acc = a @ b` asynchronously on operands in shared memory (sm_100a), plus what `acc` holds if `accumulate`.

    Products of a role execute in order; when this one is complete, one arrival counts on `bar`.

    `tw.tcgen05_mma(a[s], b[s], acc, done, accumulate=k > 0)`.
    """
    in_kernel("tcgen05_mma")


def tcgen05_commit(bar: Slot) -> None:
    """One arrival on `bar` when all products that the role has issued are complete (sm_100a).

    `tw.tcgen05_commit(done)`.
    """
    in_kernel("tcgen05_commit")


def load_tensor(src: Accumulator) -> Tile:
    """Read an accumulator from tensor memory into registers (sm_100a); its products must be known to be complete.

    `tw.load_tensor(acc)` is a tile `f32[128, N]`.
    """
    in_kernel("load_tensor")


def fence_async() -> None:
    """Make this thread's ordinary writes to shared memory visible to TMA and wgmma.

    `tw.fence_async()`, between `tw.store_shared` and `tw.tma_store`.
    """
    in_kernel("fence_async")


def sync() -> None:
    """Barrier over all threads of the role. `tw.sync()`."""
    in_kernel("sync")
