"""Cross entropy of logits and class numbers: log of the sum of exponentials, minus the logit of the right class."""

import tilewright as tw
from tilewright import Const, Global, f32, i32

M, N = tw.sizes("M", "N")


@tw.kernel(target="sm_80", warps=4, reference="LOSS = -log_softmax(X, 1).gather(1, T[:, None].to(torch.int64))[:, 0]")
def cross_entropy(X: Global[f32, M, N], T: Global[i32, M], LOSS: Global[f32, M], *, BN: Const = 1024):
    """Class numbers are at least 0 and below N; N is at least 8."""
    tw.assume(N <= BN)
    tw.assume(N >= 8)
    for row in tw.tiles(M):
        x = tw.load(X.tile((row, 0), (1, BN)), other=-tw.inf)
        target = tw.load(T.tile((row,), (1,)))
        top = tw.max(x, axis=1, keep_dims=True)
        log_sum = top + tw.log(tw.sum(tw.exp(x - top), axis=1, keep_dims=True))
        columns = tw.arange(BN)[None, :]
        # One lane of the row is the right class. Lanes past its end hold minus infinity, which no sum may see.
        finite = tw.where(columns < N, x, 0.0)
        logit = tw.sum(tw.where(columns == target[:, None], finite, 0.0), axis=1, keep_dims=True)
        tw.store(LOSS.tile((row,), (1,)), tw.sum(log_sum - logit, axis=1))
