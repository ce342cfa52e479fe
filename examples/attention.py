"""Flash attention, forward: softmax(Q K^T / sqrt(D)) V, without or with a causal mask, and GQA. Any lengths.

The kernel says what moves and what is computed, one tile of queries after the other. From the body of its pipeline
follows how: the tile of queries stays in shared memory, keys and values come through rings of their own, two roles
compute half of the rows each, and the scores of the next block are multiplied while this one takes exponentials.
`attention_instructions.py` is nearly what it expands to.

Only blocks that cross the last key or the diagonal are masked, and under a causal mask the loop ends at the diagonal:
the verifier shows that what it leaves out would have been zero. GROUP query heads share keys and values.

Other heads: D = 64 is fastest with BM=192 and consumers=3, D = 96 with turns=True, D = 256 needs BN=64. Without a mask
persistent=True is a little faster (docs/measurements.md).
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

HEADS, M, N = tw.sizes("HEADS", "M", "N")  # heads of keys and values over all sequences, queries, keys
D: int = 128
GROUP: int = 1  # query heads that share the keys and values of one (GQA)
SCALE = D**-0.5 * 1.4426950408889634  # exp2 takes scores in units of log 2


@tw.func
def masked(s, row, col, CAUSAL):
    """Scores of keys past the last one, and of those after the query if causal, as minus infinity."""
    rows, cols = row + tw.arange(s.shape[0]), col + tw.arange(s.shape[1])
    if CAUSAL:
        return tw.where((cols[None, :] < N) & (cols[None, :] <= rows[:, None]), s, -tw.inf)
    else:
        return tw.where(cols[None, :] < N, s, -tw.inf)


@tw.func
def end(row, CAUSAL):
    """Where the keys of the queries before `row` end: they see none behind their own place if causal."""
    if CAUSAL:
        return min(N, row)
    else:
        return N


@tw.kernel(
    target="sm_90a",
    warps=4,
    reference="""
        KEYS = repeat_interleave(K, GROUP, 0)
        VALUES = repeat_interleave(V, GROUP, 0)
        OUT = scaled_dot_product_attention(Q, KEYS, VALUES, is_causal=CAUSAL)
    """,
)
def attention(
    Q: Global[f16, HEADS * GROUP, M, D],
    K: Global[f16, HEADS, N, D],
    V: Global[f16, HEADS, N, D],
    OUT: Global[f16, HEADS * GROUP, M, D],
    *,
    BM: Const = 128,
    BN: Const = 128,
    STAGES: Const = 2,
    CAUSAL: Const = 0,  # 1: queries see keys up to their own place
):
    tw.assume(HEADS * GROUP < 65536)
    for head, i in tw.tiles(HEADS * GROUP, tw.cdiv(M, BM), order=tw.grouped(8)):
        row = (tw.cdiv(M, BM) - 1 - i) * BM  # causal tiles with the most keys first, those of 8 heads side by side
        q = tw.load(Q[head].tile((row, 0), (BM, D)), via="tma")
        m = tw.full(f32, (BM,), -tw.inf)
        total = tw.zeros(f32, (BM,))
        o = tw.zeros(f32, (BM, D))
        for j in tw.pipeline(0, end(row + BM, CAUSAL), BN, stages=STAGES, roles="split", consumers=2):
            k = tw.load(K[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            v = tw.load(V[head // GROUP].tile((j, 0), (BN, D)), via="tma")
            s = tw.mma(q, k.T, tw.zeros(f32, (BM, BN)))
            if j + BN > N or CAUSAL * (j + BN) > row + 1:
                s = masked(s, row, j, CAUSAL)
            m_new = tw.maximum(m, tw.max(s, axis=1) * SCALE)
            alpha = tw.exp2(m - m_new)
            p = tw.exp2(s * SCALE - m_new[:, None])
            total = total * alpha + tw.sum(p, axis=1)
            m = m_new
            o = tw.mma(p.to(f16), v, o * alpha[:, None])
        tw.store(OUT[head].tile((row, 0), (BM, D)), (o / total[:, None]).to(f16), via="tma")
