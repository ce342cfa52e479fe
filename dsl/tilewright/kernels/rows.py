"""Softmax, norms and cross entropy over the rows of a matrix, computed in f32 and stored in the type of their input.

A row lies in one tile of BN columns, and a program takes R of them; `online_…` are for rows of any length.
"""

import tilewright as tw
from tilewright import Const, Global, Scalar, bf16, f16, f32, i64

M, N, BATCH, G, C, L = tw.sizes("M", "N", "BATCH", "G", "C", "L")
T = tw.element_types(f32, f16, bf16)


@tw.kernel(target="sm_80", warps=4, reference="OUT = softmax(X, 1)")
def softmax(X: Global[T, M, N], OUT: Global[T, M, N], *, R: Const = 1, BN: Const = 1024):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=-tw.inf).to(f32)
        e = tw.exp(x - tw.max(x, axis=1, keep_dims=True))
        tw.store(OUT.tile((i * R, 0), (R, BN)), (e * (1.0 / tw.sum(e, axis=1, keep_dims=True))).to(T))


@tw.kernel(target="sm_80", warps=4, reference="OUT = log_softmax(X, 1)")
def log_softmax(X: Global[T, M, N], OUT: Global[T, M, N], *, R: Const = 1, BN: Const = 1024):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=-tw.inf).to(f32)
        below = x - tw.max(x, axis=1, keep_dims=True)
        total = tw.sum(tw.exp(below), axis=1, keep_dims=True)
        tw.store(OUT.tile((i * R, 0), (R, BN)), (below - tw.log(total)).to(T))


@tw.kernel(target="sm_80", warps=32, reference="OUT = softmax(X, 1)")
def online_softmax(X: Global[T, M, N], OUT: Global[T, M, N], *, BN: Const = 8192):
    for row in tw.tiles(M):
        top = tw.full(f32, (1,), -tw.inf)
        total = tw.zeros(f32, (1,))
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=-tw.inf).to(f32)
            higher = tw.maximum(top, tw.max(x, axis=1))
            total = total * tw.exp(top - higher) + tw.sum(tw.exp(x - higher[:, None]), axis=1)
            top = higher
        share = 1.0 / total
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=-tw.inf).to(f32)
            tw.store(OUT.tile((row, j), (1, BN)), (tw.exp(x - top[:, None]) * share[:, None]).to(T))


@tw.kernel(target="sm_80", warps=32, reference="OUT = log_softmax(X, 1)")
def online_log_softmax(X: Global[T, M, N], OUT: Global[T, M, N], *, BN: Const = 8192):
    for row in tw.tiles(M):
        top = tw.full(f32, (1,), -tw.inf)
        total = tw.zeros(f32, (1,))
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=-tw.inf).to(f32)
            higher = tw.maximum(top, tw.max(x, axis=1))
            total = total * tw.exp(top - higher) + tw.sum(tw.exp(x - higher[:, None]), axis=1)
            top = higher
        log_sum = top + tw.log(total)
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=-tw.inf).to(f32)
            tw.store(OUT.tile((row, j), (1, BN)), (x - log_sum[:, None]).to(T))


@tw.kernel(target="sm_80", warps=4)
def rms_norm(
    X: Global[T, M, N], W: Global[T, N], OUT: Global[T, M, N], eps: Scalar[f32], *, R: Const = 1, BN: Const = 1024
):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=0.0).to(f32)
        w = tw.load(W.tile((0,), (BN,)), other=0.0).to(f32)
        mean = tw.sum(x * x, axis=1, keep_dims=True) / N
        tw.store(OUT.tile((i * R, 0), (R, BN)), (x * tw.rsqrt(mean + eps) * w).to(T))


@tw.kernel(target="sm_80", warps=4)
def layer_norm(
    X: Global[T, M, N], W: Global[T, N], B: Global[T, N], OUT: Global[T, M, N], eps: Scalar[f32],
    *, R: Const = 1, BN: Const = 1024,
):  # fmt: skip
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=0.0).to(f32)
        mean = tw.sum(x, axis=1, keep_dims=True) / N
        # Lanes past the end of the row must not count in the variance.
        off = tw.where(tw.arange(BN) < N, x - mean, 0.0)
        scale = tw.rsqrt(tw.sum(off * off, axis=1, keep_dims=True) / N + eps)
        w = tw.load(W.tile((0,), (BN,)), other=0.0).to(f32)
        b = tw.load(B.tile((0,), (BN,)), other=0.0).to(f32)
        tw.store(OUT.tile((i * R, 0), (R, BN)), (off * scale * w + b).to(T))


