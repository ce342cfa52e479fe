"""Matrix product C = A @ B whose contraction is split over programs: for few tiles of C and a long K.

`split_k_gemm` (or `split_k_gemm_sm80`) writes the product over part s of K to W[s]; `sum_of_parts` then adds the parts
up. SPLITS, the first extent of the workspace W, is the number of parts of PART elements that K has.
`split_k_gemm_atomic` needs neither workspace nor second kernel: all programs add into C, which the launch fills with
zeros, in an order that differs from run to run, and so may the last bits.

The verifier proves that part s covers [s * PART, s * PART + PART), and that all parts together cover K exactly once.
That the sum takes every part once is the loop of `sum_of_parts`, which is plain addition and not checked by tags.

    tilewright check examples/split_k_gemm.py
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

SPLITS, M, N, K = tw.sizes("SPLITS", "M", "N", "K")


@tw.kernel(
    target="sm_90a",
    warps=4,
    reference="W = (A * (arange(K) // PART == arange(SPLITS)[:, None])[:, None, :]) @ B",
)
def split_k_gemm(
    A: Global[f16, M, K],
    B: Global[f16, K, N],
    W: Global[f32, SPLITS, M, N],
    *,
    PART: Const = 512,
    BM: Const = 64,
    BN: Const = 128,
    BK: Const = 64,
    STAGES: Const = 4,
):
    tw.assume(tw.cdiv(K, PART) == SPLITS)
    # TMA needs rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(SPLITS, tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        # Past the end of K the copies fill with zeros, which add nothing.
        for k in tw.pipeline(0, PART, BK, stages=STAGES, roles="split"):
            left = tw.load(A.tile((pm * BM, s * PART + k), (BM, BK)), via="tma")
            right = tw.load(B.tile((s * PART + k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(left, right, acc)
        tw.store(W[s].tile((pm * BM, pn * BN), (BM, BN)), acc)


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="W = (A * (arange(K) // PART == arange(SPLITS)[:, None])[:, None, :]) @ B",
)
def split_k_gemm_sm80(
    A: Global[f16, M, K],
    B: Global[f16, K, N],
    W: Global[f32, SPLITS, M, N],
    *,
    PART: Const = 512,
    BM: Const = 64,
    BN: Const = 64,
    BK: Const = 32,
    STAGES: Const = 3,
):
    tw.assume(tw.cdiv(K, PART) == SPLITS)
    # 16-byte copies need rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(SPLITS, tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, PART, BK, stages=STAGES, roles="single"):
            left = tw.load(A.tile((pm * BM, s * PART + k), (BM, BK)), via="cp_async")
            right = tw.load(B.tile((s * PART + k, pn * BN), (BK, BN)), via="cp_async")
            acc = tw.mma(left, right, acc)
        tw.store(W[s].tile((pm * BM, pn * BN), (BM, BN)), acc)


@tw.kernel(target="sm_80", warps=4, reference="C = W.sum(0)")
def sum_of_parts(W: Global[f32, SPLITS, M, N], C: Global[f16, M, N], *, BM: Const = 16, BN: Const = 128):
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for s in range(SPLITS):
            acc += tw.load(W[s].tile((pm * BM, pn * BN), (BM, BN)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16))


@tw.kernel(target="sm_80", warps=4, reference="C = A @ B")
def split_k_gemm_atomic(
    A: Global[f16, M, K],
    B: Global[f16, K, N],
    C: Global[f32, M, N],
    *,
    PART: Const = 512,
    BM: Const = 64,
    BN: Const = 64,
    BK: Const = 32,
    STAGES: Const = 3,
):
    tw.zeroed(C)
    # 16-byte copies need rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(tw.cdiv(K, PART), tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, PART, BK, stages=STAGES, roles="single"):
            left = tw.load(A.tile((pm * BM, s * PART + k), (BM, BK)), via="cp_async")
            right = tw.load(B.tile((s * PART + k, pn * BN), (BK, BN)), via="cp_async")
            acc = tw.mma(left, right, acc)
        tw.atomic_add(C.tile((pm * BM, pn * BN), (BM, BN)), acc)
