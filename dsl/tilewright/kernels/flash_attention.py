"""Attention, forward: softmax(Q K^T * scale) V, without or with a causal mask; GROUP query heads share keys and values.

As `examples/attention.py`, where the steps are explained. `scale` is in units of log 2 and above zero.
"""

# Helpers take tiles, scalars, tensors and constants alike, so most of their parameters have no type.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, Scalar, bf16, f16, f32

KV, M, N = tw.sizes("KV", "M", "N")
T = tw.element_types(f16, bf16)
D: int = 128  # these two are arguments of the kernel, and named here for what reads annotations as Python
GROUP: int = 1

FULL, CAUSAL = 0, 1


@tw.func
def masked(s, row, col, MASK):
    """Scores of keys past the last one, and of those after the query if causal, as minus infinity."""
    rows, cols = row + tw.arange(s.shape[0]), col + tw.arange(s.shape[1])
    if MASK == CAUSAL:
        return tw.where((cols[None, :] < N) & (cols[None, :] <= rows[:, None]), s, -tw.inf)
    else:
        return tw.where(cols[None, :] < N, s, -tw.inf)


@tw.func
def end(row, MASK):
    """Where the keys of the queries before `row` end."""
    if MASK == CAUSAL:
        return min(N, row)
    else:
        return N


@tw.kernel(target="sm_90a", warps=4)
def attention(
    Q: Global[T, KV * GROUP, M, D], K: Global[T, KV, N, D], V: Global[T, KV, N, D], OUT: Global[T, KV * GROUP, M, D],
    scale: Scalar[f32],
    *, D: Const = 128, GROUP: Const = 1, MASK: Const = tw.choice(FULL, CAUSAL),
    BM: Const = 128, BN: Const = 128, STAGES: Const = 2, CONSUMERS: Const = 2, TURNS: Const = 0, PERSISTENT: Const = 0,
):  # fmt: skip
    tw.assume(KV * GROUP < 65536)
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
            0, end(row + BM, MASK), BN, stages=STAGES, roles="split", consumers=CONSUMERS, turns=TURNS == 1
        ):
            k = tw.load(K[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            v = tw.load(V[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            s = tw.mma(q, k.T, tw.zeros(f32, (BM, BN)))
            if j + BN > N or MASK * (j + BN) > row + 1:
                s = masked(s, row, j, MASK)
            m_new = tw.maximum(m, tw.max(s, axis=1) * above)
            alpha = tw.exp2(m - m_new)
            p = tw.exp2(s * above - m_new[:, None])
            total = total * alpha + tw.sum(p, axis=1)
            m = m_new
            o = tw.mma(p.to(T), v, o * alpha[:, None])
        tw.store(OUT[head].tile((row, 0), (BM, D)), (o / total[:, None]).to(T), via="tma")
