"""Matrix products of 8-bit floats: C = A @ Bᵀ, where A and B hold `f8e4m3` and scales restore the range.

wgmma reads 8-bit operands with K contiguous, so B is stored as (N, K), as the weights of a linear layer are.

`fp8_gemm` has a scale for each row of A and of B, applied at the end. `fp8_gemm_blocks` has one for each row of A and
128 elements of K, and one for each 128×128 block of B. Both start each 128 elements of K from zeros and add up in f32:
wgmma adds up 8-bit products in fewer bits, and over K = 4096 in one accumulator some of 16 million results were off by
a tenth on an H200. `fp8_gemm_sm89` is the first for GPUs without wgmma, and for gfx950.

    tilewright check examples/fp8_gemm.py
    tilewright lower examples/fp8_gemm.py::fp8_gemm_sm89 --target gfx950 --emit amdgcn
"""

import tilewright as tw
from tilewright import Const, Global, bf16, f8e4m3, f32

M, N, K = tw.sizes("M", "N", "K")


@tw.kernel(
    target="sm_90a",
    warps=8,
    reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).bfloat16()",
)
def fp8_gemm(
    A: Global[f8e4m3, M, K],
    SA: Global[f32, M],
    B: Global[f8e4m3, N, K],
    SB: Global[f32, N],
    C: Global[bf16, M, N],
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
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = acc + tw.mma(a, b.T, tw.zeros(f32, (BM, BN)))
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        scaled = acc * sa[:, None] * sb[None, :]
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), scaled.to(bf16), via="tma")


KB, NB = tw.sizes("KB", "NB")


@tw.kernel(
    target="sm_90a",
    warps=8,
    reference="""
        X = (A.float() * SA.T.repeat_interleave(128, 1)[:, :K]).bfloat16()
        W = (B.float() * SB.repeat_interleave(128, 0)[:N].repeat_interleave(128, 1)[:, :K]).bfloat16()
        C = (X @ W.T).bfloat16()
    """,
)
def fp8_gemm_blocks(
    A: Global[f8e4m3, M, K],
    SA: Global[f32, KB, M],
    B: Global[f8e4m3, N, K],
    SB: Global[f32, NB, KB],
    C: Global[bf16, M, N],
    *,
    BM: Const = 128,
    STAGES: Const = 4,
    GROUP: Const = 16,
):
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    tw.assume(tw.cdiv(K, 128) == KB)
    tw.assume(tw.cdiv(N, 128) == NB)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, 128), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, 128))
        for k in tw.pipeline(0, K, 128, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, 128)), via="tma")
            b = tw.load(B.tile((pn * 128, k), (128, 128)), via="tma")
            part = tw.mma(a, b.T, tw.zeros(f32, (BM, 128)))
            sa = tw.load(SA[k // 128].tile((pm * BM,), (BM,)), other=0.0, via="direct")
            sb = tw.load(SB.tile((pn, k // 128), (1, 1)), via="direct")
            acc = acc + part * (sa[:, None] * sb)
        tw.store(C.tile((pm * BM, pn * 128), (BM, 128)), acc.to(bf16), via="tma")


@tw.kernel(
    target="sm_89",
    warps=4,
    reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).bfloat16()",
)
def fp8_gemm_sm89(
    A: Global[f8e4m3, M, K],
    SA: Global[f32, M],
    B: Global[f8e4m3, N, K],
    SB: Global[f32, N],
    C: Global[bf16, M, N],
    *,
    BM: Const = 128,
    BN: Const = 128,
    BK: Const = 64,
    STAGES: Const = 3,
):
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)))
            b = tw.load(B.tile((pn * BN, k), (BN, BK)))
            acc = tw.mma(a, b.T, acc)
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        scaled = acc * sa[:, None] * sb[None, :]
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), scaled.to(bf16))
