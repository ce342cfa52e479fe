"""Quantization to bytes with a scale for each row, and back; and weights of 4 bits, two a byte.

tilewright check examples/quantization.py
"""

import tilewright as tw
from tilewright import Const, Global, f32, i8, u8

M, N = tw.sizes("M", "N")


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
S = clamp(amax(abs(X), 1), min=1e-30) * (1 / 127)
Q = round(X / S[:, None]).to(torch.int8)
""",
)
def quantize(X: Global[f32, M, N], Q: Global[i8, M, N], S: Global[f32, M], *, BN: Const = 1024):
    """Q = X / S, rounded, with the greatest magnitude of a row at 127."""
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        x = tw.load(X.tile((row, 0), (1, BN)), other=0.0)
        # A product, not a division by 127: libraries divide by constants that way, and one ulp decides halves.
        scale = tw.maximum(tw.max(tw.abs(x), axis=1), 1e-30) * (1.0 / 127.0)
        q = tw.clamp(tw.round(x / scale[:, None]), -127.0, 127.0)
        tw.store(Q.tile((row, 0), (1, BN)), q.to(i8))
        tw.store(S.tile((row,), (1,)), scale)


@tw.kernel(target="sm_80", warps=4, reference="X = Q.float() * S[:, None]")
def dequantize(Q: Global[i8, M, N], S: Global[f32, M], X: Global[f32, M, N], *, BM: Const = 4, BN: Const = 256):
    for i, j in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        q = tw.load(Q.tile((i * BM, j * BN), (BM, BN)), other=0.0)
        s = tw.load(S.tile((i * BM,), (BM,)), other=0.0)
        tw.store(X.tile((i * BM, j * BN), (BM, BN)), q.to(f32) * s[:, None])


@tw.kernel(target="sm_80", warps=4, reference="W = stack((P % 16, P // 16), dim=-1).float() - 8")
def unpack(P: Global[u8, M, N], W: Global[f32, M, N, 2], *, BM: Const = 4, BN: Const = 128):
    """Weights of 4 bits, the low half of a byte first, stored with 8 added."""
    for i, j in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        packed = tw.load(P.tile((i * BM, j * BN), (BM, BN)), other=0.0)
        pairs = tw.join(packed & 15, packed >> 4)
        tw.store(W.tile((i * BM, j * BN, 0), (BM, BN, 2)), pairs.to(f32) - 8.0)
