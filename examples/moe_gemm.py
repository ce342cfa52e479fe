"""Grouped GEMM of a mixture of experts: rows are sorted by expert, and offsets say where each expert's rows begin."""

import tilewright as tw
from tilewright import Const, Global, bf16, f32, i32

R, E, K, N = tw.sizes("R", "E", "K", "N")


# As a baseline the reference would be unfair: it multiplies every row by the weights of every expert.
@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
        EXPERT = (arange(R)[:, None] >= OFFSETS[1:]).sum(1)
        Y = ((X * (EXPERT == arange(E)[:, None])[:, :, None]) @ W).sum(0)
    """,
)
def moe_gemm(
    X: Global[bf16, R, K], W: Global[bf16, E, K, N], OFFSETS: Global[i32, E + 1], Y: Global[bf16, R, N],
    *, BM: Const = 64, BN: Const = 64, BK: Const = 32,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    tw.assume(OFFSETS[0] == 0)
    tw.assume(OFFSETS[E] == R)
    tw.assume(lambda e: OFFSETS[e] <= OFFSETS[e + 1])
    for e, pn in tw.tiles(E, tw.cdiv(N, BN)):
        start = tw.load(OFFSETS[e])
        end = tw.load(OFFSETS[e + 1])
        for r in range(start, end, BM):
            acc = tw.zeros(f32, (BM, BN))
            for k in tw.pipeline(0, K, BK, stages=3):
                x = tw.load(X.tile((r, k), (BM, BK)), other=0.0)
                w = tw.load(W[e].tile((k, pn * BN), (BK, BN)), other=0.0)
                acc = tw.mma(x, w, acc)
            # The last tile of an expert may reach into the rows of the next one, which are not its to write.
            rows = r + tw.arange(BM)
            tw.store(Y.tile((r, pn * BN), (BM, BN)), acc.to(bf16), mask=(rows < end)[:, None])
