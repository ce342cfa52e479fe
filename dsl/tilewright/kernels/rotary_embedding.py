"""Rotary position embedding: pairs of features turned by the angle of their position and place.

Features i and i + F of the 2 F of a head are a pair (`rotary`), or 2 i and 2 i + 1 (`rotary_neighbours`).
"""

# Helpers take tiles, scalars, tensors and constants alike, so most of their parameters have no type.
# pyright: basic

import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

B, S, F = tw.sizes("B", "S", "F")
T = tw.element_types(f32, f16, bf16)


@tw.func
def turned(x, cos, sin):
    """Pairs along the last axis, turned."""
    real, imaginary = tw.split(x)
    return tw.join(real * cos - imaginary * sin, real * sin + imaginary * cos)


@tw.kernel(target="sm_80", warps=4)
def rotary(
    X: Global[T, B, S, 2, F], COS: Global[f32, S, F], SIN: Global[f32, S, F], Y: Global[T, B, S, 2, F],
    *, BS: Const = 16, BF: Const = 64,
):  # fmt: skip
    for b, i, j in tw.tiles(B, tw.cdiv(S, BS), tw.cdiv(F, BF)):
        s, f = i * BS, j * BF
        x = tw.load(X[b].tile((s, 0, f), (BS, 2, BF)), other=0.0).to(f32)
        cos = tw.load(COS.tile((s, f), (BS, BF)), other=0.0)
        sin = tw.load(SIN.tile((s, f), (BS, BF)), other=0.0)
        y = tw.permute(turned(tw.permute(x, (0, 2, 1)), cos, sin), (0, 2, 1))
        tw.store(Y[b].tile((s, 0, f), (BS, 2, BF)), y.to(T))


@tw.kernel(target="sm_80", warps=4)
def rotary_neighbours(
    X: Global[T, B, S, F, 2], COS: Global[f32, S, F], SIN: Global[f32, S, F], Y: Global[T, B, S, F, 2],
    *, BS: Const = 16, BF: Const = 64,
):  # fmt: skip
    for b, i, j in tw.tiles(B, tw.cdiv(S, BS), tw.cdiv(F, BF)):
        s, f = i * BS, j * BF
        x = tw.load(X[b].tile((s, f, 0), (BS, BF, 2)), other=0.0).to(f32)
        cos = tw.load(COS.tile((s, f), (BS, BF)), other=0.0)
        sin = tw.load(SIN.tile((s, f), (BS, BF)), other=0.0)
        tw.store(Y[b].tile((s, f, 0), (BS, BF, 2)), turned(x, cos, sin).to(T))
