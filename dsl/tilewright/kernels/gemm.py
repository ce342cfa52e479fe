"""Matrix products by TMA and wgmma: plain, with a bias and an activation, batched, in parts along K, of 8-bit elements.

Rows begin at multiples of 16 bytes; what does not goes to `gemm_any`. `…_nt` are for a B that is stored transposed, as
the weights of a linear layer are.
"""

# Helpers take tiles, scalars, tensors and constants alike, so most of their parameters have no type.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, bf16, f8e4m3, f16, f32, i8, i32

M, N, K, BATCH, PARTS = tw.sizes("M", "N", "K", "BATCH", "PARTS")
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


@tw.func
def product(A, B, row, column, lo, hi, BM, BN, BK, STAGES, TURNED):
    """The tile of A @ B, or of A @ B.T, at `row` and `column`, summed up over K from `lo` to `hi`."""
    acc = tw.zeros(f32, (BM, BN))
    for k in tw.pipeline(lo, hi, BK, stages=STAGES, roles="split"):
        a = tw.load(A.tile((row, k), (BM, BK)), via="tma")
        if TURNED:
            b = tw.load(B.tile((column, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        else:
            b = tw.load(B.tile((k, column), (BK, BN)), via="tma")
            acc = tw.mma(a, b, acc)
    return acc


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def gemm_nn(
    A: Global[T, M, K], B: Global[T, K, N], C: Global[T, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = product(A, B, pm * BM, pn * BN, 0, K, BM, BN, BK, STAGES, False)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(T), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B.T")
def gemm_nt(
    A: Global[T, M, K], B: Global[T, N, K], C: Global[T, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = product(A, B, pm * BM, pn * BN, 0, K, BM, BN, BK, STAGES, True)
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
        acc = product(A, B, pm * BM, pn * BN, 0, K, BM, BN, BK, STAGES, True)
        bias = tw.load(BIAS.tile((pn * BN,), (BN,)), other=0.0).to(f32)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), activated(acc + bias, ACT).to(T), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B")
def batched_nn(
    A: Global[T, BATCH, M, K], B: Global[T, BATCH, K, N], C: Global[T, BATCH, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for i, pm, pn in tw.tiles(BATCH, tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = product(A[i], B[i], pm * BM, pn * BN, 0, K, BM, BN, BK, STAGES, False)
        tw.store(C[i].tile((pm * BM, pn * BN), (BM, BN)), acc.to(T), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B.mT")
def batched_nt(
    A: Global[T, BATCH, M, K], B: Global[T, BATCH, N, K], C: Global[T, BATCH, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for i, pm, pn in tw.tiles(BATCH, tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = product(A[i], B[i], pm * BM, pn * BN, 0, K, BM, BN, BK, STAGES, True)
        tw.store(C[i].tile((pm * BM, pn * BN), (BM, BN)), acc.to(T), via="tma")


@tw.kernel(
    target="sm_90a", warps=8, reference="W = (A * (arange(K) // PART == arange(PARTS)[:, None])[:, None, :]) @ B"
)
def parts_nn(
    A: Global[T, M, K], B: Global[T, K, N], W: Global[f32, PARTS, M, N],
    *, PART: Const = 1024, BM: Const = 128, BN: Const = 128, BK: Const = 64, STAGES: Const = 4, GROUP: Const = 8,
):  # fmt: skip
    """Few tiles and a long K: W[s] is the product over part s of K, and `sum_of_parts` adds them up."""
    tw.assume(tw.cdiv(K, PART) == PARTS)
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(PARTS, tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        # Past the end of K the copies fill with zeros, which add nothing.
        acc = product(A, B, pm * BM, pn * BN, s * PART, s * PART + PART, BM, BN, BK, STAGES, False)
        tw.store(W[s].tile((pm * BM, pn * BN), (BM, BN)), acc)


@tw.kernel(
    target="sm_90a", warps=8, reference="W = (A * (arange(K) // PART == arange(PARTS)[:, None])[:, None, :]) @ B.T"
)
def parts_nt(
    A: Global[T, M, K], B: Global[T, N, K], W: Global[f32, PARTS, M, N],
    *, PART: Const = 1024, BM: Const = 128, BN: Const = 128, BK: Const = 64, STAGES: Const = 4, GROUP: Const = 8,
):  # fmt: skip
    tw.assume(tw.cdiv(K, PART) == PARTS)
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for s, pm, pn in tw.tiles(PARTS, tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = product(A, B, pm * BM, pn * BN, s * PART, s * PART + PART, BM, BN, BK, STAGES, True)
        tw.store(W[s].tile((pm * BM, pn * BN), (BM, BN)), acc)


@tw.kernel(target="sm_80", warps=4, reference="C = W.sum(0)")
def sum_of_parts(W: Global[f32, PARTS, M, N], C: Global[T, M, N], *, BM: Const = 4, BN: Const = 256):
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for s in range(PARTS):
            acc += tw.load(W[s].tile((pm * BM, pn * BN), (BM, BN)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(T))


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


@tw.kernel(target="sm_90a", warps=8, reference="C = A @ B.T")
def gemm_tf32(
    A: Global[f32, M, K], B: Global[f32, N, K], C: Global[f32, M, N],
    *, BM: Const = 128, BN: Const = 128, BK: Const = 32, STAGES: Const = 4, GROUP: Const = 8,
):  # fmt: skip
    """Operands lose all but 10 bits after the point."""
    tw.assume(K % 4 == 0)
    tw.assume(N % 4 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc, precision="tf32")
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc, via="tma")


@tw.kernel(target="sm_90a", warps=4, reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).bfloat16()")
def gemm_fp8(
    A: Global[f8e4m3, M, K], SA: Global[f32, M], B: Global[f8e4m3, N, K], SB: Global[f32, N], C: Global[bf16, M, N],
    *, BM: Const = 128, BN: Const = 128, BK: Const = 128, STAGES: Const = 4, GROUP: Const = 8,
    CONSUMERS: Const = 2,
):  # fmt: skip
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split", consumers=CONSUMERS):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            # wgmma adds up 8-bit products in fewer bits than f32 has, so each step starts from zeros.
            acc = acc + tw.mma(a, b.T, tw.zeros(f32, (BM, BN)))
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), (acc * sa[:, None] * sb[None, :]).to(bf16), via="tma")


@tw.kernel(target="sm_90a", warps=8, reference="C = ((A.float() @ B.float().T) * SA[:, None] * SB[None, :]).bfloat16()")
def gemm_int8(
    A: Global[i8, M, K], SA: Global[f32, M], B: Global[i8, N, K], SB: Global[f32, N], C: Global[bf16, M, N],
    *, BM: Const = 128, BN: Const = 128, BK: Const = 128, STAGES: Const = 4, GROUP: Const = 16,
):  # fmt: skip
    tw.assume(K % 16 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(i32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((pn * BN, k), (BN, BK)), via="tma")
            acc = tw.mma(a, b.T, acc)
        sa = tw.load(SA.tile((pm * BM,), (BM,)), other=0.0)
        sb = tw.load(SB.tile((pn * BN,), (BN,)), other=0.0)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), (acc.to(f32) * sa[:, None] * sb[None, :]).to(bf16), via="tma")
