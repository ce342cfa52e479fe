"""Matrix products by TMA and wgmma with a bias and an activation, for weights that are stored either way round.

Rows begin at multiples of 16 bytes; what does not goes to `gemm_any`.
"""

import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

M, N, K = tw.sizes("M", "N", "K")
T = tw.element_types(f16, bf16)

NONE, RELU, GELU, SILU = 0, 1, 2, 3


@tw.func
def activated(x: tw.Tile, ACT: int) -> tw.Tile:
    """The activation with that number."""
    if ACT == RELU:
        x = tw.maximum(x, 0.0)
    elif ACT == GELU:
        x = 0.5 * x * (1.0 + tw.erf(x * 0.7071067811865476))
    elif ACT == SILU:
        x = x * tw.sigmoid(x)
    return x


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def gemm_nn(
    A: Global[T, M, K], B: Global[T, K, N], C: Global[T, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(T), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B.T")
def gemm_nt(
    A: Global[T, M, K], B: Global[T, N, K], C: Global[T, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(T), via="tma")


@tw.kernel(target="sm_90a", warps=8)
def linear(
    A: Global[T, M, K], B: Global[T, N, K], BIAS: Global[T, N], C: Global[T, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
    ACT: Const = tw.choice(NONE, RELU, GELU, SILU),
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        bias = tw.load(BIAS.tile((pn * BN,), (BN,)), other=0.0).to(f32)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), activated(acc + bias, ACT).to(T), via="tma")


@tw.kernel(target="sm_80", warps=4, reference="C = A @ B")
def gemm_any(
    A: Global[T, M, K], B: Global[T, K, N], C: Global[T, M, N],
    *, BM: Const = 64, BN: Const = 64, BK: Const = 32,
):  # fmt: skip
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(8)):
        acc = tw.zeros(f32, (BM, BN))
        for k in range(0, K, BK):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), other=0.0)
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), other=0.0)
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(T))
