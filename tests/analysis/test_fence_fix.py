"""The fix of a missing fence settles it, wherever the threads synchronize."""

import pytest

from support import apply, check, found, whole

KERNEL = """
@tw.kernel(target="sm_90a", warps=4)
def product(X: Global[f16, M, 64], Y: Global[f16, 64, 64], C: Global[f32, M, 64]):
    a = tw.shared(f16, (64, 64))
    b = tw.shared(f16, (64, 64))
    for i in tw.tiles(tw.cdiv(M, 64)):
        tw.store_shared(a, tw.load(X.tile((i * 64, 0), (64, 64)), other=0.0))
        tw.store_shared(b, tw.load(Y.tile((0, 0), (64, 64))))
        tw.sync()
        acc = tw.wgmma(a, b, tw.zeros(f32, (64, 64)))
        tw.wgmma_wait(0)
        tw.store(C.tile((i * 64, 0), (64, 64)), acc)
"""
COPY = """
@tw.kernel(target="sm_90a", warps=4)
def copy(X: Global[f16, M, 64], Y: Global[f16, M, 64]):
    tile = tw.shared(f16, (64, 64))
    for i in tw.tiles(tw.cdiv(M, 64)):
        tw.store_shared(tile, tw.load(X.tile((i * 64, 0), (64, 64)), other=0.0))
        tw.tma_store(Y.tile((i * 64, 0), (64, 64)), tile)
        tw.tma_store_wait(0)
"""


@pytest.mark.parametrize("text", [KERNEL, COPY], ids=["sync in the text", "sync of the back end"])
def test_the_inserted_fence_stands_before_the_sync(text):
    text = whole(text)
    (fix, *_) = found(check(text), "TW404").fixes
    assert check(apply(text, fix)).verdict == "proved"
