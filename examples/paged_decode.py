"""Attention of one new token for each sequence over a paged cache: a block table says which pages hold a sequence."""

import tilewright as tw
from tilewright import Const, Global, f32, i32

B, H, P, D, S = tw.sizes("B", "H", "P", "D", "S")


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
        K = KEYS[PAGES].transpose(1, 2).reshape(B, H, S * 16, D)
        V = VALUES[PAGES].transpose(1, 2).reshape(B, H, S * 16, D)
        SCORES = where(arange(S * 16) < LENGTHS[:, None, None, None], Q @ K.mT * 0.125, -inf)
        OUT = softmax(SCORES, -1) @ V
    """,
)
def paged_decode(
    Q: Global[f32, B, H, 4, D], KEYS: Global[f32, P, H, 16, D], VALUES: Global[f32, P, H, 16, D],
    PAGES: Global[i32, B, S], LENGTHS: Global[i32, B], OUT: Global[f32, B, H, 4, D],
    *, PAGE: Const = 16, GROUP: Const = 4, HEAD: Const = 64,
):  # fmt: skip
    """Four query heads share the keys and values of one of the H heads; a page holds 16 tokens."""
    tw.assume(D == HEAD)
    tw.assume(lambda b, s: 0 <= PAGES[b, s] < P)
    tw.assume(lambda b: 1 <= LENGTHS[b] <= S * 16)
    for b, h in tw.tiles(B, H):
        length = tw.load(LENGTHS[b])
        q = tw.load(Q[b, h].tile((0, 0), (GROUP, HEAD)))
        top = tw.full(f32, (GROUP, 1), -1e30)
        total = tw.zeros(f32, (GROUP, 1))
        acc = tw.zeros(f32, (GROUP, HEAD))
        for s in range(tw.cdiv(length, PAGE)):
            page = tw.load(PAGES[b, s])
            k = tw.load(KEYS[page, h].tile((0, 0), (PAGE, HEAD)))
            v = tw.load(VALUES[page, h].tile((0, 0), (PAGE, HEAD)))
            scores = tw.sum(q[:, None, :] * k[None, :, :], axis=2) * 0.125
            token = s * PAGE + tw.arange(PAGE)
            scores = tw.where((token < length)[None, :], scores, -1e30)
            new = tw.maximum(top, tw.max(scores, axis=1, keep_dims=True))
            weights = tw.exp(scores - new)
            scale = tw.exp(top - new)
            total = total * scale + tw.sum(weights, axis=1, keep_dims=True)
            acc = acc * scale + tw.sum(weights[:, :, None] * v[None, :, :], axis=1)
            top = new
        tw.store(OUT[b, h].tile((0, 0), (GROUP, HEAD)), acc / total)
