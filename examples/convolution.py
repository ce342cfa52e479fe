"""2-D convolution as an implicit matrix product: a row for each output pixel, summed over filter taps and channels."""

import tilewright as tw
from tilewright import Const, Global, f16, f32

N, H, W, C, K, R, S, P, Q = tw.sizes("N", "H", "W", "C", "K", "R", "S", "P", "Q")


@tw.kernel(
    target="sm_80",
    warps=4,
    # PyTorch has channels before rows and columns; swapping both pairs of axes leaves the sum the same.
    reference="""
        Y = conv2d(
            X.transpose(1, 3), WEIGHTS.transpose(1, 3), stride=STRIDE, padding=PAD, dilation=DILATION
        ).transpose(1, 3)
    """,
)
def convolution(
    X: Global[f16, N, H, W, C], WEIGHTS: Global[f16, K, R, S, C], Y: Global[f16, N, P, Q, K],
    *, STRIDE: Const = 1, PAD: Const = 1, DILATION: Const = 1, BM: Const = 64, BN: Const = 64, BK: Const = 32,
):  # fmt: skip
    tw.assume(P == (H + 2 * PAD - DILATION * (R - 1) - 1) // STRIDE + 1)
    tw.assume(Q == (W + 2 * PAD - DILATION * (S - 1) - 1) // STRIDE + 1)
    tw.assume(C % 8 == 0)
    tw.assume(N * P * Q <= 2**31 - BM)
    tw.assume(R * S * (C + BK) < 2**31)
    for pm, pn in tw.tiles(tw.cdiv(N * P * Q, BM), tw.cdiv(K, BN)):
        pixel = pm * BM + tw.arange(BM)
        n, p, q = pixel // (P * Q), pixel // Q % P, pixel % Q
        filters = pn * BN + tw.arange(BN)
        acc = tw.zeros(f32, (BM, BN))
        for i in tw.pipeline(0, R * S * tw.cdiv(C, BK), 1, stages=3):
            tap = i // tw.cdiv(C, BK)
            r = tap // S
            s = tap % S
            y = p * STRIDE + (r * DILATION - PAD)
            x = q * STRIDE + (s * DILATION - PAD)
            c = i % tw.cdiv(C, BK) * BK + tw.arange(BK)
            there = (pixel < N * P * Q) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
            a = tw.load(
                X.at((n[:, None], y[:, None], x[:, None], c[None, :])),
                mask=there[:, None] & (c < C)[None, :], other=0.0, via="cp_async",
            )  # fmt: skip
            b = tw.load(
                WEIGHTS.at((filters[:, None], r, s, c[None, :])),
                mask=(filters < K)[:, None] & (c < C)[None, :], other=0.0, via="cp_async",
            )  # fmt: skip
            acc = tw.mma(a, b.T, acc)
        tw.store(
            Y.at((n[:, None], p[:, None], q[:, None], filters[None, :])), acc.to(f16),
            mask=(pixel < N * P * Q)[:, None] & (filters < K)[None, :],
        )  # fmt: skip
