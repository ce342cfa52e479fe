"""Matrix product C = A @ B in half precision.

`gemm` says what moves and lets the compiler stage it: one role loads tiles by TMA, another multiplies them with wgmma.
`gemm_sm80` is the same product for GPUs without TMA: every warp issues cp.async copies and computes.

    tilewright check examples/gemm.py
    tilewright lower examples/gemm.py::gemm --emit expanded
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

M, N, K = tw.sizes("M", "N", "K")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def gemm(
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
    # TMA needs rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via="tma")


@tw.kernel(target="sm_80", warps=4, reference="C = A @ B")
def gemm_sm80(
    A: Global[f16, M, K],
    B: Global[f16, K, N],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 32,
    STAGES: Const = 3,
):
    # 16-byte copies need rows that begin at multiples of 16 bytes.
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="cp_async")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="cp_async")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16))
