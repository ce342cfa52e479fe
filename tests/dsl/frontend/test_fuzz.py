"""Random kernels and random damage.

A kernel that is read prints and reads back to equal IR, computes the same after that, and neither expansion nor
interpretation fails on it in an unforeseen way. A damaged file gives problems, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from reading import HEADER, read
from tilewright.expand import ExpansionError, expand, expand_policies
from tilewright.frontend import parse_module
from tilewright.infer import InferenceError
from tilewright.interpret import Violation, interpret
from tilewright.ir import nodes as ir
from tilewright.printer import module_source
from tilewright.source import SourceText

EXAMPLES = [p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parents[3] / "examples").glob("*.py"))]
FAST = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))

UNARY = ["tw.exp", "tw.sin", "tw.cos", "tw.tanh", "tw.sigmoid", "tw.floor", "tw.abs", "-", "tw.transpose", "+",
         "tw.round", "tw.trunc", "tw.expm1"]  # fmt: skip
INFIX = ["+", "-", "*"]
COMPARE = ["<", "<=", ">", ">=", "==", "!="]


class Writer:
    """Writes the body of a kernel over A, B (f16), X, Y (f32), statement by statement; `draw` decides."""

    def __init__(self, draw: Any, split: bool) -> None:
        self.draw = draw
        self.split = split
        self.side = 64 if split else 16  # wgmma takes 64 rows
        self.shape = f"({self.side}, {self.side})"
        self.lines: list[str] = []
        self.tiles: list[str] = []  # f32 tiles that always have a value here
        self.scalars: list[str] = ["M", "N", "K", "pm", "pn"]
        self.fixed = list(self.scalars)  # scalars that are not assigned to
        self.number = 0
        self.budget = draw(st.integers(2, 12))

    def pick(self, options: list[str]) -> str:
        return self.draw(st.sampled_from(options))

    def chance(self, of: int = 2) -> bool:
        return self.draw(st.integers(0, of - 1)) == 0

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    # ---------------------------------------------------------------------------- expressions

    def scalar(self, deep: int = 2) -> str:
        if deep == 0 or self.chance(3):
            return self.pick(self.scalars) if self.chance() else str(self.draw(st.integers(-3, 20)))
        a, b = self.scalar(deep - 1), self.scalar(deep - 1)
        form = self.draw(st.integers(0, 6))
        match form:
            case 0:
                return f"min({a}, {b})"
            case 1:
                return f"tw.cdiv({a}, {self.draw(st.integers(1, 5))})"
            case 2:
                return f"({a}) {self.pick(['//', '%'])} {self.draw(st.integers(1, 7))}"
            case 3:
                return f"({a} {self.pick(COMPARE)} {b})"
            case 4:
                return f"max({a}, {b})"
            case _:
                return f"({a} {self.pick(INFIX)} {b})"

    def condition(self) -> str:
        # A size on one side, so that it is not decided at compile time.
        first = f"{self.pick(['M', 'N', 'pm'])} {self.pick(COMPARE)} {self.draw(st.integers(0, 40))}"
        if self.chance(3):
            return f"not ({first})"
        return f"{first} {self.pick(['and', 'or'])} pn < {self.draw(st.integers(1, 5))}" if self.chance(3) else first

    def view(self, tensor: str) -> str:
        return f"{tensor}.tile((pm * {self.side}, pn * {self.side}), {self.shape})"

    def tile(self, deep: int = 2) -> str:
        if deep == 0 or self.chance(4):
            if self.tiles and self.chance():
                return self.pick(self.tiles)
            return f"tw.load({self.view(self.pick(['X', 'Y']))}, other={self.pick(['0.0', '1.5', '-tw.inf'])})"
        a = self.tile(deep - 1)
        match self.draw(st.integers(0, 11)):
            case 0 | 1:
                sign = self.pick(UNARY)
                return f"{sign}({a})"
            case 2:
                b = self.tile(deep - 1)
                return f"tw.where({a} {self.pick(COMPARE)} {self.pick([b, '0.5'])}, {a}, {self.tile(deep - 1)})"
            case 3:
                axis, name = self.draw(st.integers(0, 1)), self.pick(["sum", "max", "min"])
                return f"({a} - tw.{name}({self.tile(0)}, axis={axis}, keep_dims=True))"
            case 4:
                return f"({a}).to({self.pick(['f16', 'f32'])}).to(f32)"
            case 5:
                return f"tw.{self.pick(['maximum', 'minimum'])}({a}, {self.tile(deep - 1)})"
            case 6:
                return f"(double({a}) - double({self.tile(deep - 1)}))" if self.chance() else f"double({a})"
            case 7:
                return f"tw.full(f32, {self.shape}, {self.pick(['1.0', '-0.0', '2', self.scalar(1)])})"
            case 8:
                return f"tw.where(-1.0 < {a} < 2.0, {self.tile(0)}, 0.0)"
            case 9:
                return f"tw.expand_dims(tw.sum({a}, axis={self.draw(st.integers(0, 1))}), 0) * {self.tile(0)}"
            case 10:
                return f"tw.broadcast(tw.arange({self.side}).to(f32)[:, None], {self.shape}) / {self.tile(0)}"
            case _:
                return f"({a} {self.pick(INFIX)} {self.pick([self.tile(deep - 1), '2.0'])})"

    # ---------------------------------------------------------------------------- statements

    def block(self, depth: int) -> None:
        """Statements in a block of their own; what they declare is gone behind it."""
        tiles, scalars, before = list(self.tiles), list(self.scalars), len(self.lines)
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(depth)
        if len(self.lines) == before:
            self.put(depth, "pass")
        self.tiles, self.scalars = tiles, scalars

    def statement(self, depth: int) -> None:
        self.budget -= 1
        choice = self.draw(st.integers(0, 11)) if self.budget > 0 and depth < 5 else 0
        changing = [s for s in self.scalars if s not in self.fixed]
        match choice:
            case 1 | 2 if self.tiles:
                self.put(depth, f"{self.pick(self.tiles)} = {self.tile()}")
            case 3 if len(self.tiles) > 1:
                a, b = self.draw(st.permutations(self.tiles))[:2]
                self.put(depth, f"{a}, {b} = {b}, {a} + {self.tile(1)}")
            case 4:
                name = self.fresh("s")
                self.put(depth, f"{name} = {self.scalar()}")
                self.scalars.append(name)
            case 5 if changing:
                self.put(depth, f"{self.pick(changing)} {self.pick(['+=', '-=', '='])} {self.scalar(1)}")
            case 6:
                name = self.fresh("i")
                bounds = self.pick(["3", "0, K, 16", "pm, pm + 2", "0, N, 5", "K - 1, -1, -16", "pm, -2, -1"])
                self.put(depth, f"for {name} in range({bounds}):")
                self.scalars.append(name)
                self.fixed.append(name)
                self.block(depth + 1)
                self.scalars.remove(name)
            case 7:
                self.put(depth, f"if {self.condition()}:")
                self.block(depth + 1)
                if self.chance():
                    self.put(depth, "else:")
                    self.block(depth + 1)
            case 8:
                name = self.fresh("u")
                self.put(depth, f"for {name} in tw.static_range({self.draw(st.integers(1, 3))}):")
                self.block(depth + 1)
            case 9 if self.tiles:
                kept, scalar = self.fresh("p"), self.pick(self.scalars)
                self.put(depth, f"{kept} = ({self.pick(self.tiles)}, {scalar})")
                self.put(depth, f"{self.pick(self.tiles)} = {self.tile(1)}")
                name = self.fresh("t")
                self.put(depth, f"{name} = {kept}[0]")
                self.tiles.append(name)
            case 10 | 11 if depth < 4:
                self.product(depth)
            case _:
                name = self.fresh("t")
                self.put(depth, f"{name} = {self.tile()}")
                self.tiles.append(name)

    def product(self, depth: int) -> None:
        """A loop over K, plain or staged."""
        acc, k, side = self.fresh("acc"), self.fresh("k"), self.side
        stages = self.draw(st.integers(2, 4))
        staged = f"tw.pipeline(0, K, {side}, stages={stages}" + (', roles="split")' if self.split else ")")
        # One kind of matrix instruction in a kernel: accumulators of two kinds cannot meet.
        loop = staged if self.split else self.pick([f"range(0, K, {side})", staged])
        self.put(depth, f"{acc} = tw.zeros(f32, {self.shape})")
        self.put(depth, f"for {k} in {loop}:")
        other = ", other=0.0" if loop.startswith("range") else ""
        if self.chance(3):
            self.put(depth + 1, f"{k}_rows = {k} + 0 * pm")
            k_rows = f"{k}_rows"
        else:
            k_rows = k
        self.put(depth + 1, f"a = tw.load(A.tile((pm * {side}, {k_rows}), {self.shape}){other})")
        self.put(depth + 1, f"b = tw.load(B.tile(({k}, pn * {side}), {self.shape}){other})")
        if not self.split and self.chance(3):
            self.put(depth + 1, "a = (a.to(f32) * 0.5).to(f16)")
        self.put(depth + 1, f"{acc} = tw.mma(a, b, {acc})")
        if self.tiles and self.chance(4):
            self.put(depth + 1, f"{self.pick(self.tiles)} = b.to(f32) - {self.pick(self.tiles)}")
        self.tiles.append(acc)


HELPER = """
@tw.func
def double(x):
    y = x + x
    y = y * 1.0
    return y
