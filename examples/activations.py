"""Activation functions as helpers, each used by a kernel over vectors of any length and of three element types."""

import tilewright as tw
from tilewright import Const, Global, bf16, f16, f32

N = tw.sizes("N")
T = tw.element_types(f32, f16, bf16)


@tw.func
def gelu_of(x):
    """Half of x times 1 + erf(x / √2)."""
    return 0.5 * x * (1.0 + tw.erf(x * 0.7071067811865476))


@tw.func
def gelu_tanh_of(x):
    """The approximation of gelu by a hyperbolic tangent."""
    return 0.5 * x * (1.0 + tw.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@tw.func
def silu_of(x):
    """X times its sigmoid."""
    return x * tw.sigmoid(x)


@tw.kernel(target="sm_80", warps=4, reference="Y = gelu(X)")
def gelu(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), gelu_of(x).to(T))


@tw.kernel(target="sm_80", warps=4, reference='Y = gelu(X, approximate="tanh")')
def gelu_tanh(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), gelu_tanh_of(x).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = silu(GATE) * UP")
def swiglu(GATE: Global[T, N], UP: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        gate = tw.load(GATE.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        up = tw.load(UP.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (silu_of(gate) * up).to(T))
