"""Matrix products of operands that are stored the other way round, as the weights of a linear layer are.

Nothing is moved to transpose them: `.T` of a tile that a pipeline loads is a view of shared memory, and matrix
instructions read either order.

    tilewright check examples/transposed_gemm.py
    tilewright lower examples/transposed_gemm.py::gemm_nt --emit expanded
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

M, N, K = tw.sizes("M", "N", "K")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B.T")
def gemm_nt(
    A: Global[f16, M, K],
    B: Global[f16, N, K],
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
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = A.T @ B")
def gemm_tn(
    A: Global[f16, K, M],
    B: Global[f16, K, N],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 256,
    BK: Const = 64,
    STAGES: Const = 3,
    GROUP: Const = 16,
):
    tw.assume(M % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((k, pm * BM), (BK, BM)), via="tma")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(a.T, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via="tma")


@tw.kernel(target="sm_80", warps=4, reference="C = A.T @ B.T")
def gemm_tt_sm80(
    A: Global[f16, K, M],
    B: Global[f16, N, K],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 32,
    STAGES: Const = 3,
):
    tw.assume(M % 8 == 0)
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            a = tw.load(A.tile((k, pm * BM), (BK, BM)), via="cp_async")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="cp_async")
            acc = tw.mma(a.T, b.T, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16))
