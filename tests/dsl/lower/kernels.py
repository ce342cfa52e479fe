"""Explicit kernels that exercise what the lowering does with tiles: functions, ranks, reductions, conversions."""

from __future__ import annotations

from dataclasses import replace

from analysis.kernels import bar, buf, cp_async_gemm, kernel, let, programs, tensor, view, x
from tilewright.dtypes import DType, f16, f32, i1, i32
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import BarrierType, SharedType, TileType, Type
from tilewright.layout import default_swizzle

ref = ir.TileRef


def math_functions(block: int = 512) -> ir.Kernel:
    """OUT = tanh + sigmoid + erf + sin·cos + floor + sqrt|x| + log2(|x| + 1) + max(x, -x / 2)."""
    names: list[str] = []

    def c(dst: str, op: ir.ComputeOp, *args: ir.Operand | str) -> ir.Compute:
        names.append(dst)
        return ir.Compute(dst, op, tuple(ref(a) if isinstance(a, str) else a for a in args))

    body = (
        programs("i", f"cdiv(N, {block})", False,
            ir.Load("x", view("X", (f"i * {block}",), (block,)), 0.0, "direct"),
            c("t", "tanh", "x"), c("s", "sigmoid", "x"), c("e", "erf", "x"), c("si", "sin", "x"), c("co", "cos", "x"),
            c("fl", "floor", "x"), c("ab", "abs", "x"), c("sq", "sqrt", "ab"), c("ab1", "add", "ab", 1.0),
            c("lg", "log2", "ab1"), c("neg", "neg", "x"), c("h", "mul", "neg", 0.5), c("mx", "maximum", "x", "h"),
            c("sc", "mul", "si", "co"), c("a1", "add", "t", "s"), c("a2", "add", "a1", "e"), c("a3", "add", "a2", "sc"),
            c("a4", "add", "a3", "fl"), c("a5", "add", "a4", "sq"), c("a6", "add", "a5", "lg"), c("y", "add", "a6", "mx"),
            ir.Store(view("OUT", (f"i * {block}",), (block,)), "y", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {n: TileType(f32, (block,)) for n in ("x", *names)}
    return kernel("math_functions", "sm_80", 4, (tensor("X", f32, "N"), tensor("OUT", f32, "N")), body, types)


def types_and_casts(block: int = 256) -> ir.Kernel:
    """Truth values, integers, f16 functions, casts, `where`, `arange` and uniform scalars in one elementwise kernel."""
    types: dict[str, Type] = {"x": TileType(f32, (block,))}

    def c(dst: str, dtype: DType, op: ir.ComputeOp, *args: ir.Operand | str) -> ir.Compute:
        types[dst] = TileType(dtype, (block,))
        return ir.Compute(dst, op, tuple(ref(a) if isinstance(a, str) else a for a in args))

    body = (
        programs("t", f"cdiv(N, {block})", False,
            ir.Load("x", view("X", (f"t * {block}",), (block,)), 0.0, "direct"),
            c("below", i1, "lt", "x", 0.0), c("above", i1, "not", "below"), c("never", i1, "and", "below", "above"),
            c("low", i1, "or", "never", "below"),
            c("i", i32, "cast", "x"), c("j", i32, "abs", "i"), c("n", i32, "neg", "j"), c("top", i32, "maximum", "i", "n"),
            c("three", i1, "eq", "i", ex.Int(3)),
            c("h", f16, "cast", "x"), c("th", f16, "tanh", "h"), c("sg", f16, "sigmoid", "h"), c("cut", f16, "maximum", "th", 0.5),
            c("hs", f16, "add", "cut", "sg"), c("hf", f32, "cast", "hs"),
            c("r", i32, "arange"), c("rf", f32, "cast", "r"), c("w", f32, "where", "low", "hf", "rf"),
            c("tf", f32, "cast", "top"), c("a", f32, "add", "w", "tf"), c("number", f32, "full", ex.Var("t")),
            c("b", f32, "add", "a", "number"), c("one", f32, "where", "three", 1.0, 0.0), c("y", f32, "add", "b", "one"),
            ir.Store(view("OUT", (f"t * {block}",), (block,)), "y", "direct"),
        ),
    )  # fmt: skip
    return kernel("types_and_casts", "sm_80", 4, (tensor("X", f32, "N"), tensor("OUT", f32, "N")), body, types)


def maxima_of_three_axes() -> ir.Kernel:
    """OUT = X / sum over the last axis - maximum over the middle one, of a tensor of rank 3."""
    at = ("t", 0, 0)
    whole, rows, columns = TileType(f32, (1, 16, 32)), TileType(f32, (1, 16, 1)), TileType(f32, (1, 1, 32))
    body = (
        programs("t", "M", False,
            ir.Load("x", view("X", at, (1, 16, 32)), 0.0, "direct"),
            ir.Compute("s", "sum", (ref("x"),), axis=2, keep=True), ir.Compute("m", "max", (ref("x"),), axis=1, keep=True),
            ir.Compute("y", "div", (ref("x"), ref("s"))), ir.Compute("z", "sub", (ref("y"), ref("m"))),
            ir.Store(view("OUT", at, (1, 16, 32)), "z", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {"x": whole, "y": whole, "z": whole, "s": rows, "m": columns}
    params = (tensor("X", f32, "M", "N", "K"), tensor("OUT", f32, "M", "N", "K"))
    return kernel("maxima_of_three_axes", "sm_80", 4, params, body, types)


def column_sums(rows: int = 8, columns: int = 128) -> ir.Kernel:
    """OUT[m] = sum over n of X[m, n] + BIAS[n]: a loop over column blocks, a bias of lower rank, a slice as accumulator."""
    at = ("i * " + str(rows),)
    body = (
        programs("i", f"cdiv(M, {rows})", False,
            ir.Compute("acc", "full", (0.0,)),
            ir.For("n", ex.Int(0), ex.Size("N"), columns, (
                ir.Load("x", view("X", (*at, "n"), (rows, columns)), 0.0, "direct"),
                ir.Load("bias", view("BIAS", ("n",), (columns,)), 0.0, "direct"),
                ir.Compute("y", "add", (ref("x"), ref("bias"))),
                ir.Compute("part", "sum", (ref("y"),), axis=1),
                ir.Compute("acc", "add", (ref("acc"), ref("part"))),
            )),
            ir.Store(view("OUT", at, (rows,)), "acc", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {
        "x": TileType(f32, (rows, columns)), "y": TileType(f32, (rows, columns)), "bias": TileType(f32, (columns,)),
        "part": TileType(f32, (rows,)), "acc": TileType(f32, (rows,)),
    }  # fmt: skip
    params = (tensor("X", f32, "M", "N"), tensor("BIAS", f32, "N"), tensor("OUT", f32, "M"))
    return kernel("column_sums", "sm_80", 4, params, body, types)


def transposed_plus_sums(size: int = 64) -> ir.Kernel:
    """OUT = Xᵀ + the column sums of X, for each row: transpose, expand_dims, broadcast, and conversions between them."""
    at = view("X", ("t * 0", 0), (size, size))
    body = (
        programs("t", "1", False,
            ir.Load("x", at, 0.0, "direct"), ir.Compute("r", "sum", (ref("x"),), axis=0),
            ir.Compute("e", "expand_dims", (ref("r"),), axis=1), ir.Compute("b", "broadcast", (ref("e"),)),
            ir.Compute("xt", "transpose", (ref("x"),)), ir.Compute("z", "add", (ref("b"), ref("xt"))),
            ir.Store(view("OUT", (0, 0), (size, size)), "z", "direct"),
        ),
    )  # fmt: skip
    tile = TileType(f32, (size, size))
    types: dict[str, Type] = {
        "x": tile, "b": tile, "xt": tile, "z": tile, "r": TileType(f32, (size,)), "e": TileType(f32, (size, 1)),
    }  # fmt: skip
    return kernel(
        "transposed_plus_sums", "sm_80", 4, (tensor("X", f32, "M", "N"), tensor("OUT", f32, "N", "M")), body, types
    )


def rotated(block: int = 256) -> ir.Kernel:
    """Block t of X becomes block (-t) mod 7 of OUT: a remainder of negative numbers, computed on the device."""
    body = (
        programs("t", "7", False,
            let("to", "(0 - t) % 7"), let("half", "(0 - t - 1) // 2 + 4"),
            ir.Load("x", view("X", (f"t * {block}",), (block,)), 0.0, "direct"),
            ir.Compute("y", "add", (ref("x"), ex.Var("half"))),
            ir.Store(view("OUT", (f"to * {block}",), (block,)), "y", "direct"),
        ),
    )  # fmt: skip
    types: dict[str, Type] = {n: TileType(f32, (block,)) for n in ("x", "y")}
    return kernel("rotated", "sm_80", 4, (tensor("X", f32, "N"), tensor("OUT", f32, "N")), body, types)


def biased_gemm() -> ir.Kernel:
    """C = max(A·B + BIAS, 0): what meets an accumulator is loaded by rows and converted; the bias follows its columns."""
    k = cp_async_gemm()
    (cast,) = [s for s in ir.walk(k.body) if isinstance(s, ir.Compute) and s.op == "cast"]
    epilogue = (
        ir.Load("bias", view("BIAS", ("pn * 128",), (128,)), 0.0, "direct"),
        ir.Compute("sum", "add", (ref("acc"), ref("bias"))),
        ir.Compute("positive", "maximum", (ref("sum"), 0.0)),
        replace(cast, args=(ref("positive"),)),
    )
    types: dict[str, Type] = {
        **k.types, "bias": TileType(f32, (128,)), "sum": k.types["acc"], "positive": k.types["acc"],
    }  # fmt: skip
    body = ir.rewrite(k.body, lambda s: epilogue if s is cast or s == cast else None)
    params = (*k.params[:2], tensor("BIAS", f32, "N"), k.params[2])
    assumptions = tuple(ir.Assumption(x(a)) for a in ("K % 8 == 0", "N % 8 == 0"))
    return replace(k, name="biased_gemm", body=body, types=types, params=params, assumptions=assumptions)


def scaled_by_tma(rows: int = 64, columns: int = 64) -> ir.Kernel:
    """OUT = 2 X, tile by tile through shared memory with bulk copies, without roles."""
    at = ("t * " + str(rows), 0)
    body = (
        ir.AllocShared("s"), ir.AllocShared("o"), ir.AllocBarrier("full"),
        programs("t", f"cdiv(M, {rows})", False,
            ir.BarrierExpect(bar("full"), ex.Int(rows * columns * 2)),
            ir.TmaLoad(view("X", at, (rows, columns)), buf("s"), bar("full")),
            ir.BarrierWait(bar("full"), ex.Int(0)),
            ir.SharedLoad("v", buf("s")), ir.Compute("w", "mul", (ref("v"), 2.0)), ir.SharedStore(buf("o"), "w"),
            ir.FenceAsync(), ir.TmaStore(view("OUT", at, (rows, columns)), buf("o")), ir.TmaStoreWait(0),
        ),
    )  # fmt: skip
    tile = TileType(f16, (rows, columns))
    shared = SharedType(f16, (rows, columns), 1, False, default_swizzle((rows, columns), 16))
    types: dict[str, Type] = {"s": shared, "o": shared, "full": BarrierType(1, 1), "v": tile, "w": tile}
    params = (tensor("X", f16, "M", "N"), tensor("OUT", f16, "M", "N"))
    assumptions = ("N % 8 == 0", f"N <= {columns}")
    return kernel("scaled_by_tma", "sm_90a", 4, params, body, types, assumptions)
