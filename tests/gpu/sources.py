"""Random kernels as a person writes them, from loads to stores, of which interpreter and generated code must agree.

Numbers are quarters of small size, so that sums, products and comparisons are exact in any order; what is not exact
(exponentials, sines) is stored and compared with a tolerance, and nothing is computed from it. Rows and columns are odd,
and may be fewer than a tile has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HEAD = """import tilewright as tw
from tilewright import Global, Scalar, bf16, f16, f32, i8, i16, i32, u8

M, N, E, P, Q = tw.sizes("M", "N", "E", "P", "Q")


@tw.kernel(target="TARGET", warps=WARPS)
def program(
    X: Global[f32, M, N], Y: Global[f32, N], SCALE: Global[f32, M], IDS: Global[i32, M], EDGES: Global[i32, E],
    alpha: Scalar[f32], n: Scalar[i32],
    OUT: Global[f32, P, M, N], ROUGH: Global[f32, Q, M, N], COUNT: Global[i32, N], SUM: Global[f32, M],
):
    tw.zeroed(COUNT)
    tw.zeroed(SUM)
    tw.assume(lambda m: 0 <= IDS[m] < M)
    for i, j in tw.tiles(tw.cdiv(M, BM), tw.cdiv(N, BN)):
        rows, columns = i * BM + tw.arange(BM), j * BN + tw.arange(BN)
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        ids = tw.load(IDS.tile((i * BM,), (BM,)), other=0)
"""
_SIZES = ((1, 1), (3, 5), (33, 61), (64, 64), (70, 130), (17, 200))


@dataclass
class Source:
    """A random kernel: `text`, and `arguments()` for it."""

    seed: int
    target: str = "sm_80"
    lines: list[str] = field(default_factory=list[str])
    tiles: list[str] = field(default_factory=list[str])
    whole: list[str] = field(default_factory=list[str])
    scalars: list[str] = field(default_factory=lambda: ["n", "M", "i", "j"])
    rough: list[str] = field(default_factory=list[str])
    serial: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rows, self.columns = self.random.choice(((16, 32), (8, 64), (32, 32), (4, 128)))
        for _ in range(2):
            self.load(2)
        for _ in range(9):
            self.statement(2, 0)
        self.exact = list(self.tiles)
        self.size = self.random.choice(_SIZES)

    @property
    def text(self) -> str:
        """The file."""
        sizes = {"BM": self.rows, "BN": self.columns, "TARGET": self.target, "WARPS": self.random_warps}
        head = HEAD
        for name, value in sizes.items():
            head = head.replace(name, str(value))
        stores = [f"OUT[{p}].tile((i * {self.rows}, j * {self.columns}), ({self.shape})), {t}" for p, t in
                  enumerate(self.exact)]  # fmt: skip
        stores += [f"ROUGH[{p}].tile((i * {self.rows}, j * {self.columns}), ({self.shape})), {t}" for p, t in
                   enumerate(self.rough)]  # fmt: skip
        return head + "\n".join(self.lines) + "\n" + "".join(f"        tw.store({s})\n" for s in stores)

    @property
    def random_warps(self) -> int:
        """Warps of the kernel."""
        return (1, 2, 4, 8)[self.seed % 4]

    @property
    def shape(self) -> str:
        """The shape of the tiles, as in the text."""
        return f"{self.rows}, {self.columns}"

    def arguments(self) -> list[Any]:
        """Arrays and numbers for the kernel, outputs full of NaN and sevens."""
        rng, (m, n) = np.random.default_rng(self.seed), self.size
        edges = np.sort(rng.integers(-3, 20, 7)).astype(np.int32)
        quarters = (rng.integers(-40, 41, s).astype(np.float32) / 4 for s in ((m, n), (n,), (m,)))
        return [
            *quarters, rng.integers(0, m, m).astype(np.int32), edges, float(rng.integers(-8, 9)) / 4,
            int(rng.integers(0, 12)), np.full((len(self.exact), m, n), np.nan, np.float32),
            np.full((max(1, len(self.rough)), m, n), np.nan, np.float32), np.full(n, 7, np.int32),
            np.full(m, 7.0, np.float32),
        ]  # fmt: skip

    # -------------------------------------------------------------------------------- text

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def new(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def tile(self) -> str:
        return self.random.choice(self.tiles)

    def keep(self, depth: int, expression: str, name: str = "") -> None:
        """Give an exact value a name: quarters between -64 and 64."""
        fresh = name or self.new("t")
        self.put(depth, f"{fresh} = tw.clamp(tw.round(({expression}) * 4.0) / 4.0, -64.0, 64.0)")
        if not name:
            self.tiles.append(fresh)

    def scalar(self) -> str:
        a, b = self.random.choice(self.scalars), self.random.randrange(1, 6)
        return self.pick(
            f"({a} + {b}) % 7", f"{a} % {b + 1}", f"min({a}, {b})", f"max({a} - {b}, 0)", f"tw.cdiv({a}, {b})"
        )

    def load(self, depth: int) -> None:
        at = f"(i * {self.rows}, j * {self.columns}), ({self.shape})"
        other = self.random.randrange(-2, 3)
        match self.random.randrange(6):
            case 0:
                self.keep(depth, f"tw.load(X.tile({at}), mask=inside & (columns > n)[None, :], other={other}.0)")
            case 1:
                self.keep(
                    depth,
                    f"tw.load(X.at((ids[:, None], columns[None, :])), mask=(columns < N)[None, :], other={other}.5)",
                )
            case 2:
                self.keep(depth, f"tw.load(SCALE.at((ids,)))[:, None] + tw.load(Y.tile((j * {self.columns},), ({self.columns},)), "
                          f"other={other}.0)[None, :]")  # fmt: skip
            case 3:
                row = self.new("r")
                self.put(depth, f"{row} = tw.load(IDS[({self.scalar()}) % M])")
                self.keep(depth, f"tw.load(X.tile(({row}, j * {self.columns}), ({self.shape})), other={other}.0)")
                self.scalars.append(row)
            case 4:
                self.keep(depth, f"tw.load(SCALE[({self.scalar()}) % M]) * alpha + tw.zeros(f32, ({self.shape}))")
            case _:
                self.keep(depth, f"tw.load(X.tile({at}), other={other}.25)")

    def expression(self) -> str:
        a, b = self.tile(), self.tile()
        axis = self.random.randrange(2)
        match self.random.randrange(16):
            case 0 | 1:
                return f"{a} {self.pick('+', '-', '*')} {b}"
            case 2:
                return f"tw.where({a} {self.pick('<', '>=', '==')} {b}, {self.tile()}, {b})"
            case 3:
                return f"{a} - tw.{self.pick('sum', 'max', 'min')}({b}, axis={axis}, keep_dims=True)"
            case 4:
                return f"tw.{self.pick('cumsum', 'cummax', 'cummin')}({a}, axis={axis}, reverse={self.pick('True', 'False')})"
            case 5:
                return f"tw.{self.pick('argmax', 'argmin')}({a}, axis={axis}, keep_dims=True).to(f32) + {b}"
            case 6:
                return f"{a}.to({self.pick('f16', 'bf16', 'i32', 'i16', 'i8')}).to(f32)"
            case 7:
                shift, other = self.random.randrange(3), self.random.randrange(1, 5)
                return f"(({a}.to(i32) {self.pick('//', '%')} {other}) {self.pick('<<', '>>')} {shift}).to(f32)"
            case 8:
                return f"({a}.to(i32) {self.pick('&', '|', '^')} {b}.to(i32)).to(f32)"
            case 9:
                return f"{self.pick('tw.maximum', 'tw.minimum')}({a}, {b})"
            case 10:
                return f"tw.{self.pick('floor', 'ceil', 'trunc', 'abs')}({a})"
            case 11:
                return f"tw.fma({a}, 0.5, {b})"
            case 12:
                return f"tw.transpose(tw.transpose({a}))"
            case 13:
                return f"tw.flip({a}, axis={axis})"
            case 14:
                return f"tw.reshape(tw.reshape({a}, ({self.rows * self.columns // 4}, 4)), ({self.shape})) * alpha"
            case _:
                return f"tw.where(inside, {a}, tw.full(f32, ({self.shape}), {self.scalar()}))"

    # -------------------------------------------------------------------------------- statements

    def block(self, depth: int, nesting: int) -> None:
        """Changes of tiles that have a value already; what a block declares is gone behind it."""
        tiles, scalars = list(self.tiles), list(self.scalars)
        changed = self.random.sample(tiles, min(2, len(tiles)))
        if nesting < 2 and self.random.random() < 0.4:
            self.statement(depth, nesting + 1)
        for name in changed:
            self.keep(depth, self.expression(), name)
        self.tiles, self.scalars = tiles, scalars

    def statement(self, depth: int, nesting: int) -> None:
        match self.random.randrange(14):
            case 0 | 1:
                self.load(depth)
            case 2:
                name = self.new("s")
                self.put(depth, f"{name} = {self.scalar()}")
                self.scalars.append(name)
            case 3:
                self.put(depth, f"if {self.scalar()} {self.pick('<', '==', '>')} {self.random.randrange(4)}:")
                self.block(depth + 1, nesting)
                if self.random.random() < 0.5:
                    self.put(depth, "else:")
                    self.block(depth + 1, nesting)
            case 4:
                name = self.new("k")
                bounds = self.pick(f"{self.scalar()}", f"{self.scalar()}, -1, -2", f"0, {self.scalar()}, 3")
                self.put(depth, f"for {name} in range({bounds}):")
                self.scalars.append(name)
                self.block(depth + 1, nesting)
                self.scalars.remove(name)
            case 5:
                self.put(depth, f"for {self.new('k')} in tw.unroll({self.scalar()}, by={self.random.randrange(2, 4)}):")
                self.block(depth + 1, nesting)
            case 6:
                name = self.new("w")
                self.put(depth, f"{name} = {self.scalar()}")
                self.put(depth, f"while {name} > 0:")
                self.block(depth + 1, nesting)
                self.put(depth + 1, f"{name} = {self.pick(f'{name} - 1', f'{name} // 2')}")
                self.scalars.append(name)
            case 7:
                lo, hi, wanted = self.new("lo"), self.new("hi"), self.new("s")
                self.put(depth, f"{wanted} = {self.scalar()}")
                self.put(depth, f"{lo} = 0")
                self.put(depth, f"{hi} = E")
                self.put(depth, f"while {lo} < {hi} and tw.load(EDGES[{hi} - 1]) > {wanted}:")
                self.put(depth + 1, f"middle = ({lo} + {hi}) // 2")
                self.put(depth + 1, f"if tw.load(EDGES[middle]) <= {wanted}:")
                self.put(depth + 2, f"{lo} = middle + 1")
                self.put(depth + 1, "else:")
                self.put(depth + 2, f"{hi} = middle")
                self.scalars += [lo, hi, wanted]
            case 8:
                value = f"tw.sum(tw.where(inside, {self.tile()}, 0.0), axis=1)"
                self.put(depth, f"tw.atomic_add(SUM.at((ids,)), {value}, mask=rows < M)")
            case 9:
                self.put(
                    depth,
                    f"tw.atomic_add(COUNT.tile((j * {self.columns},), ({self.columns},)), {self.random.randrange(1, 4)})",
                )
            case 10 if depth == 2:
                name, a = self.new("q"), self.tile()
                function = self.pick("exp", "sin", "tanh", "sigmoid", "erf", "exp2")
                self.put(
                    depth, f"{name} = tw.{function}({a} * 0.125) + tw.softmax({a}, axis={self.random.randrange(2)})"
                )
                self.rough.append(name)
            case _:
                self.keep(depth, self.expression())


def differences(source: Source, wanted: list[Any], found: list[Any]) -> list[str]:
    """Where arguments after a run differ from those that the interpreter made, one line an argument."""
    lines: list[str] = []
    for name, want, got in zip(("OUT", "ROUGH", "COUNT", "SUM"), wanted[7:], found[7:], strict=True):
        if name == "ROUGH" and not source.rough:
            continue
        close = np.isclose(got, want, rtol=2e-5, atol=2e-6) if name == "ROUGH" else got == want
        if not close.all():
            at = tuple(int(k) for k in np.argwhere(~close)[0])
            lines.append(f"seed {source.seed}, M, N = {source.size}: {(~close).sum()} of {close.size} elements of {name} "
                         f"differ, first {at}: {got[at]} instead of {want[at]}")  # fmt: skip
    return lines
