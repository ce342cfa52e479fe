"""Routing of a mixture of experts: for each token the weights and the numbers of its experts, the heaviest first."""

import tilewright as tw
from tilewright import Const, Global, f32, i32

T, E = tw.sizes("T", "E")  # tokens, experts


@tw.kernel(
    target="sm_80",
    warps=4,
    reference="""
    WEIGHT = softmax(LOGITS, 1).topk(4, dim=1).values
    EXPERT = argsort(LOGITS, dim=1, descending=True, stable=True)[:, :4]
    """,
)
def routing(
    LOGITS: Global[f32, T, E], WEIGHT: Global[f32, T, 4], EXPERT: Global[i32, T, 4], *, BT: Const = 16, BE: Const = 64
):
    tw.assume(E >= 4)
    tw.assume(E <= BE)
    for pt in tw.tiles(tw.cdiv(T, BT)):
        # Experts that there are not have no weight, and come last.
        x = tw.load(LOGITS.tile((pt * BT, 0), (BT, BE)), other=-tw.inf)
        greatest, expert = tw.topk(x, 4, axis=1)
        m = tw.max(x, axis=1, keep_dims=True)
        total = tw.sum(tw.exp(x - m), axis=1, keep_dims=True)
        tw.store(WEIGHT.tile((pt * BT, 0), (BT, 4)), tw.exp(greatest - m) / total)
        tw.store(EXPERT.tile((pt * BT, 0), (BT, 4)), expert)