"""


@st.composite
def kernels(draw: Any) -> str:
    split = draw(st.integers(0, 2)) == 0
    w = Writer(draw, split)
    grid = f"tw.cdiv(M, {w.side}), tw.cdiv(N, {w.side})"
    order = draw(st.sampled_from(["", ", order=tw.grouped(2)", ", persistent=True", ", order=tw.row_major()"]))
    w.put(0, f"@tw.kernel(target='{'sm_90a' if split else 'sm_80'}', warps=4)")
    w.put(0, "def k(A: Global[f16, M, K], B: Global[f16, K, N], X: Global[f32, M, N], Y: Global[f32, M, N],")
    w.put(0, "      OUT: Global[f32, M, N]):")
    w.put(1, "tw.assume(K % 8 == 0)")
    w.put(1, "tw.assume(N % 8 == 0)")
    w.put(1, f"for pm, pn in tw.tiles({grid}{order}):")
    while w.budget > 0:
        w.statement(2)
    result = w.tile(1)
    if draw(st.booleans()):
        w.put(2, f"v = {w.view('OUT')}")
        w.put(2, f"tw.store(v, {result})")
    else:
        w.put(2, f"tw.store({w.view('OUT')}, {result})")
    return HEADER + HELPER + "\n" + "\n".join(w.lines) + "\n"


def plain(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without notes, tiles numbered in the order in which they get their first value."""
    found: dict[str, str] = {}

    def number(name: str) -> str:
        return found.setdefault(name, f"tile{len(found)}")

    def change(stmt: ir.Stmt) -> ir.Block:
        fields: dict[str, Any] = {"note": ""}
        match stmt:
            case ir.Compute(dst=dst, args=args):
                fields["args"] = tuple(ir.TileRef(number(a.name)) if isinstance(a, ir.TileRef) else a for a in args)
                fields["dst"] = number(dst)
            case ir.Mma(a=a, b=b, acc=acc, dst=dst) as m:
                fields |= {"a": number(a), "b": number(b), "acc": number(acc), "dst": number(dst)}
                assert m.instr in ("auto", "mma_v2")
            case ir.Load(dst=dst) | ir.SharedLoad(dst=dst):
                fields["dst"] = number(dst)
            case ir.Store(src=src):
                fields["src"] = number(src)
            case ir.Wgmma(acc=acc, dst=dst):
                fields |= {"acc": number(acc), "dst": number(dst)}
            case ir.SharedStore(src=src):
                fields["src"] = number(src)
            case _:
                pass
        return (replace(stmt, **fields),)

    return kernel.with_body(ir.rewrite(kernel.body, change), {})


