"""Rotary position embedding: pairs of neighbouring features turned by an angle for their position and place.

The last axis holds the two features of a pair, so that one thread has both.
"""

import tilewright as tw
from tilewright import Const, Global, f32

S, H = tw.sizes("S", "H")


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="Y = stack((X[..., 0] * COS - X[..., 1] * SIN, X[..., 0] * SIN + X[..., 1] * COS), dim=-1)",
)
def rotary(
    X: Global[f32, S, H, 2],
    COS: Global[f32, S, H],
    SIN: Global[f32, S, H],
    Y: Global[f32, S, H, 2],
    *,
    BS: Const = 16,
    BH: Const = 64,
):
    for i, j in tw.tiles(tw.cdiv(S, BS), tw.cdiv(H, BH)):
        s, h = i * BS, j * BH
        real, imaginary = tw.split(tw.load(X.tile((s, h, 0), (BS, BH, 2)), other=0.0))
        cos = tw.load(COS.tile((s, h), (BS, BH)), other=0.0)
        sin = tw.load(SIN.tile((s, h), (BS, BH)), other=0.0)
        turned = tw.join(real * cos - imaginary * sin, real * sin + imaginary * cos)
        tw.store(Y.tile((s, h, 0), (BS, BH, 2)), turned)
