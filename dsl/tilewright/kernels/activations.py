"""Activation functions of vectors, computed in f32 and stored in the type of their input."""

import tilewright as tw
from tilewright import Const, Global, Scalar, bf16, f16, f32

N = tw.sizes("N")
T = tw.element_types(f32, f16, bf16)


@tw.kernel(target="sm_80", warps=4, reference="Y = relu(X)")
def relu(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.maximum(x, 0.0).to(T))


@tw.kernel(target="sm_80", warps=4)
def leaky_relu(X: Global[T, N], Y: Global[T, N], slope: Scalar[f32], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.where(x > 0.0, x, slope * x).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = sigmoid(X)")
def sigmoid(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.sigmoid(x).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = tanh(X)")
def tanh(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.tanh(x).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = silu(X)")
def silu(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (x * tw.sigmoid(x)).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = gelu(X)")
def gelu(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (0.5 * x * (1.0 + tw.erf(x * 0.7071067811865476))).to(T))


@tw.kernel(target="sm_80", warps=4, reference='Y = gelu(X, approximate="tanh")')
def gelu_tanh(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (0.5 * x * (1.0 + tw.tanh(inner))).to(T))


@tw.kernel(target="sm_80", warps=4)
def selu(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        below = 1.7580993408473766 * tw.expm1(tw.minimum(x, 0.0))
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.where(x > 0.0, 1.0507009873554805 * x, below).to(T))


@tw.kernel(target="sm_80", warps=4)
def elu(X: Global[T, N], Y: Global[T, N], alpha: Scalar[f32], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.where(x > 0.0, x, alpha * tw.expm1(tw.minimum(x, 0.0))).to(T))


@tw.kernel(target="sm_80", warps=4)
def hardsigmoid(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.clamp(x * 0.16666666666666666 + 0.5, 0.0, 1.0).to(T))


@tw.kernel(target="sm_80", warps=4)
def hardtanh(X: Global[T, N], Y: Global[T, N], low: Scalar[f32], high: Scalar[f32], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), tw.minimum(tw.maximum(x, low), high).to(T))


@tw.kernel(target="sm_80", warps=4)
def softplus(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        # log(1 + exp(x)) without overflow: what is above zero is added outside of the logarithm.
        y = tw.maximum(x, 0.0) + tw.log1p(tw.exp(-tw.abs(x)))
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), y.to(T))


@tw.kernel(target="sm_80", warps=4)
def softsign(X: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        x = tw.load(X.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (x / (1.0 + tw.abs(x))).to(T))


@tw.kernel(target="sm_80", warps=4, reference="Y = silu(GATE) * UP")
def silu_and_multiply(GATE: Global[T, N], UP: Global[T, N], Y: Global[T, N], *, BLOCK: Const = 1024):
    for i in tw.tiles(tw.cdiv(N, BLOCK)):
        gate = tw.load(GATE.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        up = tw.load(UP.tile((i * BLOCK,), (BLOCK,)), other=0.0).to(f32)
        tw.store(Y.tile((i * BLOCK,), (BLOCK,)), (gate * tw.sigmoid(gate) * up).to(T))
