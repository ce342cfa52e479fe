"""Sums, means and extremes along the rows or the columns of matrices, and running sums, in f32."""

# Helpers take tiles, scalars, tensors and constants alike, so most of their parameters have no type.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

A, M, N = tw.sizes("A", "M", "N")
T = tw.element_types(f32, f16, bf16)

SUM, MEAN, MAX, MIN = 0, 1, 2, 3


@tw.func
def neutral(OP):
    """What leaves the result as it is."""
    if OP == MAX:
        value = -tw.inf
    elif OP == MIN:
        value = tw.inf
    else:
        value = 0.0
    return value


@tw.func
def combined(acc, x, OP):
    """Elements of two tiles combined."""
    if OP == MAX:
        acc = tw.maximum(acc, x)
    elif OP == MIN:
        acc = tw.minimum(acc, x)
    else:
        acc = acc + x
    return acc


@tw.func
def reduced(x, axis, OP):
    """The elements of a tile along an axis, combined."""
    if OP == MAX:
        y = tw.max(x, axis=axis)
    elif OP == MIN:
        y = tw.min(x, axis=axis)
    else:
        y = tw.sum(x, axis=axis)
    return y


@tw.func
def finished(acc, count, OP):
    """What is stored of the combination of `count` elements."""
    if OP == MEAN:
        acc = acc / count
    return acc


@tw.kernel(target="sm_80", warps=4)
def reduce_rows(
    X: Global[T, M, N], Y: Global[T, M], *, OP: Const = tw.choice(SUM, MEAN, MAX, MIN), R: Const = 1, BN: Const = 2048
):
    for i in tw.tiles(tw.cdiv(M, R)):
        acc = tw.full(f32, (R,), neutral(OP))
        for j in range(0, N, BN):
            x = tw.load(X.tile((i * R, j), (R, BN)), other=neutral(OP)).to(f32)
            acc = combined(acc, reduced(x, 1, OP), OP)
        tw.store(Y.tile((i * R,), (R,)), finished(acc, N, OP).to(T))


@tw.kernel(target="sm_80", warps=4)
def reduce_columns(
    X: Global[T, A, M, N], Y: Global[T, A, N],
    *, OP: Const = tw.choice(SUM, MEAN, MAX, MIN), BM: Const = 32, BN: Const = 128,
):  # fmt: skip
    for a, j in tw.tiles(A, tw.cdiv(N, BN)):
        acc = tw.full(f32, (BN,), neutral(OP))
        for m in range(0, M, BM):
            x = tw.load(X[a].tile((m, j * BN), (BM, BN)), other=neutral(OP)).to(f32)
            acc = combined(acc, reduced(x, 0, OP), OP)
        tw.store(Y[a].tile((j * BN,), (BN,)), finished(acc, M, OP).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = cumsum(X, 1)")
def cumulative_sum(X: Global[T, M, N], Y: Global[T, M, N], *, BN: Const = 1024):
    for row in tw.tiles(M):
        before = tw.zeros(f32, (1,))
        for j in range(0, N, BN):
            x = tw.load(X.tile((row, j), (1, BN)), other=0.0).to(f32)
            tw.store(Y.tile((row, j), (1, BN)), (tw.cumsum(x, axis=1) + before[:, None]).to(T))
            before = before + tw.sum(x, axis=1)
