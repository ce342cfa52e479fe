"""Layer normalization: each row with mean 0 and variance 1, then scaled and shifted for each column.

The pitfall is the variance. Lanes past the end of the row read as zero, which is right for the mean; but once the mean
is subtracted they hold minus the mean, and its square would count in the variance. They are set to zero again before.
"""

import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
D = X - mean(X, dim=1, keepdim=True)
Y = D * rsqrt(mean(D * D, dim=1, keepdim=True) + 1e-5) * W + B
""",
)
def layer_norm(X: Global[f32, M, N], W: Global[f32, N], B: Global[f32, N], Y: Global[f32, M, N], *, BN: Const = 1024):
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        x = tw.load(X.tile((row, 0), (1, BN)), other=0.0)
        w = tw.load(W.tile((0,), (BN,)), other=0.0)
        b = tw.load(B.tile((0,), (BN,)), other=0.0)
        mean = tw.sum(x, axis=1, keep_dims=True) / N
        centered = tw.where(tw.arange(BN)[None, :] < N, x - mean, 0.0)
        variance = tw.sum(centered * centered, axis=1, keep_dims=True) / N
        tw.store(Y.tile((row, 0), (1, BN)), centered * tw.rsqrt(variance + 1e-5) * w + b)
