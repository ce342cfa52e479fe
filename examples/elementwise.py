"""One fused pass over vectors of any length: OUT = X * Y + X. The last tile may be partly outside."""

import tilewright as tw
from tilewright import Const, Global, f32

N = tw.sizes("N")


@tw.kernel(target="sm_80", warps=4, reference="OUT = X * Y + X")
def multiply_add(X: Global[f32, N], Y: Global[f32, N], OUT: Global[f32, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0)
        y = tw.load(Y.tile((i * BLOCK,), (BLOCK,)), other=0.0)
        tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), x * y + x)