def only_kernel(text: str) -> ir.Kernel:
    module = read(text)
    assert not module.all_problems, ([(p.code, p.message) for p in module.all_problems], text)
    found = module.units[0].kernel
    assert found is not None
    return found


def arguments(seed: int, m: int, n: int, k: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)

    def some(rows: int, columns: int, dtype: Any) -> np.ndarray:
        return random.uniform(-2, 2, (rows, columns)).astype(dtype)

    return [some(m, k, np.float16), some(k, n, np.float16), some(m, n, np.float32), some(m, n, np.float32),
            np.full((m, n), 7, np.float32)]  # fmt: skip


def outcome(kernel: ir.Kernel, given_arguments: list[np.ndarray]) -> tuple[str, np.ndarray]:
    """The kind of violation, or empty, and the output."""
    arrays = [a.copy() for a in given_arguments]
    try:
        with np.errstate(all="ignore"):
            interpret(kernel, *arrays)
    except Violation as violation:
        return violation.kind, arrays[-1]
    return "", arrays[-1]


def round_trip(text: str, m: int, n: int, k: int) -> None:
    note(text)
    kernel = only_kernel(text)
    printed = module_source(kernel)
    note(printed)
    again = only_kernel(printed)
    assert plain(again) == plain(kernel)
    policies_gone = expand_policies(kernel)
    from_print = only_kernel(module_source(policies_gone))
    assert plain(expand_policies(from_print)) == plain(policies_gone)
    data = arguments(m * 31 + n, m, n, k)
    kind, output = outcome(expand(kernel), data)
    kind_again, output_again = outcome(expand(from_print), data)
    assert kind == kind_again
    np.testing.assert_array_equal(output, output_again)


