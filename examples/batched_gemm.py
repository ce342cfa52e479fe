"""Batched matrix product C[b] = A[b] @ B[b] in half precision.

An index fixes the leading dimension of a tensor, so `A[b]` is a matrix and `A[b].tile(…)` a tile of it. The verifier
proves that every matrix of the batch is computed, once, and from the matrices with its own number.

`batched_gemm` uses TMA and wgmma; groups of tile rows are walked within one matrix after the other. `batched_gemm_sm80`
is the same product for GPUs without TMA.

    tilewright check examples/batched_gemm.py
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

BATCH, M, N, K = tw.sizes("BATCH", "M", "N", "K")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def batched_gemm(
    A: Global[f16, BATCH, M, K],
    B: Global[f16, BATCH, K, N],
    C: Global[f16, BATCH, M, N],
    *,
    BM: Const = 128,
    BN: Const = 256,
    BK: Const = 64,
    STAGES: Const = 3,
    GROUP: Const = 16,
):
    # TMA needs rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for b, pm, pn in tw.tiles(BATCH, tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            left = tw.load(A[b].tile((pm * BM, k), (BM, BK)), via="tma")
            right = tw.load(B[b].tile((k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(left, right, acc)
        tw.store(C[b].tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via="tma")


@tw.kernel(target="sm_80", warps=4, reference="C = A @ B")
def batched_gemm_sm80(
    A: Global[f16, BATCH, M, K],
    B: Global[f16, BATCH, K, N],
    C: Global[f16, BATCH, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 32,
    STAGES: Const = 3,
):
    # 16-byte copies need rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for b, pm, pn in tw.tiles(BATCH, tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            left = tw.load(A[b].tile((pm * BM, k), (BM, BK)), via="cp_async")
            right = tw.load(B[b].tile((k, pn * BN), (BK, BN)), via="cp_async")
            acc = tw.mma(left, right, acc)
        tw.store(C[b].tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16))
