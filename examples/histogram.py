"""How often each bin occurs, and which bin each value belongs to, by a search in sorted edges."""

import tilewright as tw
from tilewright import Const, Global, i32

T, B, E = tw.sizes("T", "B", "E")


@tw.kernel(target="sm_80", warps=4, reference="COUNT = bincount(X, minlength=B)")
def histogram(X: Global[i32, T], COUNT: Global[i32, B], *, BLOCK: Const = 1024):
    tw.zeroed(COUNT)
    tw.assume(lambda t: 0 <= X[t] < B)
    for i in tw.tiles(tw.cdiv(T, BLOCK)):
        at = i * BLOCK + tw.arange(BLOCK)
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0)
        # Without the mask, lanes past the end of X would count in bin 0.
        tw.atomic_add(COUNT.at((x,)), 1, mask=at < T)


@tw.kernel(target="sm_80", warps=1, reference="BIN = searchsorted(EDGES, X, right=True)")
def bin_of_each(X: Global[i32, T], EDGES: Global[i32, E], BIN: Global[i32, T]):
    """The number of edges that are not greater than the value, as `np.searchsorted(EDGES, X, "right")`."""
    tw.assume(lambda e: EDGES[e] <= EDGES[e + 1])
    for t in tw.tiles(T):
        x = tw.load(X[t])
        lo = 0
        hi = E
        while lo < hi:
            middle = (lo + hi) // 2
            if tw.load(EDGES[middle]) <= x:
                lo = middle + 1
            else:
                hi = middle
        tw.store(BIN.tile((t,), (1,)), tw.full(i32, (1,), lo))
