"""Rows of a table by their numbers, and the sum of several of them: indices come from tensors."""

import tilewright as tw
from tilewright import Const, Global, f16, f32, i32

T, V, D, L = tw.sizes("T", "V", "D", "L")


@tw.kernel(target="sm_80", warps=4, reference="OUT = TABLE[IDS]")
def embedding(TABLE: Global[f16, V, D], IDS: Global[i32, T], OUT: Global[f16, T, D], *, BT: Const = 16, BD: Const = 64):
    tw.assume(lambda t: 0 <= IDS[t] < V)
    for i, j in tw.tiles(tw.cdiv(T, BT), tw.cdiv(D, BD)):
        ids = tw.load(IDS.tile((i * BT,), (BT,)), other=0)
        columns = j * BD + tw.arange(BD)
        # A row past the end of IDS reads row 0 and is dropped by the store.
        rows = tw.load(TABLE.at((ids[:, None], columns[None, :])), mask=(columns < D)[None, :], other=0.0)
        tw.store(OUT.tile((i * BT, j * BD), (BT, BD)), rows)


@tw.kernel(target="sm_80", warps=4, reference="OUT = (TABLE[IDS] * (IDS >= 0)[:, :, None]).sum(1)")
def embedding_bag(
    TABLE: Global[f32, V, D], IDS: Global[i32, T, L], OUT: Global[f32, T, D], *, BT: Const = 16, BD: Const = 64
):
    """The sum of up to L rows; -1 in IDS stands for none."""
    tw.assume(lambda t, k: 0 <= IDS[t, k] < V or IDS[t, k] == -1)
    for i, j in tw.tiles(tw.cdiv(T, BT), tw.cdiv(D, BD)):
        columns = j * BD + tw.arange(BD)
        total = tw.zeros(f32, (BT, BD))
        for k in range(L):
            ids = tw.load(IDS.tile((i * BT, k), (BT, 1)), other=-1)
            there = (ids >= 0) & (columns < D)[None, :]
            total += tw.load(TABLE.at((ids, columns[None, :])), mask=there, other=0.0)
        tw.store(OUT.tile((i * BT, j * BD), (BT, BD)), total)


@tw.kernel(target="sm_80", warps=4, reference="DTABLE = (IDS == arange(V)[:, None]).float() @ DOUT")
def embedding_backward(
    IDS: Global[i32, T], DOUT: Global[f32, T, D], DTABLE: Global[f32, V, D], *, BT: Const = 16, BD: Const = 64
):
    """The gradient of the table: rows of DOUT are added up where their ids say; equal ids meet in one row."""
    tw.zeroed(DTABLE)
    tw.assume(lambda t: 0 <= IDS[t] < V)
    for i, j in tw.tiles(tw.cdiv(T, BT), tw.cdiv(D, BD)):
        # Rows past the end of IDS go to row 0 with the zeros that DOUT has there.
        ids = tw.load(IDS.tile((i * BT,), (BT,)), other=0)
        columns = j * BD + tw.arange(BD)
        rows = tw.load(DOUT.tile((i * BT, j * BD), (BT, BD)), other=0.0)
        tw.atomic_add(DTABLE.at((ids[:, None], columns[None, :])), rows, mask=(columns < D)[None, :])
