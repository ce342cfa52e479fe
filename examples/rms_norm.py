"""RMS normalization: each row divided by the root of its mean square, then scaled by a weight for each column."""

import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_80", warps=4, reference="Y = X * rsqrt(mean(X * X, dim=1, keepdim=True) + 1e-6) * W")
def rms_norm(X: Global[f32, M, N], W: Global[f32, N], Y: Global[f32, M, N], *, BN: Const = 1024):
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        # Lanes past the end of the row read as zero, whose square adds nothing to the mean.
        x = tw.load(X.tile((row, 0), (1, BN)), other=0.0)
        w = tw.load(W.tile((0,), (BN,)), other=0.0)
        mean_square = tw.sum(x * x, axis=1, keep_dims=True) / N
        tw.store(Y.tile((row, 0), (1, BN)), x * tw.rsqrt(mean_square + 1e-6) * w)
