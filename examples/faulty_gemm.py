"""A faulty matrix product, to see what the verifier says. Compare with gemm_instructions.py.

The compute role releases a stage while the product that reads it may still be in flight. On a GPU this gives wrong
numbers now and then, and only when K is long enough for the ring to come around.

    tilewright check examples/faulty_gemm.py
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

M, N, K = tw.sizes("M", "N", "K")


@tw.func
def grouped_tile(t, rows, columns, group):
    """Tile coordinates of program number t: groups of `group` tile rows, each walked column by column."""
    first = t // (group * columns) * group
    height = min(group, rows - first)  # the last group may be lower
    within = t % (group * columns)
    return first + within % height, within // height


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def faulty_gemm(
    A: Global[f16, M, K],
    B: Global[f16, K, N],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 256,
    BK: Const = 64,
    STAGES: Const = 3,
    GROUP: Const = 16,
):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    a_ring = tw.shared(f16, (STAGES, BM, BK))
    b_ring = tw.shared(f16, (STAGES, BK, BN))
    c_tile = tw.shared(f16, (BM, BN))
    full = tw.barrier(STAGES, arrivals=1)
    empty = tw.barrier(STAGES, arrivals=1)

    with tw.role("compute", warps=8):
        it = 0
        for t in tw.programs(tw.cdiv(M, BM) * tw.cdiv(N, BN), persistent=True):
            pm, pn = grouped_tile(t, tw.cdiv(M, BM), tw.cdiv(N, BN), GROUP)
            acc = tw.zeros(f32, (BM, BN))
            for k in range(0, K, BK):
                tw.wait(full[it % STAGES], it // STAGES % 2)
                acc = tw.wgmma(a_ring[it % STAGES], b_ring[it % STAGES], acc)
                tw.wgmma_wait(2)
                if k > 0:
                    tw.arrive(empty[(it + STAGES - 1) % STAGES])
                it += 1
            tw.wgmma_wait(0)
            if K > 0:
                tw.arrive(empty[(it + STAGES - 1) % STAGES])
            tw.tma_store_wait(0)
            tw.store_shared(c_tile, acc.to(f16))
            tw.fence_async()
            tw.tma_store(C.tile((pm * BM, pn * BN), (BM, BN)), c_tile)
        tw.tma_store_wait(0)

    with tw.role("load", warps=1, registers=24):
        it = 0
        for t in tw.programs(tw.cdiv(M, BM) * tw.cdiv(N, BN), persistent=True):
            pm, pn = grouped_tile(t, tw.cdiv(M, BM), tw.cdiv(N, BN), GROUP)
            for k in range(0, K, BK):
                tw.wait(empty[it % STAGES], it // STAGES % 2 ^ 1)
                tw.expect(full[it % STAGES], (BM * BK + BK * BN) * 2)
                tw.tma_load(A.tile((pm * BM, k), (BM, BK)), a_ring[it % STAGES], full[it % STAGES])
                tw.tma_load(B.tile((k, pn * BN), (BK, BN)), b_ring[it % STAGES], full[it % STAGES])
                it += 1
