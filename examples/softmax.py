"""Softmax over the rows of a matrix; a row fits into one tile."""

import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_80", warps=4, reference="OUT = softmax(X, 1)")
def softmax(X: Global[f32, M, N], OUT: Global[f32, M, N], *, BN: Const = 1024):
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        # Lanes past the end of the row read as minus infinity, which neither maximum nor sum notices.
        x = tw.load(X.tile((row, 0), (1, BN)), other=-tw.inf)
        e = tw.exp(x - tw.max(x, axis=1, keep_dims=True))
        tw.store(OUT.tile((row, 0), (1, BN)), e / tw.sum(e, axis=1, keep_dims=True))
