"""The attention of attention.py, one level down, for heads of 128: every ring, barrier, fence and role spelled out.

`tilewright lower examples/attention.py --emit expanded` prints nearly this. Two roles own 64 query rows each and share
what a third one loads: rings of keys and values with barriers of their own. A consumer issues the scores of the next
block before it turns to the ones at hand, so that the tensor cores multiply while it takes exponentials; the
probabilities go into the second product straight from registers. What is stored goes through the tile of queries, which
nobody reads by then.
"""

import tilewright as tw
from tilewright import Const, Global, f16, f32

HEADS, M, N = tw.sizes("HEADS", "M", "N")  # heads of keys and values over all sequences, queries, keys
D = 128
GROUP: int = 1  # query heads that share the keys and values of one (GQA)
LOG2E = 1.4426950408889634
SCALE = D**-0.5 * LOG2E  # exp2 takes scores in units of log 2


@tw.func
def masked(s, row, col, CAUSAL):
    """Scores of keys past the last one, and of those after the query if causal, as minus infinity."""
    rows, cols = row + tw.arange(s.shape[0]), col + tw.arange(s.shape[1])
    if CAUSAL:
        return tw.where((cols[None, :] < N) & (cols[None, :] <= rows[:, None]), s, -tw.inf)
    else:
        return tw.where(cols[None, :] < N, s, -tw.inf)


@tw.func
def end(t, CAUSAL):
    """Where the keys of a tile of queries end: the last of its 128 queries sees none behind its own place if causal."""
    if CAUSAL:
        return min(N, t % tw.cdiv(M, 128) * 128 + 128)
    else:
        return N


@tw.func
def attend(part, OUT, q_tile, k_ring, v_ring, q_full, k_full, k_empty, v_full, v_empty, BN, STAGES, CAUSAL):
    """One of the two roles that compute: rows 64 * part and on of each tile of 128."""
    for t in tw.programs(tw.cdiv(M, 128) * HEADS * GROUP):
        head, row = t // tw.cdiv(M, 128), t % tw.cdiv(M, 128) * 128 + part * 64
        tw.wait(q_full[part], 0)
        tw.wait(k_full[0], 0)
        s = tw.wgmma(q_tile[part], k_ring[0].T, tw.zeros(f32, (64, BN)))
        tw.wgmma_wait(0)
        tw.arrive(k_empty[0])
        if BN > N or row + 1 < CAUSAL * BN:
            s = masked(s, row, 0, CAUSAL)
        m = tw.max(s, axis=1) * SCALE
        p = tw.exp2(s * SCALE - m[:, None])
        total = tw.sum(p, axis=1)
        weights = p.to(f16)
        o = tw.zeros(f32, (64, D))
        it = 0
        for j in range(BN, end(t, CAUSAL), BN):
            k_stage, v_stage = (it + 1) % STAGES, it % STAGES
            tw.wait(k_full[k_stage], (it + 1) // STAGES % 2)
            s = tw.wgmma(q_tile[part], k_ring[k_stage].T, tw.zeros(f32, (64, BN)))
            tw.wait(v_full[v_stage], it // STAGES % 2)
            o = tw.wgmma(weights, v_ring[v_stage], o)
            tw.wgmma_wait(1)  # the scores are there, the product with the values goes on
            tw.arrive(k_empty[k_stage])
            if j + BN > N or CAUSAL * (j + BN) > row + 1:
                s = masked(s, row, j, CAUSAL)
            m_new = tw.maximum(m, tw.max(s, axis=1) * SCALE)
            alpha = tw.exp2(m - m_new)
            p = tw.exp2(s * SCALE - m_new[:, None])
            total = total * alpha + tw.sum(p, axis=1)
            m = m_new
            tw.wgmma_wait(0)
            tw.arrive(v_empty[v_stage])
            o = o * alpha[:, None]
            weights = p.to(f16)  # only now: the product before it read these registers
            it += 1
        tw.wait(v_full[it % STAGES], it // STAGES % 2)
        o = tw.wgmma(weights, v_ring[it % STAGES], o)
        tw.wgmma_wait(0)
        tw.arrive(v_empty[it % STAGES])
        tw.store_shared(q_tile[part], (o / total[:, None]).to(f16))
        tw.fence_async()
        if row < M:
            tw.tma_store(OUT[head].tile((row, 0), (64, D)), q_tile[part])
        tw.tma_store_wait(0)


@tw.kernel(
    target="sm_90a",
    warps=4,
    reference="""
        KEYS = repeat_interleave(K, GROUP, 0)
        VALUES = repeat_interleave(V, GROUP, 0)
        OUT = scaled_dot_product_attention(Q, KEYS, VALUES, is_causal=CAUSAL)
    """,
)
def attention_instructions(
    Q: Global[f16, HEADS * GROUP, M, 128],
    K: Global[f16, HEADS, N, 128],
    V: Global[f16, HEADS, N, 128],
    OUT: Global[f16, HEADS * GROUP, M, 128],
    *,
    BN: Const = 128,
    STAGES: Const = 2,
    CAUSAL: Const = 0,  # 1: queries see keys up to their own place
):
    q_tile = tw.shared(f16, (2, 64, D))
    k_ring = tw.shared(f16, (STAGES, BN, D))
    v_ring = tw.shared(f16, (STAGES, BN, D))
    q_full = tw.barrier(2)
    k_full = tw.barrier(STAGES)
    k_empty = tw.barrier(STAGES, arrivals=2)
    v_full = tw.barrier(STAGES)
    v_empty = tw.barrier(STAGES, arrivals=2)
    with tw.role("upper", warps=4):
        attend(0, OUT, q_tile, k_ring, v_ring, q_full, k_full, k_empty, v_full, v_empty, BN, STAGES, CAUSAL)
    with tw.role("lower", warps=4, registers=240):
        attend(1, OUT, q_tile, k_ring, v_ring, q_full, k_full, k_empty, v_full, v_empty, BN, STAGES, CAUSAL)
    with tw.role("load", warps=1, registers=24):
        for t in tw.programs(tw.cdiv(M, 128) * HEADS * GROUP):
            head, row = t // tw.cdiv(M, 128), t % tw.cdiv(M, 128) * 128
            for part in tw.static_range(2):
                tw.expect(q_full[part], 64 * D * 2)
                tw.tma_load(Q[head].tile((row + part * 64, 0), (64, D)), q_tile[part], q_full[part])
            for j in range(0, end(t, CAUSAL), BN):
                it = j // BN
                tw.wait(k_empty[it % STAGES], it // STAGES % 2 ^ 1)
                tw.expect(k_full[it % STAGES], BN * D * 2)
                tw.tma_load(K[head // GROUP].tile((j, 0), (BN, D)), k_ring[it % STAGES], k_full[it % STAGES])
                tw.wait(v_empty[it % STAGES], it // STAGES % 2 ^ 1)
                tw.expect(v_full[it % STAGES], BN * D * 2)
                tw.tma_load(V[head // GROUP].tile((j, 0), (BN, D)), v_ring[it % STAGES], v_full[it % STAGES])
