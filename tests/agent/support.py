"""Kernels and small programs that stand in for workers."""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.frontend import KernelUnit, parse_module
from tilewright.source import SourceText

HEAD = """\
import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

M, N, K = tw.sizes("M", "N", "K")

"""

GEMM = """\
@tw.kernel(target="sm_90a", warps=8, reference="C = A.float() @ B.float()")
def gemm(
    A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N],
    *, BM: Const = 128, BN: Const = 256, BK: Const = 64, STAGES: Const = 3, GROUP: Const = 16,
):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN), order=tw.grouped(GROUP), persistent=True):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="split"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="tma")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="tma")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16), via="tma")
"""

GEMM_SM80 = """\
@tw.kernel(target="sm_80", warps=4, reference="C = A.float() @ B.float()")
def gemm_sm80(
    A: Global[f16, M, K], B: Global[f16, K, N], C: Global[f16, M, N],
    *, BM: Const = 64, BN: Const = 64, BK: Const = 32, STAGES: Const = 3,
):
    tw.assume(K % 8 == 0)
    tw.assume(N % 8 == 0)
    for pm, pn in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        acc = tw.zeros(f32, (BM, BN))
        for k in tw.pipeline(0, K, BK, stages=STAGES, roles="single"):
            a = tw.load(A.tile((pm * BM, k), (BM, BK)), via="cp_async")
            b = tw.load(B.tile((k, pn * BN), (BK, BN)), via="cp_async")
            acc = tw.mma(a, b, acc)
        tw.store(C.tile((pm * BM, pn * BN), (BM, BN)), acc.to(f16))
"""

FMA = """\
@tw.kernel(target="sm_80", warps=4, reference="X * Y + X")
def fused_multiply_add(X: Global[f32, N], Y: Global[f32, N], OUT: Global[f32, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0)
        y = tw.load(Y.tile((i * BLOCK,), (BLOCK,)), other=0.0)
        tw.store(OUT.tile((i * BLOCK,), (BLOCK,)), x * y + x)
"""

SOFTMAX = """\
@tw.kernel(target="sm_80", warps=4, reference="torch.softmax(X, 1)")
def softmax(X: Global[f32, M, N], OUT: Global[f32, M, N], *, ROWS: Const = 1, BN: Const = 1024):
    tw.assume(N <= BN)
    for i in tw.tiles(tw.cdiv(M, ROWS)):
        x = tw.load(X.tile((i * ROWS, 0), (ROWS, BN)), other=-tw.inf)
        m = tw.max(x, axis=1, keep_dims=True)
        e = tw.exp(x - m)
        tw.store(OUT.tile((i * ROWS, 0), (ROWS, BN)), e / tw.sum(e, axis=1, keep_dims=True))
"""


def unit(kernel: str, head: str = HEAD) -> KernelUnit:
    """The only kernel of a file."""
    module = parse_module(SourceText.of(head + kernel, "kernel.py"))
    (found,) = module.units
    return found


def program(folder: Path, text: str, name: str = "program.py") -> str:
    """A command line that runs `text` with this Python."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return f"{sys.executable} {path}"