@tw.kernel(target="sm_80", warps=8)
def statistics(X: Global[T, M, N], MEAN: Global[f32, M], VARIANCE: Global[f32, M], *, BN: Const = 4096):
    for row in tw.tiles(M):
        total = tw.zeros(f32, (1,))
        for j in range(0, N, BN):
            total = total + tw.sum(tw.load(X.tile((row, j), (1, BN)), other=0.0).to(f32), axis=1)
        mean = total / N
        square = tw.zeros(f32, (1,))
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=0.0).to(f32)
            off = tw.where((j + tw.arange(BN) < N)[None, :], x - mean[:, None], 0.0)
            square = square + tw.sum(off * off, axis=1)
        tw.store(MEAN.tile((row,), (1,)), mean)
        tw.store(VARIANCE.tile((row,), (1,)), square / N)


@tw.kernel(target="sm_80", warps=4)
def joined(
    MEANS: Global[f32, M, N], VARIANCES: Global[f32, M, N], MEAN: Global[f32, M], SCALE: Global[f32, M],
    eps: Scalar[f32], *, BN: Const = 256,
):  # fmt: skip
    """The mean of rows in N equal parts, and one over the root of their variance and eps, from those of the parts."""
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        means = tw.load(MEANS.tile((row, 0), (1, BN)), other=0.0)
        within = tw.sum(tw.load(VARIANCES.tile((row, 0), (1, BN)), other=0.0), axis=1) / N
        mean = tw.sum(means, axis=1) / N
        off = tw.where((tw.arange(BN) < N)[None, :], means - mean[:, None], 0.0)
        between = tw.sum(off * off, axis=1) / N
        tw.store(MEAN.tile((row,), (1,)), mean)
        tw.store(SCALE.tile((row,), (1,)), tw.rsqrt(within + between + eps))


@tw.kernel(target="sm_80", warps=4)
def group_norm(
    X: Global[T, BATCH, G, C, L], MEAN: Global[f32, BATCH, G], SCALE: Global[f32, BATCH, G], W: Global[T, G, C],
    B: Global[T, G, C], OUT: Global[T, BATCH, G, C, L], *, BC: Const = 1, BL: Const = 2048,
):  # fmt: skip
    """G groups of C channels, each of L elements, with the `statistics` of each group."""
    for n, g, i in tw.tiles(BATCH, G, tw.cdiv(C, BC)):
        mean, scale = tw.load(MEAN[n, g]), tw.load(SCALE[n, g])
        w = tw.load(W[g].tile((i * BC,), (BC,)), other=0.0).to(f32)[:, None]
        b = tw.load(B[g].tile((i * BC,), (BC,)), other=0.0).to(f32)[:, None]
        for j in range(0, L, BL):
            x = tw.load(X[n, g].tile((i * BC, j), (BC, BL)), other=0.0).to(f32)
            tw.store(OUT[n, g].tile((i * BC, j), (BC, BL)), ((x - mean) * scale * w + b).to(T))


@tw.kernel(target="sm_80", warps=4)
def cross_entropy(X: Global[T, M, N], TARGET: Global[i64, M], LOSS: Global[f32, M], *, BN: Const = 1024):
    """Targets are at least 0 and below N, or negative for rows that do not count: their loss is 0."""
    tw.assume(N <= BN)
    for row in tw.tiles(M):
        x = tw.load(X.tile((row, 0), (1, BN)), other=-tw.inf).to(f32)
        target = tw.load(TARGET.tile((row,), (1,)))[:, None]
        top = tw.max(x, axis=1, keep_dims=True)
        log_sum = top + tw.log(tw.sum(tw.exp(x - top), axis=1, keep_dims=True))
        columns = tw.arange(BN)[None, :]
        # One lane of the row is the right class. Lanes past its end hold minus infinity, which no sum may see.
        finite = tw.where(columns < N, x, 0.0)
        logit = tw.sum(tw.where(columns.to(i64) == target, finite, 0.0), axis=1, keep_dims=True)
        tw.store(LOSS.tile((row,), (1,)), tw.sum(tw.where(target >= 0, log_sum - logit, 0.0), axis=1))
