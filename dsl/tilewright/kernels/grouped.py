"""Products of a mixture of experts: rows are sorted by expert, and offsets say where each expert's rows begin."""

# Data contracts are functions without types.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32, i32

R, E, K, N = tw.sizes("R", "E", "K", "N")
T = tw.element_types(bf16, f16)


@tw.kernel(
    target="sm_90a",
    warps=4,
    reference="""
        EXPERT = (arange(R)[:, None] >= OFFSETS[1:]).sum(1)
        Y = ((X * (EXPERT == arange(E)[:, None])[:, :, None]) @ W).sum(0)
    """,
)
def grouped(
    X: Global[T, R, K], W: Global[T, E, K, N], OFFSETS: Global[i32, E + 1], Y: Global[T, R, N],
    *, BM: Const = 64, BN: Const = 128, BK: Const = 64, STAGES: Const = 4, S: Const = 4,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    tw.assume(R < 2**30)
    tw.assume(OFFSETS[0] == 0)
    tw.assume(OFFSETS[E] == R)
    tw.assume(lambda e: OFFSETS[e] <= OFFSETS[e + 1])
    # S programs take the tiles of an expert in turns, so that one with many rows does not keep a few waiting.
    for p, pn in tw.tiles(E * S, tw.cdiv(N, BN)):
        e = p // S
        start = tw.load(OFFSETS[e])
        end = tw.load(OFFSETS[e + 1])
        for r in range(start + p % S * BM, end, S * BM):
            acc = tw.zeros(f32, (BM, BN))
            for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
                x = tw.load(X.tile((r, k), (BM, BK)), via="tma")
                w = tw.load(W[e].tile((k, pn * BN), (BK, BN)), via="tma")
                acc = tw.mma(x, w, acc)
            # The last tile of an expert may reach into the rows of the next one, which are not its to write.
            rows = r + tw.arange(BM)
            tw.store(Y.tile((r, pn * BN), (BM, BN)), acc.to(T), mask=(rows < end)[:, None])


@tw.kernel(target="sm_90a", warps=4)
def grouped_gated(
    X: Global[T, R, K], GATE: Global[T, E, K, N], UP: Global[T, E, K, N], OFFSETS: Global[i32, E + 1],
    Y: Global[T, R, N],
    *, BM: Const = 64, BN: Const = 128, BK: Const = 64, STAGES: Const = 4, S: Const = 4,
):  # fmt: skip
    """silu(X @ GATE) * (X @ UP) of each expert."""
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    tw.assume(R < 2**30)
    tw.assume(OFFSETS[0] == 0)
    tw.assume(OFFSETS[E] == R)
    tw.assume(lambda e: OFFSETS[e] <= OFFSETS[e + 1])
    # S programs take the tiles of an expert in turns, so that one with many rows does not keep a few waiting.
    for p, pn in tw.tiles(E * S, tw.cdiv(N, BN)):
        e = p // S
        start = tw.load(OFFSETS[e])
        end = tw.load(OFFSETS[e + 1])
        for r in range(start + p % S * BM, end, S * BM):
            gate = tw.zeros(f32, (BM, BN))
            up = tw.zeros(f32, (BM, BN))
            for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
                x = tw.load(X.tile((r, k), (BM, BK)), via="tma")
                g = tw.load(GATE[e].tile((k, pn * BN), (BK, BN)), via="tma")
                u = tw.load(UP[e].tile((k, pn * BN), (BK, BN)), via="tma")
                gate = tw.mma(x, g, gate)
                up = tw.mma(x, u, up)
            rows = r + tw.arange(BM)
            y = gate * tw.sigmoid(gate) * up
            tw.store(Y.tile((r, pn * BN), (BM, BN)), y.to(T), mask=(rows < end)[:, None])
