"""Quantization of rows to 8 bits, each with the scale that puts its greatest magnitude at the end of the range."""

import tilewright as tw
from tilewright import Const, Global, bf16, f8e4m3, f16, f32, i8

M, N = tw.sizes("M", "N")
T = tw.element_types(f32, f16, bf16)


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
S = clamp(amax(abs(X.float()), 1), min=1e-30) * (1 / 127)
Q = round(X.float() / S[:, None]).to(torch.int8)
""",
)
def quantize_int8(X: Global[T, M, N], Q: Global[i8, M, N], S: Global[f32, M], *, R: Const = 1, BN: Const = 1024):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=0.0).to(f32)
        scale = tw.maximum(tw.max(tw.abs(x), axis=1), 1e-30) * (1.0 / 127.0)
        q = tw.clamp(tw.round(x * (1.0 / scale)[:, None]), -127.0, 127.0)
        tw.store(Q.tile((i * R, 0), (R, BN)), q.to(i8))
        tw.store(S.tile((i * R,), (R,)), scale)


@tw.kernel(target="sm_89", warps=4)
def quantize_fp8(X: Global[T, M, N], Q: Global[f8e4m3, M, N], S: Global[f32, M], *, R: Const = 1, BN: Const = 1024):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, R)):
        x = tw.load(X.tile((i * R, 0), (R, BN)), other=0.0).to(f32)
        scale = tw.maximum(tw.max(tw.abs(x), axis=1), 1e-30) * (1.0 / 448.0)
        tw.store(Q.tile((i * R, 0), (R, BN)), (x * (1.0 / scale)[:, None]).to(f8e4m3))
        tw.store(S.tile((i * R,), (R,)), scale)
