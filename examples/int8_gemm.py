"""Matrix products of quantized tensors: A and B in i8, sums in i32, and an epilogue that applies their scales.

The sums are exact; only the epilogue rounds. Scales are those of `quantize` in `quantization.py`: one a row of A, and
one a row of B, which is stored as (N, K).

    tilewright check examples/int8_gemm.py
    tilewright lower examples/int8_gemm.py::int8_gemm_sm80 --target gfx942 --emit amdgcn
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32, i8, i32

M, N, K = tw.sizes("M", "N", "K")


@tw.func
def dequantized(acc, sa, sb):
    return (acc.to(f32) * sa[:, None] * sb[None, :]).to(f16)


@tw.kernel(
    target="sm_90a",
    warps=8,
    reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).half()",
)
def int8_gemm(
    A: Global[i8, M, K],
    SA: Global[f32, M],
    B: Global[i8, N, K],
    SB: Global[f32, N],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 128,
    STAGES: Const = 4,
    GROUP: Const = 16,
):
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(i32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), dequantized(acc, sa, sb), via="tma")


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).half()",
)
def int8_gemm_sm80(
    A: Global[i8, M, K],
    SA: Global[f32, M],
    B: Global[i8, N, K],
    SB: Global[f32, N],
    C: Global[f16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 64,
    STAGES: Const = 3,
):
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(i32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)))
            b = tw.load(B.tile((pn * BN, k), (BN, BK)))
            acc = tw.mma(a, b.T, acc)
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), dequantized(acc, sa, sb))
