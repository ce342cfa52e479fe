"""Softmax over rows of any length, in two passes over blocks of columns.

The first pass keeps a running maximum and a running sum of exponentials relative to it; when the maximum grows, the
sum is rescaled. The verifier follows what each value is relative to: a rescaling that is missing or done twice is
found.
"""

import tilewright as tw
from tilewright import Const, Global, f32

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_80", warps=4, reference="OUT = softmax(X, 1)")
def online_softmax(X: Global[f32, M, N], OUT: Global[f32, M, N], *, ROWS: Const = 4, BN: Const = 512):
    for i in tw.tiles(tw.cdiv(M, ROWS)):
        m = tw.full(f32, (ROWS, 1), -tw.inf)
        total = tw.zeros(f32, (ROWS, 1))
        for j in range(0, N, BN):
            # Lanes past the end of the row read as minus infinity, which neither maximum nor sum notices.
            x = tw.load(X.tile((i * ROWS, j), (ROWS, BN)), other=-tw.inf)
            m_new = tw.maximum(m, tw.max(x, axis=1, keep_dims=True))
            total = total * tw.exp(m - m_new) + tw.sum(tw.exp(x - m_new), axis=1, keep_dims=True)
            m = m_new
        for j in range(0, N, BN):
            x = tw.load(X.tile((i * ROWS, j), (ROWS, BN)), other=-tw.inf)
            tw.store(OUT.tile((i * ROWS, j), (ROWS, BN)), tw.exp(x - m) / total)