@given(kernels(), st.integers(1, 70), st.sampled_from([8, 16, 72]), st.sampled_from([8, 32, 136]))
@FAST
def test_random_kernels_print_read_back_and_run(text: str, m: int, n: int, k: int) -> None:
    round_trip(text, m, n, k)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(kernels(), st.integers(1, 70), st.sampled_from([8, 16, 72]), st.sampled_from([8, 32, 136]))
@LONG
def test_many_random_kernels_print_read_back_and_run(text: str, m: int, n: int, k: int) -> None:
    round_trip(text, m, n, k)


# ------------------------------------------------------------------------------------------------ damage


def tokens(text: str) -> list[tuple[int, int]]:
    """Where the words, numbers and signs of a text stand; line ends and indentation are tokens too."""
    return [m.span() for m in re.finditer(r"\w+|\n[ ]*|[^\w\s]|\s", text)]


@st.composite
def damaged(draw: Any) -> str:
    text = draw(st.sampled_from(EXAMPLES))
    for _ in range(draw(st.integers(1, 3))):
        places = tokens(text)
        if not places:
            break
        first = draw(st.integers(0, len(places) - 1))
        last = min(len(places) - 1, first + draw(st.integers(0, 6)))
        start, end = places[first][0], places[last][1]
        span = text[start:end]
        match draw(st.sampled_from(["delete", "duplicate", "move", "insert", "replace"])):
            case "delete":
                text = text[:start] + text[end:]
            case "duplicate":
                text = text[:end] + span + text[end:]
            case "move":
                at = places[draw(st.integers(0, len(places) - 1))][0]
                text = text[:at] + span + text[at:]
            case "insert":
                text = text[:start] + draw(st.sampled_from(FRAGMENTS)) + text[start:]
            case _:
                text = text[:start] + draw(st.sampled_from(FRAGMENTS)) + text[end:]
    return text


FRAGMENTS = [
    "(", ")", "[", "]", ":", ",", "=", "0", "-1", "3.5", "10**30", "1e999", "0777", "5j", "'x'", "None", "True", "lambda: 0",
    "tw", "tw.", "tw.load", "tw.inf", "M", "f32", "acc", "k", "it", "for x in range(3):", "if M < 3:", "else:", "return ",
    "*", "**", "//", "%", "@", "<", "not ", " and ", "1 << 70", "/ 0", "x if M else y", "é", "\t", "\n", "\n    ", "#", "\\",
    "{}", "[i for i in M]", "with tw.role('a', warps=1):", "tw.sync()", "a_ring[0]", "full[it]", ".T", ".shape[0]", "[:, None]",
    "tw.static_range(2000)", "await ", "yield", "global x", "del M", "f'{x}'", "b'x'", "...", ";", "->", ":=", "~", "^",
]  # fmt: skip


def survives(text: str) -> None:
    note(text)
    module = parse_module(SourceText(text.encode(), "damaged.py"))
    size = len(text.encode())
    for problem in module.all_problems:
        assert 0 <= problem.span.start <= problem.span.end <= size, problem
    for kernel in read_kernels(text):
        try:
            expand(kernel)
        except ExpansionError as error:
            assert error.problem.message
        except InferenceError as error:
            assert str(error) and error.span.end <= size


def read_kernels(text: str) -> Iterator[ir.Kernel]:
    for unit in parse_module(SourceText(text.encode(), "damaged.py")).units:
        if unit.kernel is not None and not any(p.severity == "error" for p in unit.problems):
            yield unit.kernel


@given(damaged())
@settings(FAST, max_examples=150)
def test_damaged_examples_give_problems_and_no_exception(text: str) -> None:
    survives(text)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(damaged())
@settings(LONG, max_examples=20000)
def test_many_damaged_examples_give_problems_and_no_exception(text: str) -> None:
    survives(text)
