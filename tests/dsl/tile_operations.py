"""Kernels that use the operations on register tiles, by family, each with what NumPy makes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = list[Any]

HEAD = """import tilewright as tw
from tilewright import Const, Global, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i16, i32, i64, i1, u8, u16, u32, u64

M, N = tw.sizes("M", "N")

"""


@dataclass(frozen=True)
class Case:
    """One kernel: an element type each for inputs and outputs, the lines that make `a`, `b`, … of the outputs from `x`, `y`."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lines: str
    want: Callable[..., tuple[Any, ...]]
    shape: tuple[int, int] = (8, 64)
    out: tuple[int, int] | None = None
    exact: bool = True

    def text(self, target: str = "sm_80") -> str:
        """The file that declares the kernel."""
        rows, columns = self.shape
        out = self.out or self.shape
        letters, results = "xyz"[: len(self.inputs)], "abcdef"[: len(self.outputs)]
        params = [f"{n.upper()}: Global[{d}, {rows}, {columns}]" for n, d in zip(letters, self.inputs, strict=True)]
        params += [f"{n.upper()}: Global[{d}, {out[0]}, {out[1]}]" for n, d in zip(results, self.outputs, strict=True)]
        body = [f"{n} = tw.load({n.upper()}.tile((0, 0), ({rows}, {columns})))" for n in letters]
        body += self.lines.strip().splitlines()
        body += [f"tw.store({n.upper()}.tile((0, 0), {out}), {n})" for n in results]
        head = f'@tw.kernel(target="{target}", warps=4)\ndef {self.name}({", ".join(params)}):\n    for t in tw.programs(1):\n'
        return HEAD + head + "".join(f"        {line.strip()}\n" for line in body)


def _trunc8(x: Any) -> Any:
    return x.astype(np.int8)


