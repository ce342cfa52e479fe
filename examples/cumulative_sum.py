"""Running sums along the rows of a matrix; a row fits into one tile."""

import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_80", warps=4, reference="Y = cumsum(X, 1)")
def cumulative_sum(X: Global[f32, M, N], Y: Global[f32, M, N], *, BN: Const = 1024):
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        # What lies past the end of the row comes after everything that is stored.
        x = tw.load(X.tile((row, 0), (1, BN)), other=0.0)
        tw.store(Y.tile((row, 0), (1, BN)), tw.cumsum(x, axis=1))


@tw.kernel(target="sm_80", warps=4, reference="Y = sum(X, 1, True) - cumsum(X, 1) + X")
def cumulative_sum_from_the_end(X: Global[f32, M, N], Y: Global[f32, M, N], *, BN: Const = 1024):
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        # From the end, lanes past the row come first: they hold zero, which adds nothing.
        x = tw.load(X.tile((row, 0), (1, BN)), other=0.0)
        tw.store(Y.tile((row, 0), (1, BN)), tw.cumsum(x, axis=1, reverse=True))
