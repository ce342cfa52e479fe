"""Attention, forward: softmax(Q K^T * scale) V, full, causal or in a window; GROUP query heads share keys and values.

As `examples/attention.py`, where the steps are explained. `scale` is in units of log 2 and above zero.
"""

# Helpers take tiles, scalars, tensors and constants alike, so most of their parameters have no type.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, Scalar, bf16, f16, f32, i32

KV, M, N = tw.sizes("KV", "M", "N")
T = tw.element_types(f16, bf16)
D: int = 128  # these two are arguments of the kernel, and named here for what reads annotations as Python
GROUP: int = 1

FULL, CAUSAL, WINDOW = 0, 1, 2


@tw.func
def masked(s, row, col, window, MASK):
    """Scores of keys past the last one, and of those that a query does not see, as minus infinity."""
    rows, cols = row + tw.arange(s.shape[0]), col + tw.arange(s.shape[1])
    seen = cols[None, :] < N
    if MASK != FULL:
        seen = seen & (cols[None, :] <= rows[:, None])
    if MASK == WINDOW:
        seen = seen & (cols[None, :] > rows[:, None] - window)
    return tw.where(seen, s, -tw.inf)


@tw.func
def begin(row, window, BN, MASK):
    """Where the block of the first key that a query from `row` on sees begins."""
    if MASK == WINDOW:
        return max(0, row - window + 1) // BN * BN
    else:
        return 0


@tw.func
def end(row, MASK):
    """Where the keys of the queries before `row` end."""
    if MASK == FULL:
        return N
    else:
        return min(N, row)


@tw.func
def partial(row, col, window, BM, BN, MASK):
    """Whether a query of the tile does not see a key of the block."""
    if MASK == FULL:
        return col + BN > N
    elif MASK == CAUSAL:
        return col + BN > N or col + BN > row + 1
    else:
        return col + BN > N or col + BN > row + 1 or col < row + BM - window


@tw.func
def finite(m, MASK):
    """What is subtracted from the scores of a row: nothing if its window has not begun yet."""
    if MASK == WINDOW:
        m = tw.where(m == -tw.inf, 0.0, m)
    return m


@tw.kernel(target="sm_90a", warps=4)
def attention(
    Q: Global[T, KV * GROUP, M, D], K: Global[T, KV, N, D], V: Global[T, KV, N, D], OUT: Global[T, KV * GROUP, M, D],
    scale: Scalar[f32], window: Scalar[i32],
    *, D: Const = 128, GROUP: Const = 1, MASK: Const = tw.choice(FULL, CAUSAL, WINDOW),
    BM: Const = 128, BN: Const = 128, STAGES: Const = 2, CONSUMERS: Const = 2, TURNS: Const = 0, PERSISTENT: Const = 0,
):  # fmt: skip
    tw.assume(KV * GROUP < 65536)
    tw.assume(window >= 1)
    # What is masked must stay minus infinity.
    above = tw.maximum(scale, 1e-30)
    for head, i in tw.tiles(KV * GROUP, tw.cdiv(M, BM), order=tw.grouped(8), persistent=PERSISTENT == 1):
        # Causal tiles with the most keys first, those of 8 heads side by side.
        row = i * BM if MASK == FULL else (tw.cdiv(M, BM) - 1 - i) * BM
        q = tw.load(Q[head].tile((row, 0), (BM, D)), via="tma")
        m = tw.full(f32, (BM,), -tw.inf)
        total = tw.zeros(f32, (BM,))
        o = tw.zeros(f32, (BM, D))
        for j in tw.pipeline(
            begin(row, window, BN, MASK), end(row + BM, MASK), BN,
            stages=STAGES, roles="split", consumers=CONSUMERS, turns=TURNS == 1,
        ):  # fmt: skip
            k = tw.load(K[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            v = tw.load(V[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            s = tw.mma(q, k.T, tw.zeros(f32, (BM, BN)))
            if partial(row, j, window, BM, BN, MASK):
                s = masked(s, row, j, window, MASK)
            m_new = tw.maximum(m, tw.max(s, axis=1) * above)
            base = finite(m_new, MASK)
            alpha = tw.exp2(m - base)
            p = tw.exp2(s * above - base[:, None])
            total = total * alpha + tw.sum(p, axis=1)
            m = m_new
            o = tw.mma(p.to(T), v, o * alpha[:, None])
        tw.store(OUT[head].tile((row, 0), (BM, D)), (o / total[:, None]).to(T), via="tma")