def _nibbles(x: Any) -> Any:
    pairs = np.stack([x << 4 >> 4, x >> 4], -1)
    return pairs.reshape(x.shape[0], -1)


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES = [
    Case("rounding", ("f32",), ("f32", "f32", "f32"),
         "a = tw.ceil(x)\nb = tw.round(x)\nc = tw.trunc(x)",
         lambda x: (np.ceil(x), np.rint(x), np.trunc(x))),
    Case("functions", ("f32",), ("f32", "f32", "f32"),
         "a = tw.log1p(tw.abs(x))\nb = tw.expm1(x)\nc = tw.pow(tw.abs(x), 1.5) + tw.abs(x) ** x",
         lambda x: (np.log1p(abs(x)), np.expm1(x), abs(x) ** np.float32(1.5) + abs(x) ** x), exact=False),
    Case("limits", ("f32", "f32"), ("f32", "f32", "i1"),
         "a = tw.clamp(x, -1.5, 2)\nb = tw.fma(x, y, 0.25)\nc = tw.isnan(tw.sqrt(x))",
         lambda x, y: (np.clip(x, -1.5, 2), (x.astype(np.float64) * y + 0.25).astype(np.float32), x < 0)),
    Case("half_functions", ("f16",), ("f16", "f16", "f16"),
         "a = tw.round(x)\nb = tw.fma(x, x, x)\nc = x / (tw.abs(x) + 1.0)",
         lambda x: (np.rint(x), (x.astype(np.float64) * x + x).astype(np.float16),
                    x / (abs(x) + np.float16(1))), exact=False),
    Case("division", ("i32", "i32"), ("i32", "i32", "i32"),
         "d = tw.where(y == 0, 3, y)\na = x // d\nb = x % d\nc = x // 8 + x % 8 + x // -3 + 7 % d",
         lambda x, y: ((x // np.where(y == 0, 3, y)), x % np.where(y == 0, 3, y),
                       x // 8 + x % 8 + x // -3 + 7 % np.where(y == 0, 3, y))),
    Case("narrow_division", ("i8", "i8"), ("i8", "i8", "i16"),
         "d = tw.where(y == 0, 3, y)\na = x // d\nb = x % 5 + 1\nc = x.to(i16) * 100 // 7",
         lambda x, y: (x // np.where(y == 0, np.int8(3), y), x % np.int8(5) + np.int8(1), x.astype(np.int16) * 100 // 7)),
    Case("unsigned", ("u32", "u8"), ("u32", "u32", "u8"),
         "a = (x ^ 0xD2511F53) // 10 + x % 10\nb = ~x >> 3 & 0xFFFF0000 | x << 30\nc = y >> 2 ^ y & 3",
         lambda x, y: ((x ^ np.uint32(0xD2511F53)) // 10 + x % 10, ~x >> 3 & np.uint32(0xFFFF0000) | x << 30, y >> 2 ^ y & 3)),
    Case("wide_integers", ("i64", "u64"), ("i64", "u64", "u16"),
         "a = x * 1000000007 >> 5\nb = y ^ y << 13\nc = y.to(u16) + 65000",
         lambda x, y: (x * 1000000007 >> 5, y ^ y << 13, y.astype(np.uint16) + np.uint16(65000))),
    Case("bits", ("f32",), ("u32", "f32", "i32"),
         "a = tw.bitcast(x, u32)\nb = tw.bitcast(tw.bitcast(x, u32) & 0x7FFFFFFF, f32)\nc = tw.bitcast(x, i32) >> 23",
         lambda x: (x.view(np.uint32), abs(x), x.view(np.int32) >> 23)),
    Case("bytes_and_floats", ("f32", "i8"), ("i8", "f32", "u8"),
         "a = tw.clamp(tw.round(x * 20.0), -127, 127).to(i8)\nb = y.to(f32) * 0.5\nc = tw.bitcast(y, u8)",
         lambda x, y: (np.clip(np.rint(x * 20), -127, 127).astype(np.int8), y * np.float32(0.5), y.view(np.uint8))),
    Case("scans", ("f32",), ("f32", "f32", "f32"),
         "a = tw.cumsum(x, axis=1)\nb = tw.cummax(x, axis=0, reverse=True)\nc = tw.cumprod(x * 0.5, axis=1)",
         lambda x: (np.cumsum(x, 1), np.maximum.accumulate(x[::-1], 0)[::-1], np.cumprod(x * 0.5, 1)), exact=False),
    Case("integer_scans", ("i32", "u8"), ("i32", "i32", "u8"),
         "a = tw.cumsum(x, axis=1, reverse=True)\nb = tw.cummin(x, axis=-1)\nc = tw.cumsum(y, axis=0)",
         lambda x, y: (np.cumsum(x[:, ::-1], 1, dtype=np.int32)[:, ::-1], np.minimum.accumulate(x, 1),
                       np.cumsum(y, 0, dtype=np.uint8))),
    Case("half_scan", ("f16",), ("f16",), "a = tw.cumsum(x, axis=1)",
         lambda x: (np.cumsum(x.astype(np.float32), 1).astype(np.float16),), exact=False),
    Case("positions", ("f32", "i8"), ("i32", "i32", "i32"),
         "a = tw.broadcast(tw.argmax(x, axis=1, keep_dims=True), (8, 64))\n"
         "b = tw.broadcast(tw.argmin(x, axis=0), (8, 64))\n"
         "c = tw.broadcast(tw.argmax(y, axis=1)[:, None], (8, 64)) + tw.max(y, axis=1, keep_dims=True).to(i32)",
         lambda x, y: (np.broadcast_to(x.argmax(1)[:, None], x.shape), np.broadcast_to(x.argmin(0), x.shape),
                       np.broadcast_to((y.argmax(1) + y.max(1))[:, None], x.shape))),
    Case("shapes", ("f32", "f32"), ("f32", "f32"),
         "p = tw.permute(tw.reshape(x, (8, 4, 16)), (2, 0, 1))\na = tw.reshape(p, (8, 64))\n"
         "u, v = tw.split(tw.reshape(y, (8, 32, 2)))\nb = tw.reshape(tw.join(v, u), (8, 64))",
         lambda x, y: (x.reshape(8, 4, 16).transpose(2, 0, 1).reshape(8, 64),
                       y.reshape(8, 32, 2)[..., ::-1].reshape(8, 64))),
    Case("in_turn", ("f32", "i8"), ("f32", "i8"),
         "a = tw.flip(tw.flip(x, axis=0), axis=1)\n"
         "u, v = tw.split(tw.reshape(y, (8, 32, 2)))\nb = tw.flip(tw.interleave(u, v), axis=-1)",
         lambda x, y: (x[::-1, ::-1], y[:, ::-1])),
    Case("order", ("f32", "u8", "f16"), ("f32", "i32", "u8", "i32", "f16"),
         "a = tw.sort(x, axis=1)\nb = tw.argsort(x, axis=0, descending=True)\n"
         "c = tw.sort(y, axis=0, descending=True)\nd = tw.argsort(y, axis=1)\ne = tw.sort(z, axis=-1, descending=True)",
         lambda x, y, z: (np.sort(x, 1), np.argsort(-x, 0, kind="stable"), -np.sort(-y.astype(int), 0),
                          np.argsort(y, 1, kind="stable"), -np.sort(-z, 1))),
    Case("greatest", ("i8",), ("i8", "i32"),
         "u, v = tw.topk(x, 8, axis=1)\na = tw.broadcast(tw.max(u, axis=1)[:, None], (8, 64))\n"
         "b = tw.broadcast(tw.max(v, axis=1)[:, None], (8, 64))",
         lambda x: (np.broadcast_to(x.max(1)[:, None], x.shape),
                    np.broadcast_to(np.argsort(-x.astype(int), 1, kind="stable")[:, :8].max(1)[:, None], x.shape))),
    Case("softmax", ("f32",), ("f32", "f32"), "a = tw.softmax(x, axis=1)\nb = tw.softmax(x, axis=0)",
         lambda x: (_softmax(x, 1), _softmax(x, 0)), exact=False),
    Case("nibbles", ("i8",), ("i8",), "a = tw.unpack_int4(x)", lambda x: (_nibbles(x),), out=(8, 128)),
    Case("unsigned_nibbles", ("u8",), ("f32",), "a = tw.unpack_int4(x).to(f32) - 8.0",
         lambda x: (_nibbles(x).astype(np.float32) - 8,), out=(8, 128)),
    Case("random_bits", ("i32", "i64"), ("u32", "u32", "f32"),
         "a = tw.randint(42, x)\nb = tw.randint(y, y)\nc = tw.rand(t + 7, x)",
         lambda x, y: (philox(42, x), philox(y, y), uniform(philox(7, x)))),
]  # fmt: skip


def philox(seed: Any, offsets: Any) -> Any:
    """Philox 4x32-10 in Python's integers, one offset at a time."""
    seeds = np.broadcast_to(np.asarray(seed, np.int64), offsets.shape)
    result = np.zeros(offsets.shape, np.uint32)
    for at in np.ndindex(offsets.shape):
        key, counter = int(seeds[at]) % 2**64, int(offsets[at]) % 2**64
        k, c = [key % 2**32, key >> 32], [counter % 2**32, counter >> 32, 0, 0]
        if offsets.dtype.itemsize == 4:
            c[1] = 0
        for _ in range(10):
            p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [q >> 32 ^ c[1] ^ k[0], q % 2**32, p >> 32 ^ c[3] ^ k[1], p % 2**32]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        result[at] = c[0]
    return result


def uniform(bits: Any) -> Any:
    """The f32 of random bits, as Triton makes them."""
    signed = bits.view(np.int32)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)


NUMPY = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "i1": np.bool_,
}  # fmt: skip


def inputs(case: Case, seed: int = 0) -> Arrays:
    """Random arrays: normal for floating point, all bits for integers, with equal elements in each row."""
    random = np.random.default_rng(seed)
    arrays: Arrays = []
    for name in case.inputs:
        dtype = np.dtype(NUMPY[name])
        if dtype.kind == "f":
            array = (random.standard_normal(case.shape) * 2).astype(dtype)
            array[:, 5] = array[:, 9]
        else:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            array = random.integers(low, high, case.shape, dtype, endpoint=True)
            if dtype.itemsize == 4:
                array[:, ::2] = array[:, ::2] % 100
        arrays.append(array)
    return arrays


def outputs(case: Case) -> Arrays:
    """Zeros for the outputs."""
    return [np.zeros(case.out or case.shape, NUMPY[name]) for name in case.outputs]
